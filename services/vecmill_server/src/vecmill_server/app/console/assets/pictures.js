// The pictures of results: heat map, map of points, bars. Each number that they show is also there as text.

import { h, svg } from "./elements.js";
import { fixed } from "./numbers.js";
import { excerpt } from "./texts.js";
import { principalComponents } from "./vectors.js";

const STEPS = 10;
// A table of all similarities of many texts is slow to draw, and nobody reads it. Saved files have all of them.
const ROWS_DRAWN = 60;
const POINTS_DRAWN = 200;

/** Return a table of the similarities, the more similar the darker. `labels` name the rows and columns. */
export function heatMap(title, labels, allRows) {
  const matrix = allRows.slice(0, ROWS_DRAWN).map((row) => row.slice(0, ROWS_DRAWN));
  const caption = title + noteDrawn(labels.length, ROWS_DRAWN);
  const values = matrix.flatMap((row, one) => row.filter((_, other) => one !== other));
  const [least, most] = [Math.min(...values, 1), Math.max(...values, -1)];
  const step = (value) => Math.round((STEPS * (value - least)) / (most - least || 1));
  return h(
    "div",
    { class: "wide", role: "region", "aria-label": caption, tabindex: "0" },
    h(
      "table",
      { class: "heat" },
      h("caption", {}, caption),
      h(
        "thead",
        {},
        h("tr", {}, h("td"), matrix.map((_, place) => h("th", { scope: "col" }, place + 1))),
      ),
      h(
        "tbody",
        {},
        matrix.map((row, one) =>
          h(
            "tr",
            {},
            h("th", { scope: "row", title: labels[one] }, `${one + 1}. ${excerpt(labels[one])}`),
            row.map((value, other) =>
              h("td", { class: `heat-${one === other ? "self" : step(value)}`, "data-value": value }, fixed(value, 2)),
            ),
          ),
        ),
      ),
    ),
  );
}

/** Return a drawing of the rows' two principal components, with their numbers; near points are near texts. */
export function pointMap(title, labels, rows) {
  const points = principalComponents(rows.slice(0, POINTS_DRAWN));
  const caption = title + noteDrawn(rows.length, POINTS_DRAWN);
  const width = 560;
  const height = 360;
  const margin = 36;
  const scale = scaleOf(points, width - 2 * margin, height - 2 * margin);
  return h(
    "figure",
    {},
    svg(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": caption, class: "points" },
      points.map((point, index) => {
        const [x, y] = scale(point);
        return svg(
          "g",
          {},
          svg("title", {}, labels[index]),
          svg("circle", { cx: margin + x, cy: margin + y, r: 11 }),
          svg("text", { x: margin + x, y: margin + y, "text-anchor": "middle", "dominant-baseline": "central" }, index + 1),
        );
      }),
    ),
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
