// The view "Watch": the load of the server over the last minutes, from its own metrics.

import { fill, h, scrolled, svg, table } from "../elements.js";
import { explainLimit, listServed, measureLoad, measureRoutes } from "../load.js";
import { bytes, hundredths, percent, short, time } from "../numbers.js";
import { isRestarted, parseMetrics, readHistory } from "../prometheus.js";
import { send } from "../server.js";

const EVERY_MS = 2_000;
const KEPT_S = 600;
// What the server kept of ten minutes, and ten minutes with a point every two seconds.
const KEPT_POINTS = 450;
// Two readings that are further apart, such as those around a time without requests, have no line between them.
const GAP_S = 15;
const HEIGHT = 170;
const ALL = "";
// Charts whose lines share a point in time.
const SYNC = "watch";

// The charts: a title, the series (name and value of a load), and how a value is written.
const CHARTS = [
  {
    title: "Requests per second",
    series: [
      ["answered", (load) => load.answered],
      ["refused", (load) => load.refused],
      ["failed", (load) => load.failed],
    ],
    write: short,
  },
  {
    title: "Time of a request",
    series: [
      ["p50", (load) => load.latencies[0]],
      ["p95", (load) => load.latencies[1]],
      ["p99", (load) => load.latencies[2]],
    ],
    write: time,
  },
  { title: "Texts per second", series: [["texts", (load) => load.texts]], write: short },
  { title: "Time to compute the queue", series: [["queue", (load) => load.queueSeconds]], write: time },
  {
    title: "Time that texts waited for the engine",
    series: [
      ["p50", (load) => load.waits[0]],
      ["p99", (load) => load.waits[1]],
    ],
    write: time,
  },
  { title: "Tokens in an engine call", series: [["tokens", (load) => load.callTokens]], write: short },
  { title: "Padding in the attention of engine calls", series: [["padding", (load) => load.padding]], write: percent },
  {
    title: "Engine calls at a time, and cores in use",
    series: [
      ["calls", (load) => load.running],
      ["cores", (load) => load.cores],
    ],
    write: hundredths,
  },
  { title: "Memory of the process", series: [["memory", (load) => load.memory]], write: bytes },
];

export async function openWatch() {
  const Plot = await loadPlot();
  const sentence = h("p", { class: "limit", role: "status" }, "The first figures come in two seconds.");
  const panels = h("div", { class: "charts" });
  const routes = scrolled("Requests by route");
  const filter = h("select", { name: "model", onchange: () => redraw() });
  const element = h(
    "section",
    {},
    h("h2", {}, "Watch"),
    sentence,
    h("label", { class: "inline" }, "Texts, queue and engine calls of", filter),
    panels,
    h(
      "p",
      { class: "note" },
      "The last ten minutes: what the server kept, a point every five seconds with requests, and then a point every two seconds while this page is open. ",
      "Linear layers of the engines onnx and torch compute no padding; their attention does.",
    ),
    routes,
  );
  const charts = CHARTS.map((chart) => makeChart(chart, panels, Plot));
  let points = []; // {at, loads: Map(model -> load)}
  let first = null;
  let before = null;
  let isOpen = true;
  let spoken = "";

  /** Take a reading, whose time is in seconds, into the charts. */
  function add(reading) {
    const isNew = !before || isRestarted(before.metrics, reading.metrics);
    if (isNew) first = reading;
    // What was counted in between says nothing about any moment of it.
    if (isNew || reading.at - before.at > GAP_S) points.push({ at: reading.at, loads: new Map() });
    else {
      const names = [null, ...listServed(reading.metrics)];
      const measure = (name) => measureLoad(before.metrics, reading.metrics, reading.at - before.at, name);
      points.push({ at: reading.at, loads: new Map(names.map((name) => [name ?? ALL, measure(name)])) });
    }
    points = points.filter(({ at }) => at > reading.at - KEPT_S).slice(-KEPT_POINTS);
    before = reading;
  }

  async function look() {
    if (!isOpen) return;
    if (!document.hidden) {
      try {
        if (!before || Date.now() / 1000 - before.at > GAP_S) await readPast();
        const { body } = await send("metrics");
        add({ at: Date.now() / 1000, metrics: parseMetrics(body) });
        redraw();
        fill(routes, showRoutes(measureRoutes(first.metrics, before.metrics), first.at));
      } catch (error) {
        say(error.message, true); // what was drawn stays
        if (error.status === 401) return; // nobody gave a key
      }
    }
    setTimeout(look, EVERY_MS);
  }

  /** Take what the server kept of the time in which this page has read nothing. */
  async function readPast() {
    const { body } = await send("console/history.json");
    const now = Date.now() / 1000;
    const since = before?.at ?? -Infinity;
    for (const { ageS, metrics } of readHistory(body)) {
      const at = now - ageS;
      if (ageS < KEPT_S && at > since) add({ at, metrics });
    }
  }

  function say(text, isProblem = false) {
    sentence.classList.toggle("problem", isProblem);
    if (text !== spoken) fill(sentence, (spoken = text)); // it is read aloud
  }

  function redraw() {
    offerModels();
    if (!points.some(({ loads }) => loads.size)) return;
    const last = points.at(-1).loads;
    if (last.size) say(explainLimit(last.get(filter.value) || last.get(ALL)));
    const times = points.map(({ at }) => at);
    const loads = points.map(({ loads: each }) => each.get(filter.value) || null);
    for (const chart of charts) chart.show(times, loads);
  }

  function offerModels() {
    const names = [ALL, ...listServed(before.metrics)];
    if (names.length === filter.options.length && names.every((name, place) => filter.options[place].value === name)) return;
    const chosen = filter.value;
    fill(filter, names.map((name) => h("option", { value: name, selected: name === chosen }, name || "all models")));
  }

  const resized = new ResizeObserver(() => charts.forEach((chart) => chart.resize()));
  resized.observe(panels);
  const theme = matchMedia("(prefers-color-scheme: dark)");
  const rebuild = () => charts.forEach((chart) => chart.rebuild());
  theme.addEventListener("change", rebuild);
  look();
  return {
    title: "Watch",
    element,
    close() {
      isOpen = false;
      resized.disconnect();
      theme.removeEventListener("change", rebuild);
      charts.forEach((chart) => chart.destroy());
    },
  };
}

