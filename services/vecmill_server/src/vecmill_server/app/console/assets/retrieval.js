// How well embeddings find the right answers of queries.

import { linesOf } from "./text_files.js";
import { dot, mean } from "./vectors.js";

const NDCG_PLACES = 10;
const RESAMPLES = 2_000;
const SWAPS = 2_000;
// Sums of the same numbers in another order differ by less.
const SLACK = 1e-9;
// A tab cannot be typed into a form.
const SEPARATOR = /\t|\s=>\s/;

/**
 * Return `{queries, documents, right}` of lines with a query, a tab or "=>", and a right answer.
 *
 * `right` has a set of document numbers for each query; a query with several right answers has a line for each. Every
 * answer is a document, and so is a line without a separator.
 */
export function readLabelled(text) {
  const queries = new Map();
  const documents = new Map();
  const numberOf = (document) => {
    if (!documents.has(document)) documents.set(document, documents.size);
    return documents.get(document);
  };
  for (const line of linesOf(text)) {
    const [query, answer] = line.split(SEPARATOR).map((each) => each.trim());
    if (!answer) numberOf(query);
    else if (queries.has(query)) queries.get(query).add(numberOf(answer));
    else queries.set(query, new Set([numberOf(answer)]));
  }
  return { queries: [...queries.keys()], documents: [...documents.keys()], right: [...queries.values()] };
}

/** Return for each query the document numbers, the nearest first; by cosine. */
export function rankDocuments(queryRows, documentRows) {
  const lengths = documentRows.map((row) => Math.sqrt(dot(row, row)) || 1);
  return queryRows.map((query) => {
    const scores = documentRows.map((row, index) => dot(query, row) / lengths[index]);
    return scores.map((_, index) => index).sort((one, other) => scores[other] - scores[one]);
  });
}

/** Return a list with a number for each query: recall among the first 1, 5 and 10, nDCG of the first 10, and reciprocal rank. */
export function measureQueries(rankings, right) {
  const measures = rankings.map((ranking, query) => measureOne(ranking, right[query]));
  return {
    recall1: measures.map(({ recall }) => recall(1)),
    recall5: measures.map(({ recall }) => recall(5)),
    recall10: measures.map(({ recall }) => recall(10)),
    ndcg10: measures.map(({ ndcg }) => ndcg),
    reciprocal: measures.map(({ first }) => 1 / first),
  };
}

/** Return `{mean, low, high}`: 95% of the means of queries that are drawn again are between `low` and `high`. */
export function estimateMean(values) {
  const random = randomNumbers();
  const means = Array.from({ length: RESAMPLES }, () => {
    let sum = 0;
    for (let turn = 0; turn < values.length; turn += 1) sum += values[Math.floor(random() * values.length)];
    return sum / values.length;
  }).sort((one, other) => one - other);
  const outside = Math.round(RESAMPLES * 0.025);
  return { mean: mean(values), low: means[outside], high: means[RESAMPLES - 1 - outside] };
}

/**
 * Return the share of random exchanges of the two values of each query whose difference is at least as large.
 *
 * The observed one is counted with them (Fisher's randomisation test; Smucker, Allan and Carterette, 2007).
 */
export function findPValue(values, others) {
  const random = randomNumbers();
  const differences = values.map((value, query) => value - others[query]);
  const observed = Math.abs(differences.reduce((sum, each) => sum + each, 0)) - SLACK;
  let asLarge = 1;
  for (let turn = 0; turn < SWAPS; turn += 1) {
    let sum = 0;
    for (const each of differences) sum += random() < 0.5 ? each : -each;
    if (Math.abs(sum) >= observed) asLarge += 1;
  }
  return asLarge / (SWAPS + 1);
}

/** Return a function of random numbers from 0 to 1, the same at each call: mulberry32 (Ettinger, 2017). */
function randomNumbers(seed = 1) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Return the place of the first right answer, 1 for the nearest. */
export function firstRight(ranking, right) {
  return ranking.findIndex((document) => right.has(document)) + 1;
}

function measureOne(ranking, right) {
  const hits = ranking.map((document) => right.has(document));
  const gain = (places) => places.reduce((sum, isHit, place) => sum + (isHit ? 1 / Math.log2(place + 2) : 0), 0);
  return {
    recall: (most) => hits.slice(0, most).filter(Boolean).length / right.size,
    ndcg: gain(hits.slice(0, NDCG_PLACES)) / gain(Array(Math.min(right.size, NDCG_PLACES)).fill(true)),
    first: firstRight(ranking, right),
  };
}
