"use strict";
const list = document.querySelector("#list");

async function show() {
  list.replaceChildren();
  for (const note of await window.notes.all()) {
    const item = document.createElement("li");
    item.textContent = note.text;
    list.append(item);
  }
}

document.querySelector("#new").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = event.target.elements.text;
  await window.notes.add(field.value);
  field.value = "";
  show();
});
show();
