// The view "Watch": the load of the server over the last minutes, from its own metrics.

import { fill, h, scrolled, table } from "../elements.js";
import { loadPlot, makeChart, writeClock } from "../line_chart.js";
import { explainLimit, explainParts, listServed, measureLoad, measureRoutes } from "../load.js";
import { bytes, hundredths, percent, short, time } from "../numbers.js";
import { isRestarted, parseMetrics, readHistory } from "../prometheus.js";
import { send } from "../server.js";

const EVERY_MS = 2_000;
const KEPT_S = 600;
// What the server kept of ten minutes, and ten minutes with a point every two seconds.
const KEPT_POINTS = 450;
// Two readings that are further apart, such as those around a time without requests, have no line between them.
const GAP_S = 15;
// Every figure is of this time, or a little more: of fewer requests, a percentile says little.
const WINDOW_S = 10;
const ALL = "";

// Figures of a point: of the whole server, of the chosen model (of the whole server without one), and its name.
const ofServer = (read) => ({ server }) => read(server);
const ofChosen = (read) => ({ chosen }) => read(chosen);
const ofModel = (read) => ({ name, chosen }) => (name === ALL ? null : read(chosen));
const modelName = ({ name }) => (name === ALL ? null : name);
const allName = (word) => ({ name }) => (name === ALL ? word : "all models");

// The charts: a title, the series (name and value of a point), and how a value is written. With a model chosen,
// the title of a chart that `isOfModel` says so, and that of the others that they are of the whole server.
const CHARTS = [
  {
    title: "Requests per second",
    series: [
      ["answered", ofServer((load) => load.answered)],
      ["refused", ofServer((load) => load.refused)],
      ["failed", ofServer((load) => load.failed)],
    ],
    write: short,
  },
  {
    title: "Time of a request",
    series: [
      ["p50", ofServer((load) => load.latencies[0])],
      ["p95", ofServer((load) => load.latencies[1])],
      ["p99", ofServer((load) => load.latencies[2])],
    ],
    write: time,
  },
  {
    title: "Texts per second",
    series: [
      [allName("texts"), ofServer((load) => load.texts)],
      [modelName, ofModel((load) => load.texts)],
    ],
    write: short,
  },
  {
    title: "How long waiting texts take",
    series: [
      ["estimated", ofServer((load) => load.queueSeconds)],
      [(point) => modelName(point) && `of it ${point.name}`, ofModel((load) => load.queueSeconds)],
      ["measured, mean", ofServer((load) => load.meanWait)],
    ],
    write: time,
  },
  {
    title: "Time that texts waited for the engine",
    series: [
      ["p50", ofChosen((load) => load.waits[0])],
      ["p99", ofChosen((load) => load.waits[1])],
    ],
    write: time,
    isOfModel: true,
  },
  {
    title: "Engine calls at a time, and cores in use",
    series: [
      [allName("calls"), ofServer((load) => load.running)],
      [modelName, ofModel((load) => load.running)],
      ["cores", ofServer((load) => load.cores)],
    ],
    write: hundredths,
  },
  { title: "Tokens in an engine call", series: [["tokens", ofChosen((load) => load.callTokens)]], write: short, isOfModel: true },
  { title: "Padding in the attention of engine calls", series: [["padding", ofChosen((load) => load.padding)]], write: percent, isOfModel: true },
  { title: "Memory of the process", series: [["memory", ofServer((load) => load.memory)]], write: bytes },
];

// What matters most, large: a title, the value, and what stands below it.
const TILES = [
  ["Texts per second", (load) => short(load.texts), (load) => `${short(load.tokens)} tokens per second`],
  ["p99 of a request", (load) => time(load.latencies[2]), (load) => `half within ${time(load.latencies[0])}`],
  ["Waiting texts take", (load) => time(load.queueSeconds), (load) => `measured ${time(load.meanWait)} on average`],
  ["Memory", (load) => bytes(load.memory), (load) => (load.memoryLimit ? `of ${bytes(load.memoryLimit)}` : "of the process")],
];

