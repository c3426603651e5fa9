// The view "Try": embed, rerank or classify texts, and see the result.

import { choice, h, labelled, table } from "../elements.js";
import { DOCUMENTS, NEWS, QUERY, REVIEWS, SENTENCES } from "../examples.js";
import { count, fixed, short } from "../numbers.js";
import { bar, heatMap, pointMap } from "../pictures.js";
import { resultForm } from "../result_form.js";
import { listModels, send } from "../server.js";
import { showSnippets } from "../snippets.js";
import { saveButtons } from "../take_away.js";
import { excerpt, linesOf, textsField } from "../texts.js";
import { cosineMatrix, decodeBase64, nearestPairs } from "../vectors.js";

const PAIRS = 10;

// What can be tried: the capability that a model needs, and the form.
const KINDS = {
  similarity: { title: "Similarity", capability: "embed", build: buildSimilarity },
  rerank: { title: "Rerank", capability: "rerank", build: buildRerank },
  classify: { title: "Classify", capability: "classify", build: buildClassify },
  entities: { title: "Entities", capability: "classify_tokens", build: buildEntities },
};

export async function openTry([asked] = []) {
  const models = await listModels();
  const kinds = Object.entries(KINDS).filter(([, kind]) => modelsFor(models, kind.capability).length);
  if (!kinds.length) throw new Error("No model is ready yet. This page shows more as soon as one is.");
  const [name, kind] = kinds.find(([each]) => each === asked) || kinds[0];
  const tabs = h(
    "nav",
    { "aria-label": "What to try", class: "tabs" },
    kinds.map(([each, { title }]) =>
      h("a", { href: `#/try/${each}`, "aria-current": each === name ? "page" : null }, title),
    ),
  );
  const element = h("section", {}, h("h2", {}, "Try"), tabs, kind.build(modelsFor(models, kind.capability)));
  return { title: kind.title, element };
}

function modelsFor(models, capability) {
  return models.filter((model) => model.capabilities?.includes(capability));
}

function modelChoice(models) {
  return choice("model", models.map(({ id }) => [id, id]), models[0].id);
}

function required(texts, what) {
  if (!texts.length) throw new Error(`Type at least one ${what}.`);
  return texts;
}

/** One sentence about a response. */
function summary(response, what) {
  const tokens = response.body.usage?.total_tokens;
  const parts = [what, ...(tokens === undefined ? [] : [count(tokens, "token")]), `${short(response.ms)} ms`];
  return h("p", { class: "summary" }, parts.join(", "));
}

// Similarity.

function buildSimilarity(models) {
  const { area, field } = textsField("texts", "Texts to compare", SENTENCES);
  const model = modelChoice(models);
  const purpose = choice("purpose", [["", "none"], ["query", "query"], ["document", "document"]], "");
  const prompt = h("input", { name: "prompt", placeholder: "for example: query: " });
  const dimensions = h("input", { name: "dimensions", type: "number", min: "1", placeholder: "all" });
  const normalize = h("input", { name: "normalize", type: "checkbox", checked: true });
  const options = h(
    "details",
    {},
    h("summary", {}, "Options"),
    h(
      "div",
      { class: "grid" },
      labelled("Purpose", purpose, "Some models have a prompt for queries and one for documents."),
      labelled("Prompt before each text", prompt),
      labelled("Dimensions", dimensions, "Fewer numbers, for models that allow this."),
      h("label", { class: "inline" }, normalize, "Length 1"),
    ),
  );
  const fields = [field, labelled("Model", model), options];
  return resultForm("Compare the texts", fields, async (signal) => {
    const texts = required(linesOf(area), "text");
    const json = { model: model.value, input: texts };
    if (purpose.value) json.input_type = purpose.value;
    if (prompt.value) json.prompt = prompt.value;
    if (dimensions.value) json.dimensions = Number(dimensions.value);
    if (!normalize.checked) json.normalize = false;
    const response = await send("v1/embeddings", { json: { ...json, encoding_format: "base64" }, signal });
    const rows = response.body.data.map(({ embedding }) => decodeBase64(embedding));
    const truncated = await findTruncated(response, json, models, signal);
    return showSimilarity(response, json, rows, truncated);
  });
}

/** Return which texts were cut, as far as their own tokens tell. The response has only their number. */
async function findTruncated(response, json, models, signal) {
  if (!cutTexts(response)) return new Set();
  const limit = models.find(({ id }) => id === json.model).max_model_len;
  const inputs = json.input.map((text) => (json.prompt || "") + text);
  const { body } = await send("tokenize", { json: { model: json.model, inputs }, signal });
  return new Set(body.flatMap((tokens, index) => (tokens.length > limit ? [index] : [])));
}

function cutTexts(response) {
  return Number(response.headers.get("x-truncated-inputs") || 0);
}

function showSimilarity(response, json, rows, truncated) {
  const matrix = cosineMatrix(rows);
  const labels = json.input.map((text, index) => (truncated.has(index) ? `${text} (cut)` : text));
  const pairs = nearestPairs(matrix);
  const head = ["text", ...json.input];
  return h(
    "div",
    {},
    summary(response, `${count(rows.length, "text")}, ${count(rows[0].length, "number")} each`),
    cutTexts(response)
      ? h("p", { class: "note" }, `${count(cutTexts(response), "text")} longer than the model reads: the rest was cut off.`)
      : null,
    rows.length > 1 ? heatMap("Cosine similarity: 1 means the same, 0 unrelated", labels, matrix) : null,
    rows.length > 1
      ? table(
          "The nearest pairs",
          ["Text", "Text", "Similarity"],
          pairs.slice(0, PAIRS).map(({ one, other, value }) => [labels[one], labels[other], fixed(value)]),
        )
      : null,
    rows.length > 2
      ? pointMap(
          "Near points are similar texts. Two dimensions show only a part of the differences (principal components).",
          labels,
          rows,
        )
      : null,
    saveButtons(
      "similarity",
      () => [head, ...matrix.map((row, index) => [json.input[index], ...row])],
      () => ({ model: json.model, texts: json.input, embeddings: rows.map((row) => [...row]), similarity: matrix }),
    ),
    showSnippets("embed", "v1/embeddings", json),
  );
}

