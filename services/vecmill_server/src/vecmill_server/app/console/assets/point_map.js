// The map of texts: near points are near texts. It can be zoomed, read with a keyboard, and shows the neighbours of a text.

import { fill, h, svg } from "./elements.js";
import { noteDrawn } from "./heat_map.js";
import { WHOLE, moveBy, moveTo, nextPoint, placeLabels, zoomAt } from "./map_view.js";
import { COLOURS, shapeOf } from "./pictures.js";
import { HEIGHT, POINTS_WITH_NUMBERS, WIDTH, radiusOf } from "./point_layout.js";
import { excerpt } from "./texts.js";

const ZOOM_STEP = 1.5;
// On a small screen points are drawn larger: of their size on a map of its own size, at least this.
const LEAST_SIZE = 0.75;
const LABEL_LETTERS = 26;
const FRAME = 2;
const MOVES = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
// A pointer that moves less has clicked.
const CLICK_PX = 4;

/** Return the frame of a thumbnail, which stands out behind it. */
function frameOf(x, y, radius) {
  const side = radius + FRAME;
  return svg("rect", { x: x - side, y: y - side, width: 2 * side, height: 2 * side });
}

/** Return where a label stands beside a point, in pixels of the screen. */
function placeBeside(side, radius) {
  if (side === "right") return { x: radius + 4, "text-anchor": "start" };
  if (side === "left") return { x: -radius - 4, "text-anchor": "end" };
  return { y: (side === "above" ? -1 : 1) * (radius + 12), "text-anchor": "middle" };
}

/**
 * Return `{element, showGroups}`: a drawing of the texts at `drawn`, whose `places` are those of `placePoints`.
 *
 * The text of the point under the pointer is written below. A click or Enter chooses a text in `selection`, and the
 * lines to its neighbours, which `neighboursOf` returns, are drawn. `noun` is what a point stands for. `draw` returns
 * an element that is shown on the point of a row.
 */
