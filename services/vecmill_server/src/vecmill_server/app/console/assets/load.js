// What the server does now, from two readings of its metrics, and what limits it.

import { hundredths, percent, short, time } from "./numbers.js";
import { increase, quantile, sum, sumBy } from "./prometheus.js";

const REQUESTS = "vecmill_http_requests_total";
const DURATIONS = "vecmill_http_request_duration_seconds";
const WAITS = "vecmill_queue_wait_seconds";
// Routes of probes and of this page.
const OWN = new Set([
  ...["livez", "readyz", "health", "metrics", "alert", "alerts", "docs", "docs_asset", "openapi"],
  ...["console_page", "console_models", "console_state", "console_history", "console_asset"],
]);
// Routes that compute nothing. The page asks for them too.
const NO_WORK = new Set([...OWN, "models", "files", "batches"]);
const BUSY = 0.85;
// So many models are named with their parts.
const SHOWN_PARTS = 4;
// A call that gets less of a core than this shares it with others.
const OWN_CORE = 0.6;

/** Return the names of the served models. */
export function listServed(metrics) {
  return [...sumBy(metrics, "vecmill_lane_state", "model").keys()].filter(Boolean).sort();
}

/**
 * Return the figures of the time between two readings, `seconds` apart; with `model`, the engine's of that model only.
 *
 * Requests, cores and memory are always those of the whole server. What waits is the mean of the `readings`, so that
 * it is of the same time as what texts have waited.
 */
export function measureLoad(before, after, seconds, model = null, readings = [after]) {
  const isWork = ({ route }) => !NO_WORK.has(route);
  const isWanted = (labels) => model === null || !("model" in labels) || labels.model === model;
  const statuses = countStatuses(before, after, isWork);
  for (const [status, requests] of statuses) statuses.set(status, requests / seconds);
  const rate = (name) => increase(before, after, name, isWanted) / seconds;
  const calls = rate("vecmill_inference_seconds_count");
  const computed = rate("vecmill_computed_tokens_total");
  const tokens = rate("vecmill_tokens_total");
  // Models share the cores, so no more calls run than the model with the most lanes could have.
  const lanes = Math.max(0, ...[...sumBy(after, "vecmill_lane_state", "model")].map(([name, each]) => (isWanted({ model: name }) ? each : 0)));
  const waited = rate(`${WAITS}_count`);
  return {
    statuses,
    answered: shareOf(statuses, (status) => status < 400),
    refused: shareOf(statuses, (status) => status === 429 || status === 503),
    failed: shareOf(statuses, (status) => status >= 400 && status !== 429 && status !== 503),
    latencies: [0.5, 0.95, 0.99].map((share) => quantile(before, after, DURATIONS, share, isWork)),
    texts: rate("vecmill_batch_texts_sum"),
    tokens,
    callTokens: calls ? tokens / calls : null,
    padding: computed ? 1 - tokens / computed : null,
    waits: [0.5, 0.99].map((share) => quantile(before, after, WAITS, share, isWanted)),
    meanWait: waited ? rate(`${WAITS}_sum`) / waited : null,
    // A call counts when it ends, with all of its time: in a few seconds more may end than ran meanwhile.
    running: Math.min(rate("vecmill_inference_seconds_sum"), lanes || Infinity),
    lanes,
    // One time for all models, which share the cores: the sum of their parts. Processes compute side by side.
    queueSeconds: mean(readings, (each) => total(values(each, "vecmill_queue_seconds", isWanted)) / countProcesses(each)),
    queueTexts: mean(readings, (each) => total(values(each, "vecmill_queue_texts", isWanted))),
    rejections: [...sumBy(after, "vecmill_rejections_total", "reason").keys()]
      .map((reason) => [reason, increase(before, after, "vecmill_rejections_total", (labels) => labels.reason === reason) / seconds])
      .filter(([, each]) => each > 0),
    cores: rate("process_cpu_seconds_total"),
    isOnProcessor: (after.get("vecmill_model_info") || []).every(({ labels }) => !isWanted(labels) || labels.device === "cpu"),
    memory: sum(after, "process_resident_memory_bytes"),
    memoryLimit: Math.max(0, ...values(after, "vecmill_memory_limit_bytes", () => true)),
  };
}

