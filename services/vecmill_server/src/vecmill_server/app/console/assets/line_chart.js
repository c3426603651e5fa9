// A chart of lines over time, drawn by uPlot.

import { fill, h, svg } from "./elements.js";

const HEIGHT = 170;
// Charts whose lines share a point in time.
const SYNC = "watch";
const DASHES = [[], [6, 4], [2, 3]];

/**
 * Return a chart in a panel of its own. The values above it are the last ones, or those under the pointer.
 *
 * `series` are pairs of a name and a function that returns the value of a point, `null` for none. A series
 * without any value is not in the legend.
 */
export function makeChart({ title, series, write }, panels, Plot) {
  const legend = h("p", { class: "latest" });
  const place = h("div", { "aria-hidden": "true" });
  const caption = h("figcaption", {}, title);
  panels.append(h("figure", {}, caption, legend, place));
  let plot = null;
  let names = series.map(([name]) => name);
  let data = [[], ...series.map(() => [])];

  function build() {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink");
    const axis = { stroke: ink, grid: { stroke: style.getPropertyValue("--line"), width: 1 }, ticks: { show: false } };
    return new Plot(
      {
        width: place.clientWidth || 300,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false }, sync: { key: SYNC } },
        hooks: { setCursor: [(shown) => tell(shown.cursor.idx)] },
        scales: { y: { range: (_, __, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [{ ...axis, size: 30, space: 80, values: (_, ticks) => ticks.map(writeClock) }, { ...axis, size: 64, values: (_, ticks) => ticks.map(write) }],
        series: [
          {},
          ...series.map((_, index) => ({
            stroke: style.getPropertyValue(`--series-${index}`),
            width: 2,
            dash: DASHES[index],
            spanGaps: false,
            points: { show: false },
          })),
        ],
      },
      data,
      place,
    );
  }

  /** Write the values of a point into the legend; without one, the last. */
  function tell(index) {
    const at = index ?? data[0].length - 1;
    const shown = names.map((name, number) => [name, number]).filter(([name]) => name !== null);
    fill(
      legend,
      shown.map(([name, number]) => {
        const value = data[number + 1][at] ?? null;
        return h("span", { class: `key-${number}` }, dashSample(number), `${name} ${value === null ? "–" : write(value)}`);
      }),
      index === null || index === undefined ? null : h("time", {}, writeClock(data[0][index])),
    );
  }

  return {
    /** Show points at these times. `written` is what the title says of whom the values are. */
    show(times, points, written = title) {
      data = [times, ...series.map(([, read]) => points.map((point) => (point && read(point)) ?? null))];
      const last = points.findLast((point) => point);
      names = series.map(([name]) => (typeof name === "function" ? last && name(last) : name) ?? null);
      fill(caption, written);
      if (plot) plot.setData(data);
      else plot = build();
      tell(plot.cursor.idx);
    },
    resize() {
      plot?.setSize({ width: place.clientWidth, height: HEIGHT });
    },
    rebuild() {
      plot?.destroy();
      plot = data[0].length ? build() : null;
    },
    destroy() {
      plot?.destroy();
    },
  };
}

export function writeClock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en", { hourCycle: "h23" });
}

/** Return uPlot, which charts of lines alone need. */
export function loadPlot() {
  if (globalThis.uPlot) return Promise.resolve(globalThis.uPlot);
  return new Promise((resolve, reject) => {
    const script = h("script", { src: new URL("./uplot/uPlot.iife.min.js", import.meta.url).href });
    script.onload = () => resolve(globalThis.uPlot);
    script.onerror = () => reject(new Error("The charts cannot be loaded."));
    document.head.append(script);
  });
}

/** Return a piece of a line as the chart draws it. */
function dashSample(number) {
  const line = svg("path", { d: "M0 4H22", "stroke-dasharray": DASHES[number].join(" ") || null });
  return svg("svg", { viewBox: "0 0 22 8", class: "dash", "aria-hidden": "true" }, line);
}
