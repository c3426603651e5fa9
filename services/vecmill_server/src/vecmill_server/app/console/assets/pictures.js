// The pictures of results: heat map, map of points, bars. Each number that they show is also there as text.

import { fill, h, svg } from "./elements.js";
import { fixed } from "./numbers.js";
import { HEIGHT, POINTS_WITH_NUMBERS, WIDTH, radiusOf } from "./point_layout.js";
import { excerpt } from "./texts.js";
import { spread } from "./vectors.js";

const STEPS = 10;
// A table of all similarities of many texts is slow to draw, and nobody reads it. Saved files have all of them.
const ROWS_DRAWN = 60;
// On a phone; see `.heat-map` in console.css.
const ROWS_ON_A_PHONE = 24;
// With more rows, cells are too narrow for numbers; with up to the second number, on small windows only.
const ROWS_WITH_NUMBERS = 8;
const ROWS_WITH_SMALL_NUMBERS = 14;
// Groups are told apart by colours, `--group-0` and so on in console.css, and after those by shapes.
export const COLOURS = 6;
const SHAPES = [
  (x, y, r) => svg("circle", { cx: x, cy: y, r }),
  (x, y, r) => svg("rect", { x: x - 0.89 * r, y: y - 0.89 * r, width: 1.78 * r, height: 1.78 * r }),
  (x, y, r) => svg("path", { d: `M${x} ${y - 1.2 * r}L${x + 1.15 * r} ${y + 0.8 * r}H${x - 1.15 * r}Z` }),
  (x, y, r) => svg("path", { d: `M${x} ${y - 1.25 * r}L${x + 1.25 * r} ${y}L${x} ${y + 1.25 * r}L${x - 1.25 * r} ${y}Z` }),
];

/**
 * Return a table of the similarities, the more similar the darker. `labels` name the rows and columns.
 *
 * Rows are in the given `order`, by default that of the labels. Of more than can be drawn, some are left out evenly.
 * The number of the cell under the pointer, or that has the focus, is written below; the arrows move the focus.
 */
export function heatMap(title, labels, allRows, order = labels.map((_, row) => row)) {
  const rows = spread(order, ROWS_DRAWN);
  const matrix = rows.map((row) => rows.map((other) => allRows[row][other]));
  const values = matrix.flatMap((row, one) => row.filter((_, other) => one !== other));
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const step = (value) => Math.round((STEPS * (value - least)) / (most - least || 1));
  const onPhone = new Set(spread([...rows.keys()], ROWS_ON_A_PHONE));
  const classAt = (place) => (onPhone.has(place) ? null : "wide-only");
  const hasNumbers = matrix.length <= ROWS_WITH_NUMBERS;
  const readout = h("p", { class: "readout", "aria-live": "polite" }, "Point at a cell, or move with the arrow keys.");
  const cells = matrix.map((row, one) =>
    row.map((value, other) =>
      h(
        "td",
        {
          class: [`heat-${one === other ? "self" : step(value)}`, classAt(other)].filter(Boolean).join(" "),
          "data-value": value,
          tabindex: one || other ? "-1" : "0",
        },
        h("span", { class: hasNumbers ? null : "spoken" }, fixed(value, 2)),
      ),
    ),
  );
  const places = new Map(cells.flatMap((row, one) => row.map((cell, other) => [cell, [one, other]])));

  function tell(event) {
    const place = places.get(event.target.closest("td"));
    if (!place) return;
    const [one, other] = place;
    fill(readout, h("b", {}, fixed(matrix[one][other])), `  ${nameRow(one, 90)}`, h("br"), nameRow(other, 90));
  }

  function nameRow(place, letters) {
    return `${rows[place] + 1}. ${excerpt(labels[rows[place]], letters)}`;
  }

  function move(event) {
    const place = places.get(event.target);
    const way = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!place || !way) return;
    event.preventDefault();
    const next = cells[place[0] + way[0]]?.[place[1] + way[1]];
    if (!next) return;
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  const table = h(
    "table",
    { class: classOf(matrix.length), onmouseover: tell, onfocusin: tell, onkeydown: move },
    h("caption", {}, title, noteDrawn(labels.length, rows.length, "rows-wide"), noteDrawn(labels.length, ROWS_ON_A_PHONE, "rows-narrow")),
    h("thead", {}, h("tr", {}, h("td"), rows.map((_, place) => h("th", { scope: "col", class: classAt(place) }, headColumn(place, rows))))),
    h(
      "tbody",
      {},
      cells.map((row, one) =>
        h("tr", { class: classAt(one) }, h("th", { scope: "row", title: labels[rows[one]] }, h("span", {}, nameRow(one, 80))), row),
      ),
    ),
  );
  return h("div", {}, h("div", { class: "heat-map" }, table, colourScale(least, most, matrix.length)), readout);
}

function classOf(rows) {
  if (rows <= ROWS_WITH_NUMBERS) return "heat";
  return rows <= ROWS_WITH_SMALL_NUMBERS ? "heat small few" : "heat small";
}

