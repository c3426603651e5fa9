// Calls a function of one of the page's modules: node run_module.mjs ASSETS, with {module, name, args} on stdin.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { module, name, args, needsKey } = JSON.parse(readFileSync(0, "utf8"));
// What modules read when they are loaded; elements are made only in a browser.
globalThis.document = { documentElement: { dataset: { needsKey: String(Boolean(needsKey)) } } };
const load = (path) => import(pathToFileURL(`${process.argv[2]}/${path}`).href);

async function readLoad(before, after, seconds) {
  const { parseMetrics } = await load("prometheus.js");
  const { measureLoad, explainLimit } = await load("load.js");
  const found = measureLoad(parseMetrics(before), parseMetrics(after), seconds);
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

const here = { readLoad, readRoutes, wasRestarted, decodeAndCompare };
const run = module === "here" ? here[name] : (await load(module))[name];
console.log(JSON.stringify(await run(...args)));
