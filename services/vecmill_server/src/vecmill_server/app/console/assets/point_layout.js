// Where the points of a map are drawn. Some hundred of them take a second, so this runs beside the page.

export const WIDTH = 560;
export const HEIGHT = 360;
const MARGIN = 36;
export const POINTS_WITH_NUMBERS = 20;
const POINTS_OF_SOME_SIZE = 200;

// Thumbnails cover at most this share of the map.
const THUMBNAIL_SHARE = 0.3;
const THUMBNAIL_RADII = [5, 24];

/** Return the radius of the points of a map that has so many, or half the side of the thumbnails. */
export function radiusOf(count, hasThumbnails = false) {
  if (hasThumbnails) {
    const [least, most] = THUMBNAIL_RADII;
    return Math.min(most, Math.max(least, Math.floor(Math.sqrt((THUMBNAIL_SHARE * WIDTH * HEIGHT) / count) / 2)));
  }
  if (count <= POINTS_WITH_NUMBERS) return 11;
  return count <= POINTS_OF_SOME_SIZE ? 5 : 3;
}

/** Return the places of points in the drawing, none of which covers another where there is room. */
export function placePoints(points, hasThumbnails = false) {
  const [width, height] = [WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN];
  // The corners of thumbnails are farther apart than their sides.
  const distance = 2 * radiusOf(points.length, hasThumbnails) * (hasThumbnails ? 1.25 : 1) + 1;
  const places = moveApart(points.map(scaleOf(points, width, height)), distance, width, height);
  return places.map(([x, y]) => [MARGIN + x, MARGIN + y]);
}

/** Move points that cover each other apart, a little at a time; they stay within the drawing. */
export function moveApart(points, distance, width, height, turns = 60) {
  const moved = points.map(([x, y]) => [x, y]);
  for (let turn = 0; turn < turns; turn += 1) {
    let isCovered = false;
    for (const [one, other] of nearPairs(moved, distance)) {
      // Points at one place part in a direction that differs from pair to pair.
      const [dx, dy] = [moved[other][0] - moved[one][0] || 1e-3 * Math.cos(other), moved[other][1] - moved[one][1] || 1e-3 * Math.sin(other)];
      const gap = Math.sqrt(dx * dx + dy * dy);
      if (gap >= distance) continue;
      isCovered = true;
      const push = (distance - gap) / 2 / gap;
      for (const [place, sign] of [[one, -1], [other, 1]]) {
        moved[place][0] = Math.min(width, Math.max(0, moved[place][0] + sign * dx * push));
        moved[place][1] = Math.min(height, Math.max(0, moved[place][1] + sign * dy * push));
      }
    }
    if (!isCovered) break;
  }
  return moved;
}

/** Return the pairs of points that may be nearer than `distance`: those in the same square of this size, or in squares that touch. */
function nearPairs(points, distance) {
  const squares = new Map();
  const pairs = [];
  points.forEach(([x, y], place) => {
    const [column, row] = [Math.floor(x / distance), Math.floor(y / distance)];
    for (let dx = -1; dx <= 1; dx += 1) {
      for (let dy = -1; dy <= 1; dy += 1) for (const other of squares.get(`${column + dx} ${row + dy}`) || []) pairs.push([other, place]);
    }
    const key = `${column} ${row}`;
    if (!squares.has(key)) squares.set(key, []);
    squares.get(key).push(place);
  });
  return pairs;
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