/** Columns have the numbers of their texts, of many columns every fifth. */
function headColumn(place, rows) {
  return rows.length <= 2 * ROWS_WITH_NUMBERS || (place + 1) % 5 === 0 || !place ? rows[place] + 1 : "";
}

function colourScale(least, most, rows) {
  return h(
    "p",
    { class: classOf(rows).replace("heat", "scale") },
    h("span", {}, `least similar ${fixed(least, 2)}`),
    Array.from({ length: STEPS + 1 }, (_, place) => h("span", { class: `heat-${place}`, "aria-hidden": "true" })),
    h("span", {}, `most ${fixed(most, 2)}`),
  );
}

/** Return a mark of a group: its colour and its shape, for lists. */
export function groupMark(group) {
  return svg("svg", { viewBox: "0 0 16 16", class: `mark group-${group % COLOURS}`, "aria-hidden": "true" }, shapeOf(group)(8, 8, 6));
}

function shapeOf(group) {
  return SHAPES[Math.floor((group ?? 0) / COLOURS) % SHAPES.length];
}

/**
 * Return a drawing of the texts at `drawn`, whose `places` are those of `placePoints`; near points are near texts.
 *
 * The text of the point under the pointer is written below.
 */
export function pointMap(title, labels, places, drawn, groups = []) {
  const caption = [title, noteDrawn(labels.length, drawn.length)];
  const hasNumbers = places.length <= POINTS_WITH_NUMBERS;
  const radius = radiusOf(places.length);
  const groupOf = new Map(groups.flatMap((members, group) => members.map((row) => [row, group])));
  const readout = h("p", { class: "readout one-line", "aria-live": "polite" }, "Point at a text.");
  const marks = places.map(([x, y], place) => {
    const row = drawn[place];
    const group = groupOf.get(row);
    return svg(
      "g",
      { class: group === undefined ? null : `group-${group % COLOURS}`, "data-row": row },
      svg("title", {}, `${row + 1}. ${excerpt(labels[row], 200)}`),
      shapeOf(group)(x, y, radius),
      hasNumbers ? svg("text", { x, y, "text-anchor": "middle", "dominant-baseline": "central" }, row + 1) : null,
    );
  });
  const tell = (event) => {
    const row = event.target.closest("g")?.dataset.row;
    if (row !== undefined) fill(readout, h("b", {}, Number(row) + 1), `. ${excerpt(labels[row], 160)}`);
  };
  return h(
    "figure",
    {},
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title, class: "points", onmouseover: tell, onclick: tell }, marks),
    readout,
    h("figcaption", {}, caption),
  );
}

/** Return a bar of `share` (0 to 1) with its number. */
export function bar(share, text) {
  const length = Math.max(0, Math.min(1, share)) * 100;
  return h(
    "span",
    { class: "bar" },
    svg(
      "svg",
      { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { width: length, height: 10 }),
    ),
    h("span", {}, text),
  );
}

/** Return a drawing of points on two axes. `points` are `{x, y, name, mark}`, with `y` up to 1; marked ones stand out. */
export function scatter(caption, xLabel, yLabel, points) {
  const [width, height, left, bottom, edge] = [560, 340, 64, 44, 16];
  const [xs, ys] = [points.map(({ x }) => x), points.map(({ y }) => y)];
  const [x0, x1] = paddedRange(xs);
  const [y0, padded] = paddedRange(ys);
  const y1 = Math.min(padded, 1); // no cosine is greater
  // A point at the top is drawn whole.
  const top = edge + 6;
  const toX = (x) => left + ((width - left - edge) * (x - x0)) / (x1 - x0);
  const toY = (y) => height - bottom - ((height - bottom - top) * (y - y0)) / (y1 - y0 || 1);
  const number = (value) => value.toLocaleString("en", { maximumSignificantDigits: 5 });
  return h(
    "figure",
    {},
    svg(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": caption, class: "scatter" },
      roundTicks(x0, x1).map((x) =>
        svg("text", { x: toX(x), y: height - bottom + 18, "text-anchor": "middle" }, number(x)),
      ),
      roundTicks(y0, y1).map((y) => svg("text", { x: left - 8, y: toY(y) + 4, "text-anchor": "end" }, number(y))),
      svg("path", { d: `M${left} ${edge}V${height - bottom}H${width - edge}`, class: "axis" }),
      svg("text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle" }, xLabel),
      svg("text", { x: 4, y: 12 }, yLabel),
      points.map(({ x, y, name, mark }) =>
        svg("g", { class: mark || null }, svg("title", {}, name), svg("circle", { cx: toX(x), cy: toY(y), r: 6 })),
      ),
    ),
    h("figcaption", {}, caption),
  );
}

function noteDrawn(given, drawn, name = null) {
  return given > drawn ? h("span", { class: name }, ` (${drawn} of ${given} texts)`) : null;
}

function paddedRange(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  return [low - room, high + room];
}

/** Return about four round numbers between two numbers. */
function roundTicks(low, high) {
  const rough = (high - low) / 4 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const first = Math.ceil(low / step);
  const last = Math.floor(high / step);
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
}
