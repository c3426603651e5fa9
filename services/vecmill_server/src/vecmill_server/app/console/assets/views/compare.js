// The view "Compare": two served models, or one model with two plans, on the same texts or on labelled queries.

import { choice, fileButton, h, labelled, scrolled, table, tabs } from "../elements.js";
import { LABELLED, SENTENCES } from "../examples.js";
import { embedTexts, requireAtMost } from "../many_texts.js";
import { count, fixed, percent, short } from "../numbers.js";
import { heatMap } from "../pictures.js";
import { resultForm } from "../result_form.js";
import { firstRight, measureRanking, rankDocuments, readLabelled } from "../retrieval.js";
import { listModels, send } from "../server.js";
import { saveButtons } from "../take_away.js";
import { longText, textsField } from "../texts.js";
import { tellCut } from "../truncation.js";
import { cosine, cosineMatrix, decodeBase64, nearestPairs, neighbours, ranks } from "../vectors.js";

// Of more, all pairs take seconds in the page.
const MOST_TEXTS = 1_000;
const NEIGHBOURS = 10;
const CHANGED_PAIRS = 10;
// Of more texts, the changed pairs alone are shown.
const FEW_TEXTS = 8;
const MOST_LABELLED = 5_000;
const QUERIES_SHOWN = 50;
const KINDS = {
  texts: { title: "Texts", build: buildTexts },
  queries: { title: "Labelled queries", build: buildQueries },
};

export async function openCompare([asked] = []) {
  const [listed, { body }] = await Promise.all([listModels(), send("console/models.json")]);
  const fingerprints = new Map(body.models.map(({ name, fingerprint }) => [name, fingerprint]));
  const models = listed
    .filter((model) => model.capabilities?.includes("embed"))
    .map((model) => ({ ...model, fingerprint: fingerprints.get(model.id) }));
  const title = "Compare";
  if (!models.length) throw new Error("No embedding model is ready yet.");
  if (models.length < 2) {
    return {
      title,
      element: h(
        "section",
        {},
        h("h2", {}, title),
        h(
          "p",
          {},
          `This view compares two embedding models on the same texts. There is only ${models[0].id}. A server that is started with several `,
          "models serves all of them, for example a model and its directory of vecmill optimize under another name:",
        ),
        h("pre", { tabindex: "0" }, "vecmill serve MODEL optimized=DIRECTORY"),
      ),
    };
  }
  const name = asked in KINDS ? asked : "texts";
  const links = tabs("What to compare", "compare", Object.entries(KINDS).map(([each, kind]) => [each, kind.title]), name);
  return { title, element: h("section", {}, h("h2", {}, title), links, KINDS[name].build(models)) };
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
    ["Engine and precision", ...[one, other].map(({ model }) => `${model.engine} ${model.precision}`)],
    ["Dimensions", one.rows[0].length, other.rows[0].length],
    ["Tokens", one.tokens, other.tokens],
    ["Time of the request, ms", short(one.ms), short(other.ms)],
  ];
  const isFew = texts.length <= FEW_TEXTS;
  const pairs = changedPairs(one.matrix, other.matrix);
  const changes = isFew ? pairs : pairs.filter(({ before, after }) => before !== after).slice(0, CHANGED_PAIRS);
  return h(
    "div",
    {},
    table("The two requests", ["", ...names], facts),
    [one, other].map(({ cut, model }) => tellCut(cut, model)),
    cosines.length
      ? h(
          "p",
          { class: "summary" },
          `Cosine between the embeddings of a text: worst ${fixed(Math.min(...cosines), 5)}, mean `,
          `${fixed(mean(cosines), 5)}. Both are the same model.`,
        )
      : h(
          "p",
          { class: "note" },
          fingerprints.every(Boolean) ? "These are different models" : "It is not known whether these are the same model",
          ", so the cosine between their embeddings tells nothing.",
        ),
    h(
      "p",
      { class: "summary" },
      `The nearest text is the same for ${percent(first)} of the texts; of the ${count(most, "nearest text")}, `,
      `${percent(mean(kept))} are the same.`,
    ),
    changes.some(({ before, after }) => before !== after)
      ? null
      : h("p", { class: "summary" }, "No pair of texts changes its rank: both models put the pairs in the same order."),
    changes.length
      ? scrolled(
          "Pairs of texts",
          table(
            isFew ? "All pairs, the largest change of rank first (rank 1 is the nearest pair)" : "Pairs whose rank changes most (1 is the nearest pair)",
            ["Text", "Text", ...names.flatMap((name) => [`Similarity, ${name}`, `Rank, ${name}`])],
            changes.map(({ a, b, before, after }) => [
              longText(texts[a]),
              longText(texts[b]),
              ...[[one, before], [other, after]].flatMap(([{ matrix }, rank]) => [fixed(matrix[a][b]), rank + 1]),
            ]),
          ),
        )
      : null,
    heatMap(`Cosine similarity, ${names[0]}`, texts, one.matrix),
    heatMap(`Cosine similarity, ${names[1]}`, texts, other.matrix),
    saveButtons(
      "comparison",
      () => [
        ["text", "text", ...names],
        ...nearestPairs(one.matrix).map(({ one: a, other: b, value }) => [texts[a], texts[b], value, other.matrix[a][b]]),
      ],
      () => ({ texts, models: names, cosines, kept, similarity: [one.matrix, other.matrix] }),
    ),
  );
}

