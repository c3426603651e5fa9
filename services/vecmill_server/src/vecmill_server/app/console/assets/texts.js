// Texts that people type, one on each line.

import { h, labelled } from "./elements.js";

/** Return the texts of a text area: its lines without the empty ones. */
export function linesOf(area) {
  return area.value
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
}

/** Return a labelled text area for one text on each line. */
export function textsField(name, label, value, rows = 6) {
  const area = h("textarea", { name, rows, spellcheck: "false" }, value);
  return { area, field: labelled(label, area, "One text on each line.") };
}

/** The beginning of a text, for labels. */
export function excerpt(text, most = 40) {
  const letters = [...text];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
}
