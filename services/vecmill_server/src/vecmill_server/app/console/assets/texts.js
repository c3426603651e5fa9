// Texts that people type, paste or open, and how long ones are shown.

import { fileButton, fill, h, labelled } from "./elements.js";
import { count } from "./numbers.js";
import { TEXT_TYPES, decodeText, linesOf, paragraphsOf, readTexts } from "./text_files.js";

const LINES = "lines";
const PARAGRAPHS = "paragraphs";

/** Return `{field, read}`: a text area for several texts, and the function that returns them. */
export function textsField(name, label, value, rows = 6) {
  const area = h("textarea", { name, rows, spellcheck: "false", dir: "auto" }, value);
  const separation = h(
    "select",
    { name: `${name}_separation`, "aria-label": `How ${label.toLowerCase()} are separated` },
    h("option", { value: LINES }, "One text on each line"),
    h("option", { value: PARAGRAPHS }, "An empty line between texts"),
  );
  const state = h("small", { role: "status" });
  const read = () => (separation.value === LINES ? linesOf(area.value) : paragraphsOf(area.value));
  const tell = (source = "") => fill(state, `${count(read().length, "text")}${source}`);

  async function readFile(chosen) {
    try {
      const { content, isUtf8 } = decodeText(await chosen.arrayBuffer());
      const { texts, source } = readTexts(chosen.name, content);
      const hasLines = texts.some((text) => text.includes("\n"));
      separation.value = hasLines ? PARAGRAPHS : LINES;
      // An empty line within a text would divide it.
      area.value = texts.map((text) => text.replace(/\n\s*\n/g, "\n")).join(hasLines ? "\n\n" : "\n");
      area.dispatchEvent(new Event("input", { bubbles: true }));
      const encoding = isUtf8 ? "" : "; it is not UTF-8, and was read as Windows-1252";
      tell(` from ${chosen.name}${source ? `, ${source}` : ""}${encoding}`);
    } catch (error) {
      fill(state, h("span", { class: "problem" }, error.message));
    }
  }
  area.addEventListener("input", () => tell());
  separation.addEventListener("input", () => tell());
  const open = fileButton(`A file with ${label.toLowerCase()}`, TEXT_TYPES, readFile);
  const field = h(
    "div",
    { class: "texts" },
    labelled(label, area),
    h("div", { class: "actions" }, separation, open, state),
  );
  queueMicrotask(() => tell()); // when the form has been filled with what was kept
  return { field, read };
}

/** The beginning of a text, for labels. */
export function excerpt(text, most = 40) {
  // Of a very long text no more is read than may be shown: a letter has at most two units, and spaces are joined.
  const letters = [...text.slice(0, 20 * most + 200).replace(/\s+/g, " ")];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : letters.join("");
}

let watcher = null;

/** Return a text of which two lines are shown, and a button that shows the rest, where there is more. */
export function longText(text) {
  const shown = h("span", { class: "two-lines", dir: "auto" }, text);
  const more = h(
    "button",
    {
      type: "button",
      class: "more",
      hidden: true,
      "aria-expanded": "false",
      onclick: () => {
        const isWhole = shown.classList.toggle("whole-text");
        more.setAttribute("aria-expanded", String(isWhole));
        fill(more, isWhole ? "less" : "more");
      },
    },
    "more",
  );
  watcher ??= new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (!target.classList.contains("whole-text")) target.nextSibling.hidden = target.scrollHeight <= target.clientHeight + 1;
    }
  });
  watcher.observe(shown);
  return h("span", { class: "long-text" }, shown, more);
}
