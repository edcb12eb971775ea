// The TypeScript SDK's client, which validates structured content against the advertised output schemas itself.
//
// Usage: node sdk.mjs TARGET SERVER [ARGUMENT ...]. Exits 0 when everything is right.
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [target, command, ...args] = process.argv.slice(2);
const client = new Client({ name: "typescript", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));

const { tools } = await client.listTools();
const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);

const session = (await call("binary_session", {})).structuredContent.result;
assert.deepEqual(session.tool_availability.groups.flatMap((g) => g.names).sort(), tools.map((t) => t.name).sort());
assert.equal(session.server_identity.client.name, "typescript");

assert.equal((await call("open_binary", { path: target })).structuredContent.result.path, target);
const seen = [];
const extraction = await call("extract_artifact", {}, { onprogress: (p) => seen.push(p) });
assert.equal(extraction.structuredContent.operation, "extract_artifact");
// This client forgets a handler as soon as it has read the answer, so a quick call may show none; the Go
// tests hold the count.
assert.ok(seen.every((p, i) => p.progress > (seen[i - 1]?.progress ?? 0) && p.total === undefined));

await call("get_evidence_bundle", { detail: "summary" });
await call("get_evidence_bundle", {});
const failed = await call("open_binary", { path: 7 });
assert.equal(failed.isError, true);
assert.equal(failed._meta.provenance.untrusted_content, true);
await assert.rejects(call("no_such_tool", {}));
await call("close_binary", {});
await client.close();
