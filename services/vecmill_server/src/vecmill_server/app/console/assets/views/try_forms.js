// What the forms of the view "Try" share.

import { choice, fill, h, scrolled, table } from "../elements.js";
import { total } from "../many_texts.js";
import { count, time } from "../numbers.js";
import { countCut } from "../truncation.js";

const ROWS_SHOWN = 100;

export function modelChoice(models) {
  return choice("model", models.map(({ id }) => [id, id]), models[0].id);
}

/** Return `{field, chosen}`: a box for each model, the first `checked` of them checked, and the function that returns the chosen names. */
export function modelBoxes(name, models, checked) {
  const boxes = models.map(({ id }, place) => h("input", { type: "checkbox", name, value: id, checked: place < checked }));
  const lines = boxes.map((box) => h("label", { class: "inline" }, box, box.value));
  function chosen() {
    const found = boxes.filter((box) => box.checked).map((box) => box.value);
    if (!found.length) throw new Error("Choose at least one model.");
    return found;
  }
  return { field: h("fieldset", {}, h("legend", {}, "Models, side by side"), lines), chosen };
}

/** Return a list that must not be empty. Throws an error that names what is missing. */
export function required(texts, what) {
  if (!texts.length) throw new Error(`Type at least one ${what}.`);
  return texts;
}

/** One sentence about a response. `tokens` is `undefined` where the route does not count them. */
export function summary(tokens, ms, what) {
  const parts = [what, ...(tokens === undefined ? [] : [count(tokens, "token")]), `${time(ms / 1000)}`];
  return h("p", { class: "summary" }, parts.join(", "));
}

/** Return the first rows of a long table, and a button that shows the others. */
export function shortened(caption, headings, rows, style) {
  return scrolled(caption, firstOf(rows, (shown) => table(caption, headings, shown, style)));
}

/** Return what `draw` makes of the first of many, and a button that shows the others. */
export function firstOf(all, draw) {
  const place = h("div", {});
  const show = (shown) =>
    fill(
      place,
      draw(shown),
      shown.length < all.length
        ? h("button", { type: "button", onclick: () => show(all) }, `Show all ${all.length.toLocaleString("en")}`)
        : null,
    );
  show(all.slice(0, ROWS_SHOWN));
  return place;
}

/** Return how many texts of the parts of a request were cut off, and by which model. */
export function cutOf(parts, models, name) {
  return { count: total(parts, ({ headers }) => countCut(headers)), model: models.find(({ id }) => id === name) };
}
