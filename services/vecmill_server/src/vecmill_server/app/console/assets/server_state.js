// The state of the server and of its models, which the page reads every few seconds.

import { urlOf } from "./server.js";
import { count } from "./numbers.js";

const STATE_MS = 5_000;
// While models load, somebody waits.
const LOADING_MS = 1_000;
// The states of a model that does not answer, and does not come back by itself.
const BROKEN = ["failed", "lost"];
// Those in which it answers, or is loaded for the next request.
const ANSWERING = ["ready", "degraded", "not_loaded"];

const listeners = new Set();
let latest = null;

/** Call a listener with each reading, `{status, models}`, and with the last one at once; `null` if there is no server. */
export function onState(listener) {
  listeners.add(listener);
  if (latest) listener(latest);
  return () => listeners.delete(listener);
}

/** Read the state every few seconds, while the page is visible. */
export async function watchState() {
  if (!document.hidden) {
    try {
      const response = await fetch(urlOf("console/state.json"), { cache: "no-store" });
      latest = await response.json();
    } catch {
      latest = null;
    }
    listeners.forEach((listener) => listener(latest));
  }
  setTimeout(watchState, latest && listLoading(latest).length ? LOADING_MS : STATE_MS);
}

/** Return the names of the models that load. */
export function listLoading({ models }) {
  return models.filter(({ state }) => state === "loading").map(({ name }) => name);
}

/** Return the names of the models that can be asked. */
export function listAnswering({ models }) {
  return models.filter(({ state }) => ANSWERING.includes(state)).map(({ name }) => name);
}

/** Return `{kind, text}` of a reading: the kind is "ready", "loading" or "problem". A ready server may have failed models. */
export function describeState(reading) {
  if (!reading) return { kind: "problem", text: "the server cannot be reached" };
  const { status, models } = reading;
  const failed = models.filter(({ state }) => BROKEN.includes(state)).map(({ name }) => name);
  const without = failed.length ? `, without ${failed.join(", ")}` : "";
  if (status === "ready") return { kind: failed.length ? "problem" : "ready", text: `ready${without}` };
  if (status !== "loading") return { kind: "problem", text: `the server is ${status}${without}` };
  return { kind: failed.length ? "problem" : "loading", text: `${listAnswering(reading).length} of ${count(models.length, "model")} ready${without}` };
}