/** Return a table of the requests since a time. */
function showRoutes(routes, since) {
  if (!routes.length) return null;
  return table(
    `Requests by route since ${writeClock(since)}`,
    ["Route", "Requests", "By status", "p50", "p99"],
    routes.map(({ route, requests, statuses, latencies }) => [
      route === "none" ? "unknown path" : route,
      requests,
      [...statuses].map(([status, each]) => `${status}: ${each}`).join(", "),
      ...latencies.map((latency) => (latency === null ? "–" : time(latency))),
    ]),
  );
}

const DASHES = [[], [6, 4], [2, 3]];

/** Return a chart in a panel of its own. The values above it are the last ones, or those under the pointer. */
function makeChart({ title, series, write }, panels, Plot) {
  const legend = h("p", { class: "latest" });
  const place = h("div", { "aria-hidden": "true" });
  panels.append(h("figure", {}, h("figcaption", {}, title), legend, place));
  let plot = null;
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
          ...series.map(([name], index) => ({
            label: name,
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
    fill(
      legend,
      series.map(([name], number) => {
        const value = data[number + 1][at] ?? null;
        return h("span", { class: `key-${number}` }, dashSample(number), `${name} ${value === null ? "–" : write(value)}`);
      }),
      index === null || index === undefined ? null : h("time", {}, writeClock(data[0][index])),
    );
  }

  return {
    show(times, loads) {
      data = [times, ...series.map(([, read]) => loads.map((load) => (load && read(load)) ?? null))];
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

/** Return a piece of a line as the chart draws it. */
function dashSample(number) {
  const line = svg("path", { d: "M0 4H22", "stroke-dasharray": DASHES[number].join(" ") || null });
  return svg("svg", { viewBox: "0 0 22 8", class: "dash", "aria-hidden": "true" }, line);
}

function writeClock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en", { hourCycle: "h23" });
}

/** Return uPlot, which only this view needs. */
function loadPlot() {
  if (globalThis.uPlot) return Promise.resolve(globalThis.uPlot);
  return new Promise((resolve, reject) => {
    const script = h("script", { src: new URL("../uplot/uPlot.iife.min.js", import.meta.url).href });
    script.onload = () => resolve(globalThis.uPlot);
    script.onerror = () => reject(new Error("The charts cannot be loaded."));
    document.head.append(script);
  });
}