export function pointMap(title, labels, places, drawn, selection, neighboursOf, { noun = "text", draw = null } = {}) {
  const radius = radiusOf(places.length, Boolean(draw));
  const hasNumbers = !draw && places.length <= POINTS_WITH_NUMBERS;
  const placeOf = new Map(drawn.map((row, place) => [row, place]));
  const names = drawn.map((row) => (hasNumbers ? "" : `${row + 1}. `) + excerpt(labels[row], LABEL_LETTERS));
  const readout = h("p", { class: "readout one-line", "aria-live": "polite" }, `Point at a ${noun}, or move with the arrow keys.`);
  const lines = svg("g", { class: "lines" });
  const texts = svg("g", { class: "names", "aria-hidden": "true" });
  const marks = places.map((_, place) =>
    svg("g", { class: "point", "data-row": drawn[place], role: "button", "aria-pressed": "false", tabindex: place ? "-1" : "0", "aria-label": `${drawn[place] + 1}. ${excerpt(labels[drawn[place]], 160)}` }),
  );
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": title, class: "points" }, lines, marks, texts);
  // The policy of the page lets no drawing load a picture, so thumbnails lie on it; the pointer goes through them.
  const thumbnails = draw ? drawn.map(draw) : [];
  const ground = h("div", { class: draw ? "map-ground of-pictures" : "map-ground" }, drawing, thumbnails);
  let view = WHOLE;
  let groups = [];
  let chosen = [];
  let found = new Set();
  let waiting = 0;

  /** Draw what a change of the window, the groups or the selection changes, once a frame. */
  function redraw() {
    waiting ||= requestAnimationFrame(() => {
      waiting = 0;
      drawing.setAttribute("viewBox", `${view.x} ${view.y} ${WIDTH / view.zoom} ${HEIGHT / view.zoom}`);
      drawing.classList.toggle("zoomed", view.zoom > 1);
      const pixel = pixelOf();
      // A closer look at points separates them, and one at pictures shows more of them too.
      const size = draw ? 1 / Math.sqrt(view.zoom) : Math.max(1 / view.zoom, LEAST_SIZE * pixel);
      places.forEach(([x, y], place) => marks[place].setAttribute("transform", `translate(${x} ${y}) scale(${size})`));
      thumbnails.forEach(({ style }, place) => {
        const [x, y] = places[place];
        const side = (2 * radius * size) / pixel;
        style.width = style.height = `${side}px`;
        style.transform = `translate(${(x - view.x) / pixel - side / 2}px, ${(y - view.y) / pixel - side / 2}px)`;
      });
      const line = (from, to) => svg("line", { x1: places[from][0], y1: places[from][1], x2: places[to][0], y2: places[to][1], "stroke-width": 1.5 * pixel });
      const from = placeOf.get(chosen[0]);
      const ends = from === undefined ? [] : neighboursOf(chosen[0]).map((row) => placeOf.get(row));
      fill(lines, ends.filter((place) => place !== undefined).map((place) => line(from, place)));
      if (draw) return; // pictures name themselves
      const typical = groups.map(([first]) => placeOf.get(first));
      const first = [...chosen.map((row) => placeOf.get(row)), ...ends, ...[...found].map((row) => placeOf.get(row)), ...typical].filter((place) => place !== undefined);
      const wanted = [...new Set([...first, ...places.keys()])];
      fill(
        texts,
        placeLabels(places, wanted, names, view, pixel, radius * size, new Set(first).size).map(({ place, side }) => {
          const [x, y] = places[place];
          return svg("text", { ...placeBeside(side, (radius * size) / pixel), transform: `translate(${x} ${y}) scale(${pixel})`, "dominant-baseline": "central" }, names[place]);
        }),
      );
    });
  }

  /** The size of a pixel of the screen on the map. */
  function pixelOf() {
    return WIDTH / view.zoom / (drawing.clientWidth || WIDTH);
  }

  function show(next) {
    view = next;
    redraw();
  }

  function tell(row) {
    fill(readout, h("b", {}, row + 1), ". ", h("bdi", {}, excerpt(labels[row], 160)));
  }

  function rowAt(event) {
    const row = event.target.closest(".point")?.dataset.row;
    return row === undefined ? null : Number(row);
  }

  function move(event) {
    const row = rowAt(event);
    if (event.key === "+" || event.key === "=") show(zoomAt(view, ZOOM_STEP, ...places[placeOf.get(row)]));
    else if (event.key === "-") show(zoomAt(view, 1 / ZOOM_STEP));
    else if (event.key === "0") show(WHOLE);
    else if (event.key === "Escape") selection.choose(null);
    else if (event.key === "Enter" || event.key === " ") selection.choose(row);
    else if (MOVES[event.key]) {
      const next = nextPoint(places, placeOf.get(row), MOVES[event.key]);
      if (next !== null) focusOn(next);
    } else return;
    event.preventDefault();
  }

  function focusOn(place) {
    drawing.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
    marks[place].setAttribute("tabindex", "0");
    marks[place].focus({ preventScroll: true });
    show(moveTo(view, places[place]));
  }

  const pointAt = (event) => {
    const box = drawing.getBoundingClientRect();
    const pixel = WIDTH / view.zoom / box.width;
    return [view.x + (event.clientX - box.left) * pixel, view.y + (event.clientY - box.top) * pixel];
  };
  let grip = null; // where the pointer took the map
  let hasMoved = false;
  const listeners = {
    mouseover: (event) => rowAt(event) !== null && tell(rowAt(event)),
    focusin: (event) => rowAt(event) !== null && tell(rowAt(event)),
    keydown: move,
    click: (event) => !hasMoved && selection.choose(rowAt(event)),
    dblclick: (event) => show(zoomAt(view, ZOOM_STEP ** 2, ...pointAt(event))),
    pointerdown: (event) => {
      hasMoved = false;
      grip = { x: event.clientX, y: event.clientY, view };
    },
    pointermove: (event) => {
      if (!grip || !event.buttons || grip.view.zoom === 1) return;
      const [dx, dy] = [event.clientX - grip.x, event.clientY - grip.y];
      if (Math.hypot(dx, dy) < CLICK_PX && !hasMoved) return;
      hasMoved = true;
      const pixel = pixelOf();
      show(moveBy(grip.view, -dx * pixel, -dy * pixel));
    },
  };
  for (const [name, listener] of Object.entries(listeners)) drawing.addEventListener(name, listener);
  // Without a key, the wheel scrolls the page.
  const zoomByWheel = (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    show(zoomAt(view, event.deltaY < 0 ? ZOOM_STEP : 1 / ZOOM_STEP, ...pointAt(event)));
  };
  drawing.addEventListener("wheel", zoomByWheel, { passive: false });
  new ResizeObserver(redraw).observe(drawing);

  function showGroups(members) {
    groups = members;
    const groupOf = new Map(groups.flatMap((rows, group) => rows.map((row) => [row, group])));
    marks.forEach((mark, place) => {
      const group = groupOf.get(drawn[place]);
      mark.setAttribute("class", ["point", group === undefined ? null : `group-${group % COLOURS}`].filter(Boolean).join(" "));
      const number = hasNumbers ? svg("text", { "text-anchor": "middle", "dominant-baseline": "central" }, drawn[place] + 1) : null;
      fill(mark, (draw ? frameOf : shapeOf(group))(0, 0, radius), number);
    });
    markSelection();
  }

  function markSelection() {
    marks.forEach((mark, place) => {
      const isChosen = chosen.includes(drawn[place]);
      mark.classList.toggle("chosen", isChosen);
      thumbnails[place]?.classList.toggle("chosen", isChosen);
      mark.setAttribute("aria-pressed", String(isChosen));
      mark.classList.toggle("found", found.has(drawn[place]));
    });
    redraw();
  }

  showGroups([]);
  selection.onChange((rows, searched) => {
    [chosen, found] = [rows, searched];
    markSelection();
  });
  const button = (text, label, next) => h("button", { type: "button", "aria-label": label, onclick: () => show(next()) }, text);
  const buttons = h(
    "div",
    { class: "actions zoom" },
    button("+", "Zoom in", () => zoomAt(view, ZOOM_STEP, ...(places[placeOf.get(chosen[0])] || []))),
    button("\u2212", "Zoom out", () => zoomAt(view, 1 / ZOOM_STEP)),
    button("Whole map", "Show the whole map", () => WHOLE),
  );
  const element = h("figure", {}, buttons, ground, readout, h("figcaption", {}, title, noteDrawn(labels.length, drawn.length)));
  return { element, showGroups };
}
