"use strict";
const fs = require("fs");

// Store keeps every note in one JSON file and writes it whole.
class Store {
  constructor(file) {
    this.file = file;
    this.notes = fs.existsSync(file) ? JSON.parse(fs.readFileSync(file, "utf8")) : [];
  }
  add(text) {
    const note = { id: this.notes.length + 1, text, made: new Date().toISOString() };
    this.notes.push(note);
    fs.writeFileSync(this.file, JSON.stringify(this.notes, null, 2));
    return note;
  }
  all() {
    return this.notes;
  }
  find(words) {
    const wanted = words.toLowerCase();
    return this.notes.filter((note) => note.text.toLowerCase().includes(wanted));
  }
}

module.exports = { Store };
