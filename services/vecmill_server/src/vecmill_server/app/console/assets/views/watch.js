// The view "Watch": the load of the server over the last minutes, from its own metrics.

import { fill, h, table } from "../elements.js";
import { explainLimit, measureLoad, measureRoutes } from "../load.js";
import { bytes, percent, short, time } from "../numbers.js";
import { isRestarted, parseMetrics } from "../prometheus.js";
import { send } from "../server.js";

const EVERY_MS = 2_000;
const KEPT = 300; // ten minutes
const HEIGHT = 170;

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
      ["half", (load) => load.latencies[0]],
      ["95%", (load) => load.latencies[1]],
      ["99%", (load) => load.latencies[2]],
    ],
    write: time,
  },
  { title: "Texts per second", series: [["texts", (load) => load.texts]], write: short },
  { title: "Time to compute the queue", series: [["queue", (load) => load.queueSeconds]], write: time },
  { title: "Tokens in an engine call", series: [["tokens", (load) => load.callTokens]], write: short },
  { title: "Padding of engine calls", series: [["padding", (load) => load.padding]], write: percent },
  {
    title: "Engine calls at a time, and cores in use",
    series: [
      ["calls", (load) => load.running],
      ["cores", (load) => load.cores],
    ],
    write: short,
  },
  { title: "Memory of the process", series: [["memory", (load) => load.memory]], write: bytes },
];

export async function openWatch() {
  const Plot = await loadPlot();
  const sentence = h("p", { class: "limit", role: "status" }, "The first figures come in two seconds.");
  const panels = h("div", { class: "charts" });
  const routes = h("div", { class: "wide", role: "region", "aria-label": "Requests by route", tabindex: "0" });
  const element = h(
    "section",
    {},
    h("h2", {}, "Watch"),
    sentence,
    panels,
    h("p", { class: "note" }, "The last ten minutes while this page is open, a point every two seconds."),
    routes,
  );
  const charts = CHARTS.map((chart) => makeChart(chart, panels, Plot));
  const times = [];
  let first = null;
  let before = null;
  let isOpen = true;
  let spoken = "";

  async function look() {
    if (!isOpen) return;
    if (!document.hidden) {
      try {
        const { body } = await send("metrics");
        const reading = { at: performance.now(), metrics: parseMetrics(body) };
        if (!first || isRestarted(before.metrics, reading.metrics)) first = reading;
        if (before) show(measureLoad(before.metrics, reading.metrics, (reading.at - before.at) / 1000));
        fill(routes, showRoutes(measureRoutes(first.metrics, reading.metrics)));
        before = reading;
      } catch (error) {
        first = before = null;
        say(error.message);
        if (error.status === 401) return; // nobody gave a key
      }
    }
    setTimeout(look, EVERY_MS);
  }

  function say(text) {
    if (text !== spoken) fill(sentence, (spoken = text)); // it is read aloud
  }

  function show(load) {
    say(explainLimit(load));
    push(times, Date.now() / 1000);
    for (const chart of charts) chart.add(times, load);
  }

  const resized = new ResizeObserver(() => charts.forEach((chart) => chart.resize()));
  resized.observe(panels);
  const theme = matchMedia("(prefers-color-scheme: dark)");
  const redraw = () => charts.forEach((chart) => chart.rebuild());
  theme.addEventListener("change", redraw);
  look();
  return {
    title: "Watch",
    element,
    close() {
      isOpen = false;
      resized.disconnect();
      theme.removeEventListener("change", redraw);
      charts.forEach((chart) => chart.destroy());
    },
  };
}

/** Return a table of the requests since the view was opened. */
function showRoutes(routes) {
  if (!routes.length) return null;
  return table(
    "Requests by route since this page was opened",
    ["Route", "Requests", "By status", "Half within", "99% within"],
    routes.map(({ route, requests, statuses, latencies }) => [
      route === "none" ? "unknown path" : route,
      requests,
      [...statuses].map(([status, each]) => `${status}: ${each}`).join(", "),
      ...latencies.map((latency) => (latency === null ? "–" : time(latency))),
    ]),
  );
}

/** Return a chart in a panel of its own. Its last values are written above it, for those who do not see the lines. */
function makeChart({ title, series, write }, panels, Plot) {
  const values = series.map(() => []);
  const latest = h("p", { class: "latest" });
  const place = h("div", { "aria-hidden": "true" });
  panels.append(h("figure", {}, h("figcaption", {}, title), latest, place));
  let plot = null;
  let times = [];

  function build() {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink");
    const axis = { stroke: ink, grid: { stroke: style.getPropertyValue("--line"), width: 1 }, ticks: { show: false } };
    return new Plot(
      {
        width: place.clientWidth || 300,
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        scales: { y: { range: (_, __, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [{ ...axis, space: 80, values: (_, ticks) => ticks.map(writeClock) }, { ...axis, size: 64, values: (_, ticks) => ticks.map(write) }],
        series: [
          {},
          ...series.map(([name], index) => ({
            label: name,
            stroke: style.getPropertyValue(`--series-${index}`),
            width: 2,
            dash: [[], [6, 4], [2, 3]][index],
            spanGaps: false,
            points: { show: false },
          })),
        ],
      },
      [times, ...values],
      place,
    );
  }

  return {
    add(allTimes, load) {
      times = allTimes;
      series.forEach(([, read], index) => push(values[index], read(load) ?? null));
      fill(
        latest,
        series.map(([name], index) => {
          const value = values[index].at(-1);
          return h("span", { class: `key-${index}` }, `${name} ${value === null ? "–" : write(value)}`);
        }),
      );
      plot ??= build();
      plot.setData([times, ...values]);
    },
    resize() {
      plot?.setSize({ width: place.clientWidth, height: HEIGHT });
    },
    rebuild() {
      plot?.destroy();
      plot = times.length ? build() : null;
    },
    destroy() {
      plot?.destroy();
    },
  };
}

function writeClock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en", { hourCycle: "h23" });
}

function push(values, value) {
  values.push(value);
  if (values.length > KEPT) values.shift();
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
