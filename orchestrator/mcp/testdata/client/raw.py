"""An MCP client that shares no code with the server: raw JSON-RPC lines over the pipes of a child process.

Usage: raw.py TARGET SERVER [ARGUMENT ...]. Prints nothing and exits 0 when everything is right.
"""
import json
import subprocess
import sys

target, command = sys.argv[1], sys.argv[2:]
MARKER = {"provenance": {"untrusted_content": True, "source": "analysis_target"}}
server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def send(message):
    line = message if isinstance(message, str) else json.dumps(message)
    server.stdin.write(line.encode() + b"\n")
    server.stdin.flush()


def receive():
    line = server.stdout.readline()
    assert line, "the output ended"
    message = json.loads(line)  # every line is one message
    assert message["jsonrpc"] == "2.0", message
    return message


def call(name, arguments, id="c"):
    send({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
    answer = receive()
    assert answer["id"] == id and "result" in answer, answer
    result = answer["result"]
    assert result["_meta"] == MARKER, result["_meta"]
    return result


def document(result):
    assert "isError" not in result, result
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    return result["structuredContent"]


send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}})
first = receive()
assert first["id"] == 0 and first["result"]["serverInfo"]["name"] == "rea", first
send({"jsonrpc": "2.0", "method": "notifications/initialized"})
send({"jsonrpc": "2.0", "id": "list", "method": "tools/list"})
tools = {t["name"] for t in receive()["result"]["tools"]}

session = document(call("binary_session", None))["result"]
grouped = [n for g in session["tool_availability"]["groups"] for n in g["names"]]
assert sorted(grouped) == sorted(tools), (grouped, tools)
assert session["open"] is False and session["client_features"]["roots"] is False
assert session["server_identity"]["catalog"]["counts"]["mcp_tools"] == len(tools)

opened = document(call("open_binary", {"path": target}))["result"]
assert opened["path"] == target and opened["kind"] == "archive", opened
extraction = document(call("extract_artifact", {}))
assert extraction["operation"] == "extract_artifact" and extraction["evidence_id"].startswith("ev_")
assert extraction["normalized_result"]["artifacts"][0]["relative_path"] == "a <b> \u2028 \"c\" \u00e9\U0001f600"
bundle = document(call("get_evidence_bundle", {}))["result"]
assert [r["evidence_id"] for r in bundle["records"]] == [extraction["evidence_id"]]

failed = call("open_binary", {"path": "relative"})
assert failed["isError"] is True and "structuredContent" not in failed
assert json.loads(failed["content"][0]["text"])["error"]["code"] == "invalid_request"

# A line of 5 MB, and one that is broken.
pad = call("close_binary", {"pad": "p" * 5_000_000})
assert json.loads(pad["content"][0]["text"])["error"]["details"]["issues"][0]["reason"] == "unknown_argument"
send('{"jsonrpc":"2.0","id":45,"method":')
broken = receive()
assert broken["error"]["code"] == -32700 and broken["id"] is None, broken

# What was read before the input ended is answered, and the process ends by itself.
send({"jsonrpc": "2.0", "id": "last", "method": "tools/call", "params": {"name": "close_binary", "arguments": {}}})
server.stdin.close()
assert receive()["id"] == "last"
assert server.stdout.read() == b""
assert server.wait(timeout=30) == 0
