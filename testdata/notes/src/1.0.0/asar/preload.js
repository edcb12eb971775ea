"use strict";
const { contextBridge, ipcRenderer } = require("electron");

contextBridge.exposeInMainWorld("notes", {
  add: (text) => ipcRenderer.invoke("notes:add", text),
  all: () => ipcRenderer.invoke("notes:all"),
});
