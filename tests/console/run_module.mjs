// Calls functions of the page's modules: node run_module.mjs ASSETS NEEDS_KEY, with lines of {module, name, args} on
// stdin. Prints a line of {value} or {error} for each.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

// What modules read when they are loaded; elements are made only in a browser.
globalThis.document = { documentElement: { dataset: { needsKey: process.argv[3] } } };
const load = (path) => import(pathToFileURL(`${process.argv[2]}/${path}`).href);

async function readLoad(before, after, seconds, model = null, readings = [after]) {
  const { parseMetrics } = await load("prometheus.js");
  const { measureLoad, explainLimit } = await load("load.js");
  const found = measureLoad(parseMetrics(before), parseMetrics(after), seconds, model, readings.map(parseMetrics));
  return { ...found, statuses: Object.fromEntries(found.statuses), sentence: explainLimit(found) };
}

async function readRoutes(before, after) {
  const { parseMetrics } = await load("prometheus.js");
  const { measureRoutes } = await load("load.js");
  const found = measureRoutes(parseMetrics(before), parseMetrics(after));
  return found.map((each) => ({ ...each, statuses: Object.fromEntries(each.statuses) }));
}

async function wasRestarted(before, after) {
  const { isRestarted, parseMetrics } = await load("prometheus.js");
  return isRestarted(parseMetrics(before), parseMetrics(after));
}

async function decodeAndCompare(encoded) {
  const { cosineMatrix, decodeBase64, nearestPairs, principalComponents } = await load("vectors.js");
  const rows = encoded.map(decodeBase64);
  const matrix = cosineMatrix(rows);
  return { matrix, pairs: nearestPairs(matrix), points: principalComponents(rows) };
}

async function readPast(history) {
  const { readHistory } = await load("prometheus.js");
  const valuesOf = (metrics) => Object.fromEntries([...metrics].map(([name, [{ value }]]) => [name, value]));
  return readHistory(history).map(({ ageS, metrics }) => ({ ageS, values: valuesOf(metrics) }));
}

async function readLabels(text) {
  const { readLabelled } = await load("retrieval.js");
  const found = readLabelled(text);
  return { ...found, right: found.right.map((each) => [...each]) };
}

async function measure(rankings, right) {
  const { measureQueries } = await load("retrieval.js");
  return measureQueries(rankings, right.map((each) => new Set(each)));
}

async function readForBatch(name, content, size = null) {
  const { readBatchFile } = await load("batch_file.js");
  const file = new File([content], name);
  if (size !== null) Object.defineProperty(file, "size", { value: size });
  const found = await readBatchFile(file);
  return "file" in found ? { ...found, file: found.file.name } : found;
}

const here = { readLoad, readRoutes, wasRestarted, decodeAndCompare, readPast, readLabels, measure, readForBatch };
for await (const line of createInterface({ input: process.stdin })) {
  const { module, name, args } = JSON.parse(line);
  try {
    const run = module === "here" ? here[name] : (await load(module))[name];
    console.log(JSON.stringify({ value: await run(...args) }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
  }
}