// Labelled queries.

function buildQueries(models) {
  const { fields, chosen } = modelChoices(models);
  const area = h("textarea", { name: "labelled", rows: 10, spellcheck: "false" }, LABELLED);
  const open = fileButton("A file with labelled queries", [".tsv", ".txt"], async (chosen) => {
    area.value = await chosen.text();
    area.dispatchEvent(new Event("input", { bubbles: true }));
  });
  const hint = "On each line a query, => or a tab, and a right answer. A line without either is a further document.";
  async function run(signal, tell) {
    const { queries, documents, right } = readLabelled(area.value);
    if (!queries.length) throw new Error("No line has a query, then => or a tab, and a right answer.");
    if (documents.length < 2) throw new Error("There must be at least two documents to find the right one among.");
    requireAtMost([...queries, ...documents], MOST_LABELLED, "This view takes");
    const answers = [];
    for (const model of chosen()) {
      // Models with a prompt for queries and one for documents get both.
      const asked = await embed(model, queries, signal, tell, { input_type: "query" });
      const found = await embed(model, documents, signal, tell, { input_type: "document" });
      answers.push({ name: model.id, rankings: rankDocuments(asked.embeddings.map(decodeBase64), found.embeddings.map(decodeBase64)) });
    }
    return { queries, documents, right: right.map((each) => [...each]), answers };
  }
  const typed = h("div", { class: "texts" }, labelled("Labelled queries", area, hint), h("div", { class: "actions" }, open));
  return resultForm("labelled queries", "Compare the models", [typed, fields], { run, show: showQueries });
}

function showQueries({ queries, documents, right, answers }) {
  const sets = right.map((each) => new Set(each));
  const names = answers.map(({ name }) => name);
  const measures = answers.map(({ rankings }) => measureRanking(rankings, sets));
  const rows = [
    ["Right answer first (recall@1)", "recall1"],
    ["Among the first 5 (recall@5)", "recall5"],
    ["Among the first 10 (recall@10)", "recall10"],
    ["nDCG@10", "ndcg10"],
    ["Mean reciprocal rank", "reciprocal"],
  ];
  const places = queries.map((_, query) => answers.map(({ rankings }) => firstRight(rankings[query], sets[query])));
  const order = queries.map((_, query) => query).sort((one, other) => Math.max(...places[other]) - Math.max(...places[one]));
  return h(
    "div",
    {},
    h(
      "p",
      { class: "summary" },
      `${count(queries.length, "query").replace("querys", "queries")} over ${count(documents.length, "document")}: nDCG@10 `,
      measures.map(({ ndcg10 }, place) => `${place ? ", " : ""}${names[place]} ${fixed(ndcg10)}`).join(""),
      ".",
    ),
    table("How well each model finds the right answers", ["", ...names], rows.map(([text, key]) => [text, ...measures.map((each) => fixed(each[key]))])),
    scrolled(
      "Queries",
      table(
        `Place of the first right answer, the worst queries first${queries.length > QUERIES_SHOWN ? ` (${QUERIES_SHOWN} of ${queries.length})` : ""}`,
        ["Query", ...names.flatMap((name) => [`Place, ${name}`, `First found, ${name}`])],
        order.slice(0, QUERIES_SHOWN).map((query) => [
          longText(queries[query]),
          ...answers.flatMap(({ rankings }, place) => [places[query][place], longText(documents[rankings[query][0]])]),
        ]),
      ),
    ),
    saveButtons(
      "labelled-queries",
      () => [["query", ...names], ...queries.map((query, place) => [query, ...places[place]])],
      () => ({ models: names, measures, queries: queries.map((query, place) => ({ query, places: places[place] })) }),
    ),
  );
}

/** Return the pairs by the change of their rank among all pairs, the largest change first. */
function changedPairs(before, after) {
  const pairs = nearestPairs(before);
  const ranksAfter = ranks(pairs.map(({ one, other }) => after[one][other]));
  return pairs
    .map(({ one, other }, rank) => ({ a: one, b: other, before: rank, after: ranksAfter[rank] }))
    .sort((first, second) => Math.abs(second.before - second.after) - Math.abs(first.before - first.after));
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
