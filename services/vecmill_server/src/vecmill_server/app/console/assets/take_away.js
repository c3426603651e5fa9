// Results as files: CSV (RFC 4180) and JSON.

import { h } from "./elements.js";

/** Return buttons that save the result: `rows` are lists of cells, the first row has the headings. */
export function saveButtons(name, rows, document_) {
  return h(
    "p",
    { class: "actions" },
    saveButton("Save as CSV", `${name}.csv`, "text/csv", () => writeCsv(rows())),
    saveButton("Save as JSON", `${name}.json`, "application/json", () => JSON.stringify(document_(), null, 2)),
  );
}

/** Save a Blob as a file. */
export function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Return CSV. Texts that a spreadsheet would read as a formula begin with an apostrophe. */
export function writeCsv(rows) {
  return rows.map((cells) => `${cells.map(writeCell).join(",")}\r\n`).join("");
}

function writeCell(value) {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function saveButton(text, name, type, write) {
  return h("button", { type: "button", onclick: () => saveBlob(new Blob([write()], { type }), name) }, text);
}
