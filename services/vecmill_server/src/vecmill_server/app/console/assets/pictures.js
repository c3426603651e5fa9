// Small pictures of results: marks of groups, bars, points on two axes. Each number that they show is also there as text.

import { h, svg } from "./elements.js";

// Groups are told apart by colours, `--group-0` and so on in results.css, and after those by shapes.
export const COLOURS = 6;
const SHAPES = [
  (x, y, r) => svg("circle", { cx: x, cy: y, r }),
  (x, y, r) => svg("rect", { x: x - 0.89 * r, y: y - 0.89 * r, width: 1.78 * r, height: 1.78 * r }),
  (x, y, r) => svg("path", { d: `M${x} ${y - 1.2 * r}L${x + 1.15 * r} ${y + 0.8 * r}H${x - 1.15 * r}Z` }),
  (x, y, r) => svg("path", { d: `M${x} ${y - 1.25 * r}L${x + 1.25 * r} ${y}L${x} ${y + 1.25 * r}L${x - 1.25 * r} ${y}Z` }),
];

/** Return a mark of a group: its colour and its shape, for lists. */
export function groupMark(group) {
  return svg("svg", { viewBox: "0 0 16 16", class: `mark group-${group % COLOURS}`, "aria-hidden": "true" }, shapeOf(group)(8, 8, 6));
}

/** Return the shape of a group around a point. */
export function shapeOf(group) {
  return SHAPES[Math.floor((group ?? 0) / COLOURS) % SHAPES.length];
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
