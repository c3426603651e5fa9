// What a window onto the map of points shows: zoom, steps from point to point, and the labels that have room.

import { HEIGHT, WIDTH } from "./point_layout.js";

const MOST_ZOOM = 40;
const MOST_LABELS = 24;
// Where points are dense, few labels have room.
const MOST_TRIED = 200;
const LETTER_PX = 6.6;
const LINE_PX = 15;
const SIDES = ["right", "left", "above", "below"];
// Chinese, Japanese and Korean letters, and emoji, are twice as wide.
const WIDE_LETTER = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60]|\p{Extended_Pictographic}/u;

/** The window onto the whole map. `x` and `y` are its left upper corner, and `zoom` is how much larger points stand apart. */
export const WHOLE = { x: 0, y: 0, zoom: 1 };

/** Return the window after a zoom by `factor`, in which the point (x, y) of the map stays where it was. */
export function zoomAt(view, factor, x = view.x + WIDTH / view.zoom / 2, y = view.y + HEIGHT / view.zoom / 2) {
  const zoom = Math.min(MOST_ZOOM, Math.max(1, view.zoom * factor));
  const share = view.zoom / zoom;
  return withinMap({ x: x - (x - view.x) * share, y: y - (y - view.y) * share, zoom });
}

/** Return the window moved by a way on the map. */
export function moveBy(view, dx, dy) {
  return withinMap({ ...view, x: view.x + dx, y: view.y + dy });
}

/** Return the window, moved so far that the point is in it and not at its edge. */
export function moveTo(view, [x, y]) {
  const [width, height] = [WIDTH / view.zoom, HEIGHT / view.zoom];
  const reach = (from, size, at) => (at < from + size / 10 || at > from + (9 * size) / 10 ? at - size / 2 : from);
  return withinMap({ ...view, x: reach(view.x, width, x), y: reach(view.y, height, y) });
}

function withinMap({ x, y, zoom }) {
  const within = (value, size) => Math.min(size - size / zoom, Math.max(0, value));
  return { x: within(x, WIDTH), y: within(y, HEIGHT), zoom };
}

/** Return the place of the nearest point in a direction, given as a unit vector; `null` where there is none. */
export function nextPoint(places, from, [dx, dy]) {
  const [x, y] = places[from];
  let [best, least] = [null, Infinity];
  places.forEach(([otherX, otherY], place) => {
    const along = (otherX - x) * dx + (otherY - y) * dy;
    const across = Math.abs((otherX - x) * dy) + Math.abs((otherY - y) * dx);
    if (place === from || along <= 0 || across > 2 * along) return;
    const far = along + 2 * across;
    if (far < least) [best, least] = [place, far];
  });
  return best;
}

/**
 * Return the labels that have room, `{place, side}`, in the order in which they are wanted; `side` is where the label
 * stands: "right", "left", "above" or "below" its point.
 *
 * `wanted` has places of points, and `texts` the label of each. `pixel` is the size of a pixel of the screen
 * on the map, and `radius` that of a point.
 * No label covers another. The first `must` labels may cover points, as few as can be, the others none.
 */
export function placeLabels(places, wanted, texts, view, pixel, radius, must = 0) {
  const window = { left: view.x, right: view.x + WIDTH / view.zoom, top: view.y, bottom: view.y + HEIGHT / view.zoom };
  const isShown = ([x, y]) => isIn(window, x, y, 0);
  const shown = places.filter(isShown);
  const boxes = [];
  const labels = [];
  const needed = new Set(wanted.slice(0, must));
  for (const place of wanted.filter((each) => isShown(places[each])).slice(0, MOST_TRIED)) {
    if (labels.length >= MOST_LABELS) break;
    const [x, y] = places[place];
    const covered = (box) => shown.filter(([px, py]) => (px !== x || py !== y) && isIn(box, px, py, radius)).length;
    const free = SIDES.map((side) => ({ side, box: boxAt(x, y, widthOf(texts[place]) * pixel, pixel, radius, side) }))
      .filter(({ box }) => isWithin(box, window) && !boxes.some((other) => isOn(box, other)))
      .map((each) => ({ ...each, covers: covered(each.box) }))
      .filter(({ covers }) => !covers || needed.has(place));
    if (!free.length) continue;
    const { side, box } = free.reduce((best, each) => (each.covers < best.covers ? each : best));
    boxes.push(box);
    labels.push({ place, side });
  }
  return labels;
}

/** Return the width of a text in pixels, about. */
function widthOf(text) {
  return [...text].reduce((sum, letter) => sum + (WIDE_LETTER.test(letter) ? 2 : 1), 0) * LETTER_PX;
}

function boxAt(x, y, width, pixel, radius, side) {
  const [gap, line] = [radius + 4 * pixel, LINE_PX * pixel];
  if (side === "above" || side === "below") {
    const top = side === "above" ? y - gap - line : y + gap;
    return { left: x - width / 2, right: x + width / 2, top, bottom: top + line };
  }
  const left = side === "left" ? x - gap - width : x + gap;
  return { left, right: left + width, top: y - line / 2, bottom: y + line / 2 };
}

function isWithin(box, window) {
  return box.left >= window.left && box.right <= window.right && box.top >= window.top && box.bottom <= window.bottom;
}

function isOn(one, other) {
  return one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
}

function isIn(box, x, y, radius) {
  return x > box.left - radius && x < box.right + radius && y > box.top - radius && y < box.bottom + radius;
}