// Rerank.

function buildRerank(models) {
  const query = h("input", { name: "query", value: QUERY });
  const { area, field } = textsField("documents", "Documents", DOCUMENTS);
  const name = "rerankers";
  const boxes = models.map(({ id }, place) => h("input", { type: "checkbox", name, value: id, checked: !place }));
  const chosen = h(
    "fieldset",
    {},
    h("legend", {}, "Models, side by side"),
    boxes.map((box) => h("label", { class: "inline" }, box, box.value)),
  );
  const fields = [labelled("Query", query), field, chosen];
  return resultForm("Sort the documents", fields, async (signal) => {
    const documents = required(linesOf(area), "document");
    const names = required(boxes.filter((box) => box.checked).map((box) => box.value), "model");
    if (!query.value.trim()) throw new Error("Type a query.");
    const requests = names.map((model) => ({ model, query: query.value, documents }));
    const responses = [];
    for (const json of requests) responses.push(await send("v1/rerank", { json, signal }));
    return showRanking(requests, responses);
  });
}

function showRanking(requests, responses) {
  const { documents, query } = requests[0];
  const scores = responses.map(({ body }) => {
    const found = new Array(documents.length).fill(0);
    for (const { index, relevance_score: score } of body.results) found[index] = score;
    return found;
  });
  const order = documents.map((_, index) => index).sort((one, other) => scores[0][other] - scores[0][one]);
  const names = requests.map(({ model }) => model);
  const rows = order.map((index) => [documents[index], ...scores.map((each) => bar(each[index], fixed(each[index])))]);
  return h(
    "div",
    {},
    responses.map((response, place) => summary(response, names[place])),
    h("div", { class: "wide" }, table("The best document first", ["Document", ...names], rows)),
    saveButtons(
      "ranking",
      () => [["document", ...names], ...order.map((index) => [documents[index], ...scores.map((each) => each[index])])],
      () => ({ query, models: names, documents, scores }),
    ),
    showSnippets("rerank", "v1/rerank", requests[0]),
  );
}

// Classify, and entities.

function buildClassify(models) {
  const { area, field } = textsField("texts", "Texts", REVIEWS);
  const model = modelChoice(models);
  return resultForm("Classify the texts", [field, labelled("Model", model)], async (signal) => {
    const json = { model: model.value, input: required(linesOf(area), "text"), raw_scores: false };
    const response = await send("classify", { json, signal });
    return showLabels(response, json);
  });
}

function showLabels(response, json) {
  const found = response.body.data;
  const names = [...new Set(found.flat().map(({ label }) => label))].sort();
  const scores = found.map((labels) => new Map(labels.map(({ label, score }) => [label, score])));
  return h(
    "div",
    {},
    summary(response, count(found.length, "text")),
    json.input.map((text, index) =>
      table(
        excerpt(text, 80),
        ["Label", "Score"],
        [...found[index]]
          .sort((one, other) => other.score - one.score)
          .map(({ label, score }) => [label, bar(score, fixed(score))]),
      ),
    ),
    saveButtons(
      "labels",
      () => [["text", ...names], ...json.input.map((text, index) => [text, ...names.map((name) => scores[index].get(name))])],
      () => ({ model: json.model, texts: json.input, labels: found }),
    ),
    showSnippets("classify", "classify", json),
  );
}

function buildEntities(models) {
  const { area, field } = textsField("texts", "Texts", NEWS);
  const model = modelChoice(models);
  return resultForm("Find the entities", [field, labelled("Model", model)], async (signal) => {
    const texts = required(linesOf(area), "text");
    const json = { model: model.value, inputs: texts.map((text) => [text]), aggregation_strategy: "simple" };
    const response = await send("predict", { json, signal });
    return showEntities(response, json, texts);
  });
}

function showEntities(response, json, texts) {
  const found = response.body;
  return h(
    "div",
    {},
    summary(response, count(texts.length, "text")),
    texts.map((text, index) => h("p", { class: "entities" }, markEntities(text, found[index]))),
    saveButtons(
      "entities",
      () => [
        ["text", "entity", "label", "score", "start", "end"],
        ...found.flatMap((entities, index) =>
          entities.map((each) => [texts[index], each.word, each.entity_group, each.score, each.start, each.end]),
        ),
      ],
      () => ({ model: json.model, texts, entities: found }),
    ),
    showSnippets("entities", "predict", json),
  );
}

/** Return the text with its entities marked. Places count characters, and JavaScript's count UTF-16 units. */
function markEntities(text, entities) {
  const letters = [...text];
  const parts = [];
  let at = 0;
  for (const { start, end, entity_group: label, score } of entities) {
    parts.push(letters.slice(at, start).join(""));
    parts.push(h("mark", { title: fixed(score) }, letters.slice(start, end).join(""), h("small", {}, ` ${label}`)));
    at = end;
  }
  return [...parts, letters.slice(at).join("")];
}
