// How well embeddings find the right answers of queries.

import { linesOf } from "./text_files.js";
import { dot } from "./vectors.js";

const NDCG_PLACES = 10;
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

/** Return the means over all queries: recall among the first 1, 5 and 10, nDCG of the first 10, and reciprocal rank. */
export function measureRanking(rankings, right) {
  const measures = rankings.map((ranking, query) => measureOne(ranking, right[query]));
  const mean = (read) => measures.reduce((sum, each) => sum + read(each), 0) / measures.length;
  return {
    recall1: mean(({ recall }) => recall(1)),
    recall5: mean(({ recall }) => recall(5)),
    recall10: mean(({ recall }) => recall(10)),
    ndcg10: mean(({ ndcg }) => ndcg),
    reciprocal: mean(({ first }) => 1 / first),
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
