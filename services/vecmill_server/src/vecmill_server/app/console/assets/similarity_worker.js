// Compares embeddings beside the page, which would stand still for seconds over some thousand texts.

import { cosineMatrix, joinByAverage, orderByGroups, principalComponents, topPairs } from "./vectors.js";

const PAIRS = 10;
const POINTS = 1_000;

addEventListener("message", ({ data: { rows } }) => {
  const exact = cosineMatrix(rows);
  const joins = joinByAverage(exact);
  const pairs = topPairs(exact, PAIRS);
  // Half the memory, with more digits than are shown.
  const matrix = exact.map((row) => Float32Array.from(row));
  const order = orderByGroups(rows.length, joins);
  const drawn = spread(order, POINTS);
  const points = rows.length > 2 ? principalComponents(drawn.map((row) => rows[row])) : [];
  postMessage({ matrix, joins, order, pairs, drawn, points }, matrix.map(({ buffer }) => buffer));
});

/** Return at most `most` of the values, evenly from the first to the last. */
function spread(values, most) {
  if (values.length <= most) return values;
  return Array.from({ length: most }, (_, place) => values[Math.floor((place * values.length) / most)]);
}