/** Return what each route did between two readings: its requests by status and its latencies; the busiest first. */
export function measureRoutes(before, after) {
  return [...sumBy(after, REQUESTS, "route").keys()]
    .filter((route) => !OWN.has(route))
    .map((route) => {
      const isOne = (labels) => labels.route === route;
      const statuses = countStatuses(before, after, isOne);
      const latencies = [0.5, 0.99].map((share) => quantile(before, after, DURATIONS, share, isOne));
      return { route, statuses, requests: shareOf(statuses, () => true), latencies };
    })
    .filter(({ requests }) => requests)
    .sort((one, other) => other.requests - one.requests);
}

/** Return a sentence about what limits the server, from the load of the whole server. */
export function explainLimit(load) {
  const requests = load.answered + load.refused + load.failed;
  if (!requests && !load.running && !load.queueTexts) return "Nothing to do: no request has ended in the last seconds.";
  const queue = load.queueTexts ? `; ${countTexts(load.queueTexts)} ${load.queueTexts === 1 ? "waits" : "wait"}, for about ${time(load.queueSeconds)}` : "";
  const engine = `engine calls run ${hundredths(load.running)} at a time, of at most ${short(load.lanes)}${queue}`;
  if (load.refused) {
    const [reason] = [...load.rejections].sort(([, one], [, other]) => other - one)[0] || ["overload"];
    return `The server refuses ${percent(load.refused / requests)} of the requests (${reason.replaceAll("_", " ")}): ${engine}.`;
  }
  const ownCores = load.cores / load.running;
  if (load.isOnProcessor && load.running >= OWN_CORE && ownCores < OWN_CORE) {
    return `Other processes use the machine: calls run at ${share(ownCores)} of a core; ${engine}.`;
  }
  if (load.lanes && load.running >= BUSY * load.lanes) return `The engine is the limit: ${engine}.`;
  return `Nothing is at its limit: ${engine}.`;
}

/**
 * Return a sentence about the parts of the models in the load of the whole server; empty with one model.
 *
 * `loads` are pairs of a model and its load. The chosen model is named first, and then those that compute most.
 */
export function explainParts(server, loads, chosen) {
  if (loads.length < 2 || !(server.running || server.queueTexts)) return "";
  const running = total(loads.map(([, load]) => load.running));
  const parts = loads
    .map(([name, load]) => [name, load, running ? load.running / running : 0])
    .sort(([one, , oneShare], [other, , otherShare]) => (other === chosen) - (one === chosen) || otherShare - oneShare)
    .slice(0, SHOWN_PARTS)
    .map(([name, load, each]) => `${name} ${percent(each)}${load.queueTexts ? ` (${countTexts(load.queueTexts)}, ${time(load.queueSeconds)} of the wait)` : ""}`);
  return `Engine time by model: ${parts.join(", ")}${loads.length > SHOWN_PARTS ? ", …" : ""}.`;
}

/** Return the requests by status, without statuses that there were none of. */
function countStatuses(before, after, isWanted) {
  const counts = [...sumBy(after, REQUESTS, "status").keys()]
    .map((status) => [status, increase(before, after, REQUESTS, (labels) => labels.status === status && isWanted(labels))])
    .filter(([, requests]) => requests);
  return new Map(counts);
}

function shareOf(statuses, isOne) {
  let total = 0;
  for (const [status, rate] of statuses) if (isOne(Number(status))) total += rate;
  return total;
}

function total(numbers) {
  return numbers.reduce((added, each) => added + each, 0);
}

function mean(readings, read) {
  return total(readings.map(read)) / readings.length;
}

/** A mean number of texts in words. It is not rounded to whole texts, so that those of the models add up. */
function countTexts(texts) {
  return `${short(texts)} ${texts === 1 ? "text" : "texts"}`;
}

/** The processes that serve the port, whose metrics are on one page. */
function countProcesses(metrics) {
  return new Set((metrics.get("vecmill_queue_seconds") || []).map(({ labels }) => labels.process)).size || 1;
}

function values(metrics, name, isWanted) {
  return (metrics.get(name) || []).filter(({ labels }) => isWanted(labels)).map(({ value }) => value);
}

/** A share below 1 in words, where a word is near. */
function share(value) {
  const words = [[1 / 2, "half"], [1 / 3, "a third"], [1 / 4, "a quarter"], [1 / 5, "a fifth"]];
  const [, word] = words.find(([each]) => Math.abs(value - each) < 0.04) || [];
  return word || percent(value);
}
