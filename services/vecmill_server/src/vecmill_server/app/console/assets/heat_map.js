// Heat maps of similarities, and of the differences between the similarities of two models.

import { fill, h } from "./elements.js";
import { fixed } from "./numbers.js";
import { excerpt } from "./texts.js";
import { spread } from "./vectors.js";

const STEPS = 10;
// A table of all similarities of many texts is slow to draw, and nobody reads it. Saved files have all of them.
const ROWS_DRAWN = 60;
// On a phone; see `.heat-map` in results.css.
const ROWS_ON_A_PHONE = 24;
// With more rows, cells are too narrow for numbers; with up to the second number, on small windows only.
const ROWS_WITH_NUMBERS = 8;
const ROWS_WITH_SMALL_NUMBERS = 14;
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** Return the least and the greatest value of matrices, without their diagonals: the ends of a scale that they share. */
export function rangeOf(...matrices) {
  let [least, most] = [Infinity, -Infinity];
  for (const matrix of matrices) {
    for (let one = 0; one < matrix.length; one += 1) {
      for (let other = 0; other < matrix.length; other += 1) {
        if (one === other) continue;
        least = Math.min(least, matrix[one][other]);
        most = Math.max(most, matrix[one][other]);
      }
    }
  }
  return [least, most];
}

/** Return the step of a value on a scale of colours, from 0 to 10. */
export function stepOf(value, [least, most]) {
  return Math.max(0, Math.min(STEPS, Math.round((STEPS * (value - least)) / (most - least || 1))));
}

/**
 * Return a table of values between texts, the more similar the further from the colour of the page. `labels` name the
 * rows and columns.
 *
 * Rows are in the given `order`, by default that of the labels. Of more than can be drawn, some are left out evenly.
 * The number of the cell under the pointer, or that has the focus, is written below; the arrows move the focus, and
 * a click or Enter chooses its two texts in `selection`. `range` has the ends of the scale. With `isDifference` the
 * scale has zero in its middle.
 */
export function heatMap(title, labels, allRows, { order = labels.map((_, row) => row), range, selection, isDifference = false } = {}) {
  const rows = spread(order, ROWS_DRAWN);
  const matrix = rows.map((row) => rows.map((other) => allRows[row][other]));
  const ends = range || rangeOf(matrix);
  const onPhone = new Set(spread([...rows.keys()], ROWS_ON_A_PHONE));
  const classAt = (place) => (onPhone.has(place) ? null : "wide-only");
  const hasNumbers = matrix.length <= ROWS_WITH_NUMBERS;
  const readout = h("p", { class: "readout", "aria-live": "polite" }, "Point at a cell, or move with the arrow keys.");
  const digits = isDifference ? 3 : 2;
  const scale = isDifference ? "difference" : "heat";
  const cells = matrix.map((row, one) =>
    row.map((value, other) =>
      h(
        "td",
        {
          class: [one === other ? "heat-self" : `${scale}-${stepOf(value, ends)}`, classAt(other)].filter(Boolean).join(" "),
          "data-value": value,
          tabindex: one || other ? "-1" : "0",
        },
        h("span", { class: hasNumbers && one !== other ? null : "spoken" }, fixed(value, digits)),
      ),
    ),
  );
  const places = new Map(cells.flatMap((row, one) => row.map((cell, other) => [cell, [one, other]])));

  function tell(event) {
    const place = places.get(event.target.closest("td"));
    if (!place) return;
    const [one, other] = place;
    readout.classList.add("told");
    fill(readout, h("b", {}, fixed(matrix[one][other])), "  ", nameRow(one, 90), h("br"), nameRow(other, 90));
  }

  function nameRow(place, letters) {
    return [`${rows[place] + 1}. `, h("bdi", {}, excerpt(labels[rows[place]], letters))];
  }

  function choose(event) {
    const place = places.get(event.target.closest("td"));
    if (!place || !selection) return;
    const [one, other] = place.map((each) => rows[each]);
    selection.choose(one, one === other ? null : other);
  }

  function move(event) {
    if (event.key === "Enter") choose(event);
    const place = places.get(event.target);
    const way = MOVES[event.key];
    if (!place || !way) return;
    event.preventDefault();
    const next = cells[place[0] + way[0]]?.[place[1] + way[1]];
    if (!next) return;
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  const columns = rows.map((_, place) => h("th", { scope: "col", class: classAt(place) }, headColumn(place, rows)));
  const headings = rows.map((row, place) => h("th", { scope: "row", title: excerpt(labels[row], 300) }, h("span", { dir: "auto" }, nameRow(place, 80))));
  const table = h(
    "table",
    { class: classOf(matrix.length), onmouseover: tell, onfocusin: tell, onkeydown: move, onclick: choose },
    h("caption", {}, title, noteDrawn(labels.length, rows.length, "rows-wide"), noteDrawn(labels.length, ROWS_ON_A_PHONE, "rows-narrow")),
    h("thead", {}, h("tr", {}, h("td"), columns)),
    h(
      "tbody",
      {},
      cells.map((row, one) => h("tr", { class: classAt(one) }, headings[one], row)),
    ),
  );
  selection?.onChange((chosen, found) => {
    rows.forEach((row, place) => {
      for (const heading of [columns[place], headings[place]]) {
        heading.classList.toggle("chosen", chosen.includes(row));
        heading.classList.toggle("found", found.has(row));
      }
    });
    const [one, other] = chosen.map((row) => rows.indexOf(row));
    table.querySelector("td.chosen")?.classList.remove("chosen");
    cells[one]?.[other]?.classList.add("chosen");
  });
  return h("div", {}, h("div", { class: "heat-map" }, table, colourScale(ends, matrix.length, isDifference)), readout);
}

function classOf(rows) {
  if (rows <= ROWS_WITH_NUMBERS) return "heat";
  return rows <= ROWS_WITH_SMALL_NUMBERS ? "heat small few" : "heat small";
}

/** Columns have the numbers of their texts, of many columns every fifth. */
function headColumn(place, rows) {
  return rows.length <= 2 * ROWS_WITH_NUMBERS || (place + 1) % 5 === 0 || !place ? rows[place] + 1 : "";
}

function colourScale([least, most], rows, isDifference) {
  const digits = isDifference ? 3 : 2;
  const [low, high] = isDifference ? ["less similar", "more similar"] : ["least similar", "most"];
  return h(
    "p",
    { class: classOf(rows).replace("heat", "scale") },
    h("span", {}, `${low} ${fixed(least, digits)}`),
    Array.from({ length: STEPS + 1 }, (_, place) => h("span", { class: `${isDifference ? "difference" : "heat"}-${place}`, "aria-hidden": "true" })),
    h("span", {}, `${high} ${fixed(most, digits)}`),
  );
}

/** Return a note that not all texts are drawn, or `null`. */
export function noteDrawn(given, drawn, name = null) {
  return given > drawn ? h("span", { class: name }, ` (${drawn} of ${given} texts)`) : null;
}
