// The view "Compare": two served models, or one model with two plans, on the same texts; any number on labelled queries.

import { card, choice, h, labelled, scrolled, table, tabs, textButton } from "../elements.js";
import { SENTENCES } from "../examples.js";
import { heatMap, rangeOf } from "../heat_map.js";
import { showLoading } from "../loading.js";
import { embedTexts, requireAtMost } from "../many_texts.js";
import { count, fixed, percent, short } from "../numbers.js";
import { resultForm } from "../result_form.js";
import { makeSelection } from "../selection.js";
import { listModels, send } from "../server.js";
import { saveButtons } from "../take_away.js";
import { longText, textsField } from "../texts.js";
import { tellCut } from "../truncation.js";
import { cosine, cosineMatrix, decodeBase64, joinByAverage, mean, nearestPairs, neighbours, orderByGroups, ranks } from "../vectors.js";
import { buildQueries } from "./labelled_queries.js";

// Of more, all pairs take seconds in the page.
const MOST_TEXTS = 1_000;
const NEIGHBOURS = 10;
const CHANGED_PAIRS = 10;
// Of more texts, the changed pairs alone are shown.
const FEW_TEXTS = 8;
// The end of the scale of differences is at least this.
const LEAST_SCALE = 0.01;
// Heat maps of more need the whole width.
const TEXTS_SIDE_BY_SIDE = 14;
// What is compared: how many models it needs, and the form.
const KINDS = {
  texts: { title: "Texts", least: 2, build: buildTexts },
  queries: { title: "Labelled queries", least: 1, build: buildQueries },
};

export async function openCompare([asked] = [], reopen = () => {}) {
  const [listed, { body }] = await Promise.all([listModels(), send("console/models.json")]);
  const fingerprints = new Map(body.models.map(({ name, fingerprint }) => [name, fingerprint]));
  const models = listed
    .filter((model) => model.capabilities?.includes("embed"))
    .map((model) => ({ ...model, fingerprint: fingerprints.get(model.id) }));
  const title = "Compare";
  const name = Object.hasOwn(KINDS, asked) ? asked : "texts";
  const { least, build } = KINDS[name];
  const { element: loading, close } = showLoading(listed, reopen, models.length < least);
  const links = tabs("What to compare", "compare", Object.entries(KINDS).map(([each, kind]) => [each, kind.title]), name);
  const head = h("div", { class: "view-head" }, h("h2", {}, title), links);
  return { title, close, element: h("section", {}, head, loading, models.length < least ? tellWhatIsMissing(models) : build(models)) };
}

function tellWhatIsMissing([model]) {
  return h(
    "div",
    { class: "card" },
    h(
      "p",
      {},
      `Two embedding models are compared on the same texts. ${model ? `There is only ${model.id}` : "There is none yet"}. A server that is started with several `,
      "models serves all of them, for example a model and its directory of vecmill optimize under another name:",
    ),
    h("pre", { tabindex: "0" }, "vecmill serve MODEL optimized=DIRECTORY"),
  );
}

/** Return `{fields, chosen}`: two choices, and the function that returns the two chosen models. */
function modelChoices(models) {
  const names = models.map(({ id }) => [id, id]);
  const choices = [choice("first", names, models[0].id), choice("second", names, models[1].id)];
  const fields = h("div", { class: "grid" }, labelled("First model", choices[0]), labelled("Second model", choices[1]));
  return { fields, chosen: () => choices.map(({ value }) => models.find(({ id }) => id === value)) };
}

async function embed(model, input, signal, tell, more = {}) {
  const { embeddings, cut, ms, tokens } = await embedTexts({ model: model.id, input, ...more }, signal, (text) => tell(`${model.id}: ${text}`));
  return { model, cut, embeddings, ms, tokens };
}

// Texts.

function buildTexts(models) {
  const { fields, chosen } = modelChoices(models);
  const { field, read } = textsField("texts", "Texts", SENTENCES, 8);
  async function run(signal, tell) {
    const texts = read();
    if (texts.length < 3) throw new Error("Type at least three texts.");
    requireAtMost(texts, MOST_TEXTS, "This view compares models on");
    const answers = [];
    for (const model of chosen()) answers.push(await embed(model, texts, signal, tell));
    return { texts, answers };
  }
  return resultForm("comparison", "Compare the models", [field, fields], { run, show: showTexts });
}

function showTexts({ texts, answers }) {
  const [one, other] = answers.map((answer) => {
    const rows = answer.embeddings.map(decodeBase64);
    return { ...answer, rows, matrix: cosineMatrix(rows) };
  });
  return showComparison(texts, one, other);
}

