// Compares embeddings beside the page, which would stand still for seconds over some thousand texts.

import { placePoints } from "./point_layout.js";
import { cosineMatrix, joinByAverage, orderByGroups, principalComponents, spread, topPairs } from "./vectors.js";

const PAIRS = 10;
const POINTS = 2_000;

addEventListener("message", ({ data: { rows, hasThumbnails } }) => {
  const exact = cosineMatrix(rows);
  const joins = joinByAverage(exact);
  const pairs = topPairs(exact, PAIRS);
  // Half the memory, with more digits than are shown.
  const matrix = exact.map((row) => Float32Array.from(row));
  const order = orderByGroups(rows.length, joins);
  const drawn = spread(order, POINTS);
  const places = rows.length > 2 ? placePoints(principalComponents(drawn.map((row) => rows[row])), hasThumbnails) : [];
  postMessage({ matrix, joins, order, pairs, drawn, places }, matrix.map(({ buffer }) => buffer));
});
