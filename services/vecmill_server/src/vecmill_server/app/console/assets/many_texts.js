// Sends many texts in several requests, and compares their embeddings beside the page.

import { count } from "./numbers.js";
import { send } from "./server.js";
import { countCut } from "./truncation.js";

// Of one request, so that the progress is seen and no server refuses the number.
const TEXTS_IN_REQUEST = 256;

/** Throw an error that names the limit if there are more than `most` texts. */
export function requireAtMost(texts, most, where) {
  if (texts.length <= most) return;
  throw new Error(`${where} at most ${count(most, "text")}, and these are ${texts.length.toLocaleString("en")}. For more, there is vecmill embed.`);
}

/**
 * Call `ask` with one part of the texts after the other, and return its answers.
 *
 * `tell` is called with how far it is, if there are several parts.
 */
export async function inParts(texts, ask, tell) {
  const answers = [];
  for (let start = 0; start < texts.length; start += TEXTS_IN_REQUEST) {
    if (texts.length > TEXTS_IN_REQUEST) tell(`${start.toLocaleString("en")} of ${count(texts.length, "text")}`);
    answers.push(await ask(texts.slice(start, start + TEXTS_IN_REQUEST), start));
  }
  return answers;
}

/** Return the sum of a number of each answer; `undefined` if an answer has none. */
export function total(answers, read) {
  const sum = answers.reduce((before, answer) => before + read(answer), 0);
  return Number.isNaN(sum) ? undefined : sum;
}

/** Return `{embeddings, tokens, ms, truncated, cut}`: in base64, and the numbers of the texts that were cut off. */
export async function embedTexts(json, signal, tell) {
  const parts = await inParts(
    json.input,
    (input, start) => send("v1/embeddings", { json: { ...json, input, encoding_format: "base64" }, signal }).then((answer) => ({ ...answer, start })),
    tell,
  );
  return {
    embeddings: parts.flatMap(({ body }) => body.data.map(({ embedding }) => embedding)),
    tokens: total(parts, ({ body }) => body.usage.total_tokens),
    ms: total(parts, ({ ms }) => ms),
    truncated: parts.flatMap(({ body, start }) => (body.truncated || []).map(({ index }) => start + index)),
    cut: total(parts, ({ headers }) => countCut(headers)),
  };
}

/** Return what `similarity_worker.js` finds about embeddings, Float32Arrays. With `hasThumbnails` the points of the map are large. */
export function analyse(rows, { hasThumbnails = false } = {}) {
  const worker = new Worker(new URL("./similarity_worker.js", import.meta.url), { type: "module" });
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = ({ message }) => reject(new Error(message || "The embeddings cannot be compared in this browser."));
    worker.postMessage({ rows, hasThumbnails });
  }).finally(() => worker.terminate());
}
