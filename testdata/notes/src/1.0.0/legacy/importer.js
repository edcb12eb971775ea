"use strict";
// Reads the plain-text notebook of the versions before 1.0: one note a line.
const fs = require("fs");
const { Store } = require("../app.asar/lib/store");

const [from, to] = process.argv.slice(2);
const store = new Store(to);
for (const line of fs.readFileSync(from, "utf8").split("\n")) if (line.trim()) store.add(line.trim());
