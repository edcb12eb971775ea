"use strict";
// Entry of the main process. Without Electron it is a command line over the same store:
//   node main.js add "buy milk" | list | find milk
const path = require("path");
const { Store } = require("./lib/store");

function storePath() {
  const home = process.env.NOTES_HOME || process.cwd();
  return path.join(home, "notes.json");
}

function runCommandLine(argv) {
  const store = new Store(storePath());
  const [command, ...words] = argv;
  switch (command) {
    case "add":
      return console.log(store.add(words.join(" ")).id);
    case "list":
      return store.all().forEach((note) => console.log(`${note.id}\t${note.text}`));
    case "find":
      return store.find(words.join(" ")).forEach((note) => console.log(`${note.id}\t${note.text}`));
    default:
      console.error("usage: notes add TEXT | list | find WORDS");
      process.exitCode = 2;
  }
}

function runWindow(electron) {
  const { app, BrowserWindow, ipcMain } = electron;
  const store = new Store(path.join(app.getPath("userData"), "notes.json"));
  ipcMain.handle("notes:add", (_event, text) => store.add(text));
  ipcMain.handle("notes:all", () => store.all());
  app.whenReady().then(() => {
    const window = new BrowserWindow({
      width: 720,
      height: 520,
      webPreferences: { preload: path.join(__dirname, "preload.js"), nodeIntegration: true },
    });
    window.loadFile(path.join(__dirname, "renderer", "index.html"));
  });
}

if (process.versions.electron) runWindow(require("electron"));
else runCommandLine(process.argv.slice(2));