function showComparison(texts, one, other) {
  const names = [one.model.id, other.model.id];
  const fingerprints = [one.model.fingerprint, other.model.fingerprint];
  const isSameSpace = Boolean(fingerprints[0]) && fingerprints[0] === fingerprints[1];
  const cosines = isSameSpace ? texts.map((_, index) => cosine(one.rows[index], other.rows[index])) : [];
  const most = Math.min(NEIGHBOURS, texts.length - 1);
  const [near, far] = [neighbours(one.matrix), neighbours(other.matrix)];
  const kept = texts.map((_, index) => {
    const before = new Set(near[index].slice(0, most));
    return far[index].slice(0, most).filter((each) => before.has(each)).length / most;
  });
  const first = texts.filter((_, index) => near[index][0] === far[index][0]).length / texts.length;
  const facts = [
    ["Engine and precision", ...[one, other].map(({ model }) => [model.engine, model.precision].filter(Boolean).join(" ") || "loaded for this request")],
    ["Dimensions", one.rows[0].length, other.rows[0].length],
    ["Tokens", one.tokens, other.tokens],
    ["Time of the request, ms", short(one.ms), short(other.ms)],
  ];
  const isFew = texts.length <= FEW_TEXTS;
  const pairs = changedPairs(one.matrix, other.matrix);
  const changes = isFew ? pairs : pairs.filter(({ before, after }) => before !== after).slice(0, CHANGED_PAIRS);
  const selection = makeSelection();
  // Similar texts, by the first model, are beside each other in all pictures.
  const order = texts.length > TEXTS_SIDE_BY_SIDE ? orderByGroups(texts.length, joinByAverage(one.matrix)) : undefined;
  const range = rangeOf(one.matrix, other.matrix);
  const difference = one.matrix.map((row, a) => row.map((value, b) => other.matrix[a][b] - value));
  // Smaller differences are noise, and are not to look like others.
  const largest = Math.max(LEAST_SCALE, ...rangeOf(difference).map(Math.abs));
  const width = texts.length <= TEXTS_SIDE_BY_SIDE ? null : "wide-card";
  return h(
    "div",
    { class: "cards" },
    h("div", { class: "wide-card" }, [one, other].map(({ cut, model }) => tellCut(cut, model))),
    card("What is the same", null, tellSpaces(cosines, fingerprints), tellNeighbours(first, kept, most), changes.some(({ before, after }) => before !== after) ? null : tellNoChange()),
    card(null, null, table("The two requests", ["", ...names], facts)),
    card(null, width, heatMap(`Cosine similarity, ${names[0]}`, texts, one.matrix, { order, range, selection })),
    card(null, width, heatMap(`Cosine similarity, ${names[1]}`, texts, other.matrix, { order, range, selection })),
    card(
      null,
      "wide-card",
      heatMap(`Similarity of ${names[1]} less that of ${names[0]}`, texts, difference, { order, range: [-largest, largest], selection, isDifference: true }),
    ),
    changes.length ? card(null, "wide-card", showChanges(texts, changes, [one, other], isFew, selection)) : null,
    h(
      "div",
      { class: "wide-card" },
      saveButtons(
        "comparison",
        () => [
          ["text", "text", ...names],
          ...nearestPairs(one.matrix).map(({ one: a, other: b, value }) => [texts[a], texts[b], value, other.matrix[a][b]]),
        ],
        () => ({ texts, models: names, cosines, kept, similarity: [one.matrix, other.matrix] }),
      ),
    ),
  );
}

function tellSpaces(cosines, fingerprints) {
  if (cosines.length) {
    const [worst, middle] = [fixed(Math.min(...cosines), 5), fixed(mean(cosines), 5)];
    return h("p", { class: "summary" }, `Cosine between the embeddings of a text: worst ${worst}, mean ${middle}. Both are the same model.`);
  }
  const models = fingerprints.every(Boolean) ? "These are different models" : "It is not known whether these are the same model";
  return h("p", { class: "note" }, `${models}, so the cosine between their embeddings tells nothing.`);
}

function tellNeighbours(first, kept, most) {
  const same = `The nearest text is the same for ${percent(first)} of the texts; of the ${count(most, "nearest text")}, ${percent(mean(kept))} are the same.`;
  return h("p", { class: "summary" }, same);
}

function tellNoChange() {
  return h("p", { class: "summary" }, "No pair of texts changes its rank: both models put the pairs in the same order.");
}

/** Return a table of pairs with their similarity and rank by both models. A pair is chosen by its first number. */
function showChanges(texts, changes, answers, isFew, selection) {
  const title = isFew ? "All pairs, the largest change of rank first (rank 1 is the nearest pair)" : "Pairs whose rank changes most (1 is the nearest pair)";
  const headings = ["Text", "Text", ...answers.flatMap(({ model: { id } }) => [`Similarity, ${id}`, `Rank, ${id}`])];
  const write = ({ a, b, before, after }) => {
    const [near, far] = answers.map(({ matrix }) => fixed(matrix[a][b]));
    const choose = textButton(near, `${near}: show texts ${a + 1} and ${b + 1} in the pictures`, () => selection.choose(a, b), true);
    return [longText(texts[a]), longText(texts[b]), choose, before + 1, far, after + 1];
  };
  return scrolled("Pairs of texts", table(title, headings, changes.map(write), "stacked"));
}

/** Return the pairs by the change of their rank among all pairs, the largest change first. */
function changedPairs(before, after) {
  const pairs = nearestPairs(before);
  const ranksAfter = ranks(pairs.map(({ one, other }) => after[one][other]));
  return pairs
    .map(({ one, other }, rank) => ({ a: one, b: other, before: rank, after: ranksAfter[rank] }))
    .sort((first, second) => Math.abs(second.before - second.after) - Math.abs(first.before - first.after));
}
