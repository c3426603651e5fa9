// The pictures of results: heat map, map of points, bars. Each number that they show is also there as text.

import { fill, h, svg } from "./elements.js";
import { fixed } from "./numbers.js";
import { excerpt } from "./texts.js";
import { principalComponents } from "./vectors.js";

const STEPS = 10;
// A table of all similarities of many texts is slow to draw, and nobody reads it. Saved files have all of them.
const ROWS_DRAWN = 60;
// With more rows, cells are too narrow for numbers; with up to the second number, on small windows only.
const ROWS_WITH_NUMBERS = 8;
const ROWS_WITH_SMALL_NUMBERS = 14;
const POINTS_DRAWN = 200;
const POINTS_WITH_NUMBERS = 20;

/**
 * Return a table of the similarities, the more similar the darker. `labels` name the rows and columns.
 *
 * The number of the cell under the pointer, or that has the focus, is written below; the arrows move the focus.
 */
export function heatMap(title, labels, allRows) {
  const matrix = allRows.slice(0, ROWS_DRAWN).map((row) => row.slice(0, ROWS_DRAWN));
  const caption = title + noteDrawn(labels.length, ROWS_DRAWN);
  const values = matrix.flatMap((row, one) => row.filter((_, other) => one !== other));
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const step = (value) => Math.round((STEPS * (value - least)) / (most - least || 1));
  const hasNumbers = matrix.length <= ROWS_WITH_NUMBERS;
  const readout = h("p", { class: "readout", "aria-live": "polite" }, "Point at a cell, or move with the arrow keys.");
  const cells = matrix.map((row, one) =>
    row.map((value, other) =>
      h(
        "td",
        {
          class: `heat-${one === other ? "self" : step(value)}`,
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
    fill(readout, h("b", {}, fixed(matrix[one][other])), `  ${one + 1}. ${excerpt(labels[one], 90)}`, h("br"), `${other + 1}. ${excerpt(labels[other], 90)}`);
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
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, h("td"), matrix.map((_, place) => h("th", { scope: "col" }, headColumn(place, matrix.length))))),
    h(
      "tbody",
      {},
      cells.map((row, one) =>
        h("tr", {}, h("th", { scope: "row", title: labels[one] }, h("span", {}, `${one + 1}. ${excerpt(labels[one], 80)}`)), row),
      ),
    ),
  );
  return h("div", {}, h("div", { class: "heat-map" }, table), colourScale(least, most), readout);
}

function classOf(rows) {
  if (rows <= ROWS_WITH_NUMBERS) return "heat";
  return rows <= ROWS_WITH_SMALL_NUMBERS ? "heat small few" : "heat small";
}

/** Columns have numbers, of many columns every fifth. */
function headColumn(place, count) {
  return count <= 2 * ROWS_WITH_NUMBERS || (place + 1) % 5 === 0 || !place ? place + 1 : "";
}

function colourScale(least, most) {
  return h(
    "p",
    { class: "scale" },
    h("span", {}, fixed(least, 2)),
    Array.from({ length: STEPS + 1 }, (_, place) => h("span", { class: `heat-${place}`, "aria-hidden": "true" })),
    h("span", {}, fixed(most, 2)),
  );
}

/** Return a drawing of the rows' two principal components, with their numbers; near points are near texts. */
export function pointMap(title, labels, rows, groups = []) {
  const points = principalComponents(rows.slice(0, POINTS_DRAWN));
  const caption = title + noteDrawn(rows.length, POINTS_DRAWN);
  const [width, height, margin] = [560, 360, 36];
  const hasNumbers = points.length <= POINTS_WITH_NUMBERS;
  const radius = hasNumbers ? 11 : 5;
  const scale = scaleOf(points, width - 2 * margin, height - 2 * margin);
  const places = moveApart(points.map(scale), 2 * radius + 1, width - 2 * margin, height - 2 * margin);
  const groupOf = new Map(groups.flatMap((members, group) => members.map((row) => [row, group])));
  return h(
    "figure",
    {},
    svg(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": caption, class: "points" },
      places.map(([x, y], index) =>
        svg(
          "g",
          { class: groupOf.has(index) ? `group-${groupOf.get(index) % 6}` : null },
          svg("title", {}, `${index + 1}. ${excerpt(labels[index], 200)}`),
          svg("circle", { cx: margin + x, cy: margin + y, r: radius }),
          hasNumbers
            ? svg("text", { x: margin + x, y: margin + y, "text-anchor": "middle", "dominant-baseline": "central" }, index + 1)
            : null,
        ),
      ),
    ),
    h("figcaption", {}, caption),
  );
}

/** Move points that cover each other apart, a little at a time; they stay within the drawing. */
export function moveApart(points, distance, width, height, turns = 60) {
  const moved = points.map(([x, y]) => [x, y]);
  for (let turn = 0; turn < turns; turn += 1) {
    let isCovered = false;
    for (let one = 0; one < moved.length; one += 1) {
      for (let other = one + 1; other < moved.length; other += 1) {
        // Points at one place part in a direction that differs from pair to pair.
        const [dx, dy] = [moved[other][0] - moved[one][0] || 1e-3 * Math.cos(other), moved[other][1] - moved[one][1] || 1e-3 * Math.sin(other)];
        const gap = Math.hypot(dx, dy);
        if (gap >= distance) continue;
        isCovered = true;
        const push = (distance - gap) / 2 / gap;
        for (const [place, sign] of [[one, -1], [other, 1]]) {
          moved[place][0] = Math.min(width, Math.max(0, moved[place][0] + sign * dx * push));
          moved[place][1] = Math.min(height, Math.max(0, moved[place][1] + sign * dy * push));
        }
      }
    }
    if (!isCovered) break;
  }
  return moved;
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

/** Return a drawing of points on two axes. `points` are `{x, y, name, mark}`; marked ones stand out. */
export function scatter(caption, xLabel, yLabel, points) {
  const [width, height, left, bottom, edge] = [560, 340, 64, 44, 16];
  const [xs, ys] = [points.map(({ x }) => x), points.map(({ y }) => y)];
  const [x0, x1] = paddedRange(xs);
  const [y0, y1] = paddedRange(ys);
  const toX = (x) => left + ((width - left - edge) * (x - x0)) / (x1 - x0);
  const toY = (y) => height - bottom - ((height - bottom - edge) * (y - y0)) / (y1 - y0);
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

function noteDrawn(given, drawn) {
  return given > drawn ? ` (the first ${drawn} of ${given} texts)` : "";
}

function scaleOf(points, width, height) {
  const range = (place) => {
    const values = points.map((point) => point[place]);
    return [Math.min(...values), Math.max(...values)];
  };
  const [[x0, x1], [y0, y1]] = [range(0), range(1)];
  // One scale for both axes, since the distances are what the map shows.
  const factor = Math.min(width / (x1 - x0 || 1), height / (y1 - y0 || 1));
  return ([x, y]) => [width / 2 + (x - (x0 + x1) / 2) * factor, height / 2 - (y - (y0 + y1) / 2) * factor];
}

function paddedRange(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  return [low - room, high + room];
}

/** Return about four round numbers between two numbers. */
function roundTicks(low, high) {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const first = Math.ceil(low / step);
  const last = Math.floor(high / step);
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
}
