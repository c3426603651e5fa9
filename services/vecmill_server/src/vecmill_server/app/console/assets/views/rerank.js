// Try: documents ranked for a query by one or several models, side by side.

import { card, choice, fill, h, labelled } from "../elements.js";
import { DOCUMENTS, QUERY } from "../examples.js";
import { inParts, total } from "../many_texts.js";
import { fixed } from "../numbers.js";
import { bar } from "../pictures.js";
import { resultForm } from "../result_form.js";
import { send } from "../server.js";
import { showSnippets } from "../snippets.js";
import { saveButtons } from "../take_away.js";
import { longText, textsField } from "../texts.js";
import { tellCut } from "../truncation.js";
import { ranks } from "../vectors.js";
import { cutOf, modelBoxes, required, shortened, summary } from "./try_forms.js";

/** Return the models with those first that can do the least else, such as a reranker before an embedder that also ranks. */
function specialistsFirst(models) {
  return [...models].sort((one, other) => one.capabilities.length - other.capabilities.length);
}

export function buildRerank(models) {
  const query = h("input", { name: "query", value: QUERY });
  const { field, read } = textsField("documents", "Documents", DOCUMENTS);
  const { field: boxes, chosen } = modelBoxes("rerankers", specialistsFirst(models), 1);
  async function run(signal, tell) {
    const documents = required(read(), "document");
    const names = chosen();
    if (!query.value.trim()) throw new Error("Type a query.");
    const answers = [];
    for (const model of names) answers.push(await rank(model, query.value, documents, signal, tell));
    return { query: query.value, documents, answers };
  }
  async function rank(model, asked, documents, signal, tell) {
    const parts = await inParts(
      documents,
      (part, start) => send("v1/rerank", { json: { model, query: asked, documents: part }, signal }).then((answer) => ({ ...answer, start })),
      (text) => tell(`${model}: ${text}`),
    );
    const scores = new Array(documents.length).fill(0);
    for (const { body, start } of parts) for (const { index, relevance_score: score } of body.results) scores[start + index] = score;
    const tokens = total(parts, ({ body }) => body.usage?.total_tokens);
    return { model, scores, ms: total(parts, ({ ms }) => ms), tokens, cut: cutOf(parts, models, model) };
  }
  const fields = [labelled("Query", query), field, boxes];
  return resultForm("ranking", "Sort the documents", fields, { run, show: showRanking });
}

function showRanking({ query, documents, answers }) {
  const names = answers.map(({ model }) => model);
  const places = answers.map(({ scores }) => ranks(scores));
  const rowsFor = (model) => {
    const order = documents.map((_, index) => index).sort((one, other) => places[model][one] - places[model][other]);
    return order.map((index) => [longText(documents[index]), ...answers.map(({ scores }, each) => ranked(places[each][index], scores[index]))]);
  };
  const by = choice("sorted_by", names.map((name, place) => [place, name]), 0);
  const list = h("div", {});
  const draw = () =>
    fill(list, shortened(names.length > 1 ? `The best document of ${names[by.value]} first` : "The best document first", ["Document", ...names], rowsFor(by.value), "stacked"));
  by.addEventListener("change", draw);
  draw();
  return h(
    "div",
    { class: "cards" },
    h("div", { class: "wide-card" }, answers.map(({ model, tokens, ms, cut }) => [summary(tokens, ms, model), tellCut(cut.count, cut.model)])),
    card(
      null,
      "wide-card",
      names.length > 1 ? [h("p", { class: "summary" }, tellAgreement(places, documents.length)), h("label", { class: "inline" }, "Sorted by", by)] : null,
      list,
    ),
    h(
      "div",
      { class: "wide-card" },
      saveButtons(
        "ranking",
        () => [["document", ...names.flatMap((name) => [`rank, ${name}`, name])], ...documents.map((text, index) => [text, ...answers.flatMap(({ scores }, each) => [places[each][index] + 1, scores[index]])])],
        () => ({ query, models: names, documents, scores: answers.map(({ scores }) => scores), ranks: places.map((each) => each.map((place) => place + 1)) }),
      ),
      showSnippets("rerank", "v1/rerank", { model: names[0], query, documents }),
    ),
  );
}

/** Return the rank of a document, 1 for the best, and its score. */
function ranked(place, score) {
  return h("span", { class: "ranked" }, h("b", { class: place ? "rank" : "rank first" }, place + 1), bar(score, fixed(score)));
}

/** Return a sentence about how far models rank alike. */
function tellAgreement(places, count) {
  const best = new Set(places.map((each) => each.indexOf(0)));
  const same = Array.from({ length: count }, (_, index) => index).filter((index) => places.every((each) => each[index] === places[0][index])).length;
  const first = best.size === 1 ? "All models find the same document best" : `The models find ${best.size} different documents best`;
  return `${first}; ${same} of ${count} documents ${same === 1 ? "has" : "have"} the same rank for all.`;
}