export async function openWatch() {
  const Plot = await loadPlot();
  const sentence = h("p", { class: "limit", role: "status" }, "The first figures come in two seconds.");
  const parts = h("p", { class: "parts" });
  const tiles = h("dl", { class: "tiles", "aria-label": "The whole server" });
  const panels = h("div", { class: "charts" });
  const routes = scrolled("Requests by route");
  const filter = h("select", { name: "model", onchange: () => redraw() });
  const element = h(
    "section",
    {},
    h("h2", {}, "Watch"),
    sentence,
    parts,
    tiles,
    h("label", { class: "inline" }, "Texts, queue and engine calls of", filter),
    panels,
    h(
      "p",
      { class: "note" },
      `Each figure is of the ${WINDOW_S} seconds before it. `,
      "The last ten minutes: what the server kept, a point every five seconds with requests, and then a point every two seconds while this page is open. ",
      "Linear layers of the engines onnx and torch compute no padding; their attention does.",
    ),
  );
  const charts = CHARTS.map((chart) => ({ ...chart, ...makeChart(chart, panels, Plot) }));
  panels.append(routes);
  let points = []; // {at, loads: Map(model -> load)}
  let recent = []; // the readings of the last seconds
  let first = null;
  let isOpen = true;
  let spoken = "";

  /** Take a reading, whose time is in seconds, into the charts. */
  function add(reading) {
    const before = recent.at(-1);
    const isNew = !before || isRestarted(before.metrics, reading.metrics);
    if (isNew) first = reading;
    // What was counted in between says nothing about any moment of it.
    if (isNew || reading.at - before.at > GAP_S) {
      recent = [];
      points.push({ at: reading.at, loads: new Map() });
    } else {
      const from = recent[0];
      const names = [null, ...listServed(reading.metrics)];
      const readings = [...recent.slice(1), reading].map(({ metrics }) => metrics);
      const measure = (name) => measureLoad(from.metrics, reading.metrics, reading.at - from.at, name, readings);
      points.push({ at: reading.at, loads: new Map(names.map((name) => [name ?? ALL, measure(name)])) });
    }
    points = points.filter(({ at }) => at > reading.at - KEPT_S).slice(-KEPT_POINTS);
    recent.push(reading);
    while (recent.length > 2 && recent[1].at <= reading.at + EVERY_MS / 1000 - WINDOW_S) recent.shift();
  }

  async function look() {
    if (!isOpen) return;
    if (!document.hidden) {
      try {
        if (!recent.length || Date.now() / 1000 - recent.at(-1).at > GAP_S) await readPast();
        const { body } = await send("metrics");
        add({ at: Date.now() / 1000, metrics: parseMetrics(body) });
        redraw();
        fill(routes, showRoutes(measureRoutes(first.metrics, recent.at(-1).metrics), first.at));
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
    const since = recent.at(-1)?.at ?? -Infinity;
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
    const { loads } = points.at(-1);
    if (loads.size) tell(loads);
    const name = filter.value;
    const found = points.map(({ loads: each }) => each.has(name) && { name, server: each.get(ALL), chosen: each.get(name) });
    const times = points.map(({ at }) => at);
    for (const chart of charts) chart.show(times, found, name === ALL ? chart.title : `${chart.title}, ${chart.isOfModel ? name : "whole server"}`);
  }

  /** Write the sentence, the parts of the models and the tiles, which are of the whole server whatever is chosen. */
  function tell(loads) {
    const server = loads.get(ALL);
    say(explainLimit(server));
    fill(parts, explainParts(server, [...loads].filter(([name]) => name !== ALL), filter.value));
    fill(
      tiles,
      TILES.map(([title, read, below]) => h("div", {}, h("dt", {}, title), h("dd", {}, h("strong", {}, read(server)), h("span", {}, below(server))))),
    );
  }

  function offerModels() {
    const names = [ALL, ...listServed(recent.at(-1).metrics)];
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
