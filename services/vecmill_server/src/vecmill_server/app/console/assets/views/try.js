// The view "Try": embed, rerank or classify texts, and see the result.

import { choice, fill, h, labelled, scrolled, table, tabs } from "../elements.js";
import { DOCUMENTS, NEWS, QUERY, REVIEWS, SENTENCES } from "../examples.js";
import { analyse, embedTexts, inParts, requireAtMost, total } from "../many_texts.js";
import { count, fixed, time } from "../numbers.js";
import { COLOURS, bar, groupMark, heatMap, pointMap } from "../pictures.js";
import { resultForm } from "../result_form.js";
import { listModels, send } from "../server.js";
import { showSnippets } from "../snippets.js";
import { saveButtons } from "../take_away.js";
import { excerpt, longText, textsField } from "../texts.js";
import { countCut, tellCut, tellCutPlaces } from "../truncation.js";
import { cosine, decodeBase64, findGroups } from "../vectors.js";

// Of more, the similarities take hundreds of megabytes of the browser.
const MOST_TEXTS = 3_000;
// With fewer texts, the heat map shows their groups.
const TEXTS_WITH_GROUPS = 12;
const MOST_GROUPS = 20;
const FOUND = 10;
const ROWS_SHOWN = 100;
// Of more texts, a table each is too long, and the best labels are shown.
const TABLES_SHOWN = 2;
const NEXT_LABELS = 2;

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
  const links = tabs("What to try", "try", kinds.map(([each, { title }]) => [each, title]), name);
  const element = h("section", {}, h("h2", {}, "Try"), links, kind.build(modelsFor(models, kind.capability)));
  return { title: kind.title, element };
}

function modelsFor(models, capability) {
  return models.filter((model) => model.capabilities?.includes(capability));
}

function modelChoice(models) {
  return choice("model", models.map(({ id }) => [id, id]), models[0].id);
}

/** Return the models with those first that can do the least else, such as a reranker before an embedder that also ranks. */
function specialistsFirst(models) {
  return [...models].sort((one, other) => one.capabilities.length - other.capabilities.length);
}

function required(texts, what) {
  if (!texts.length) throw new Error(`Type at least one ${what}.`);
  return texts;
}

/** One sentence about a response. `tokens` is `undefined` where the route does not count them. */
function summary(tokens, ms, what) {
  const parts = [what, ...(tokens === undefined ? [] : [count(tokens, "token")]), `${time(ms / 1000)}`];
  return h("p", { class: "summary" }, parts.join(", "));
}

/** Return the first rows of a long table, and a button that shows the others. */
function shortened(caption, headings, rows) {
  return scrolled(caption, firstOf(rows, (shown) => table(caption, headings, shown)));
}

/** Return what `draw` makes of the first of many, and a button that shows the others. */
function firstOf(all, draw) {
  const place = h("div", {});
  const show = (shown) =>
    fill(
      place,
      draw(shown),
      shown.length < all.length
        ? h("button", { type: "button", onclick: () => show(all) }, `Show all ${all.length.toLocaleString("en")}`)
        : null,
    );
  show(all.slice(0, ROWS_SHOWN));
  return place;
}

// Similarity.

function buildSimilarity(models) {
  const { field, read } = textsField("texts", "Texts to compare", SENTENCES);
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
      h(
        "div",
        {},
        h("label", { class: "inline" }, normalize, h("span", {}, "Normalise")),
        h("small", {}, "Scale each embedding to length 1."),
      ),
    ),
  );
  async function run(signal, tell) {
    const texts = required(read(), "text");
    requireAtMost(texts, MOST_TEXTS, "This view compares");
    const json = { model: model.value, input: texts };
    if (purpose.value) json.input_type = purpose.value;
    if (prompt.value) json.prompt = prompt.value;
    if (dimensions.value) json.dimensions = Number(dimensions.value);
    if (!normalize.checked) json.normalize = false;
    const answer = await embedTexts(json, signal, tell);
    return { json, ...answer, limit: models.find(({ id }) => id === json.model).max_model_len };
  }
  const fields = [field, labelled("Model", model), options];
  return resultForm("similarity", "Compare the texts", fields, { run, show: showSimilarity, isEager: true });
}

async function showSimilarity(result) {
  const { json, embeddings, tokens, ms } = result;
  const rows = embeddings.map(decodeBase64);
  const { matrix, joins, order, pairs, drawn, places } = await analyse(rows);
  const truncated = new Set(result.truncated);
  const labels = json.input.map((text, index) => (truncated.has(index) ? `(cut off) ${text}` : text));
  const head = ["text", ...json.input];
  const hasGroups = rows.length > TEXTS_WITH_GROUPS;
  const groups = hasGroups ? showGroups(labels, matrix, joins) : null;
  const drawMap = (members) =>
    pointMap("Near points are similar texts. Two dimensions show only a part of the differences (principal components).", labels, places, drawn, members);
  const map = rows.length > 2 ? h("div", {}, drawMap(groups?.members())) : null;
  groups?.onChange((members) => fill(map, drawMap(members)));
  return h(
    "div",
    {},
    summary(tokens, ms, `${count(rows.length, "text")}, ${count(rows[0].length, "number")} each`),
    tellCutPlaces(result.truncated, rows.length, result.limit),
    hasGroups ? searchBox(json, rows, labels) : null,
    rows.length > 1
      ? heatMap(
          `Cosine similarity: 1 means the same, 0 unrelated${hasGroups ? "; similar texts are beside each other" : ""}`,
          labels,
          matrix,
          hasGroups ? order : undefined,
        )
      : null,
    rows.length > 1
      ? table(
          "The nearest pairs",
          ["Text", "Text", "Similarity"],
          pairs.map(({ one, other, value }) => [longText(labels[one]), longText(labels[other]), fixed(value)]),
        )
      : null,
    groups?.element,
    map,
    saveButtons(
      "similarity",
      () => [head, ...matrix.map((row, index) => [json.input[index], ...row])],
      () => ({ model: json.model, texts: json.input, embeddings: rows.map((row) => [...row]), similarity: matrix.map((row) => [...row]) }),
    ),
    showSnippets("embed", "v1/embeddings", json),
  );
}

/** Return `{element, members, onChange}`: groups of similar texts, whose number the reader chooses. */
function showGroups(labels, matrix, joins) {
  const most = Math.min(MOST_GROUPS, labels.length);
  const usual = Math.min(most, Math.max(2, Math.round(Math.sqrt(labels.length / 2))));
  const number = h("input", { type: "range", min: "2", max: String(most), value: String(usual), "aria-label": "Number of groups" });
  const list = h("div", { class: "groups" });
  let found = [];
  let tell = () => {};
  const draw = () => {
    found = findGroups(matrix, Number(number.value), joins);
    fill(
      list,
      found.map((members, group) =>
        h(
          "details",
          {},
          h("summary", {}, groupMark(group), ` ${count(members.length, "text")}: ${excerpt(labels[members[0]], 100)}`),
          h("ol", {}, members.map((row) => h("li", { value: row + 1 }, longText(labels[row])))),
        ),
      ),
    );
  };
  number.addEventListener("input", () => {
    draw();
    tell(found);
  });
  draw();
  const element = h(
    "section",
    {},
    h("h3", {}, "Groups of similar texts"),
    h("label", { class: "inline" }, "Fewer", number, "more"),
    h("p", { class: "note" }, "Each is named by its most typical text (average linkage)."),
    list,
  );
  return { element, members: () => found, onChange: (call) => (tell = call) };
}

/** Return a box that finds the texts nearest to a query. */
function searchBox(json, rows, labels) {
  const query = h("input", { type: "search", required: true, "aria-label": "Search these texts by meaning", placeholder: "Search these texts by meaning" });
  const found = h("div", { "aria-live": "polite" });
  async function search() {
    // With a prompt of the model's before the texts, the query has its own.
    const purpose = json.input_type ? { input_type: "query" } : {};
    const { body } = await send("v1/embeddings", { json: { ...json, ...purpose, input: [query.value], encoding_format: "base64" } });
    const wanted = decodeBase64(body.data[0].embedding);
    const nearest = rows.map((row, index) => ({ index, value: cosine(row, wanted) })).sort((one, other) => other.value - one.value);
    fill(
      found,
      table(
        `Nearest to: ${excerpt(query.value, 80)}`,
        ["Number", "Text", "Similarity"],
        nearest.slice(0, FOUND).map(({ index, value }) => [index + 1, longText(labels[index]), fixed(value)]),
      ),
    );
  }
  return h(
    "form",
    {
      class: "search",
      role: "search",
      autocomplete: "off",
      onsubmit: (event) => {
        event.preventDefault();
        search().catch((error) => fill(found, h("p", { class: "problem", role: "alert" }, error.message)));
      },
    },
    h("div", { class: "actions" }, query, h("button", { type: "submit" }, "Search")),
    found,
  );
}

// Rerank.

function buildRerank(models) {
  const query = h("input", { name: "query", value: QUERY });
  const { field, read } = textsField("documents", "Documents", DOCUMENTS);
  const boxes = specialistsFirst(models).map(({ id }, place) => h("input", { type: "checkbox", name: "rerankers", value: id, checked: !place }));
  const chosen = h(
    "fieldset",
    {},
    h("legend", {}, "Models, side by side"),
    boxes.map((box) => h("label", { class: "inline" }, box, box.value)),
  );
  async function run(signal, tell) {
    const documents = required(read(), "document");
    const names = required(boxes.filter((box) => box.checked).map((box) => box.value), "model");
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
  const fields = [labelled("Query", query), field, chosen];
  return resultForm("ranking", "Sort the documents", fields, { run, show: showRanking });
}

function showRanking({ query, documents, answers }) {
  const order = documents.map((_, index) => index).sort((one, other) => answers[0].scores[other] - answers[0].scores[one]);
  const names = answers.map(({ model }) => model);
  const rows = order.map((index) => [longText(documents[index]), ...answers.map(({ scores }) => bar(scores[index], fixed(scores[index])))]);
  return h(
    "div",
    {},
    answers.map(({ model, tokens, ms, cut }) => [summary(tokens, ms, model), tellCut(cut.count, cut.model)]),
    shortened(names.length > 1 ? `The best document of ${names[0]} first` : "The best document first", ["Document", ...names], rows),
    saveButtons(
      "ranking",
      () => [["document", ...names], ...order.map((index) => [documents[index], ...answers.map(({ scores }) => scores[index])])],
      () => ({ query, models: names, documents, scores: answers.map(({ scores }) => scores) }),
    ),
    showSnippets("rerank", "v1/rerank", { model: names[0], query, documents }),
  );
}

// Classify, and entities.

function buildClassify(models) {
  const { field, read } = textsField("texts", "Texts", REVIEWS);
  const model = modelChoice(models);
  async function run(signal, tell) {
    const json = { model: model.value, input: required(read(), "text"), raw_scores: false };
    const parts = await inParts(json.input, (input) => send("classify", { json: { ...json, input }, signal }), tell);
    return {
      json,
      labels: parts.flatMap(({ body }) => body.data),
      ms: total(parts, ({ ms }) => ms),
      tokens: total(parts, ({ body }) => body.usage?.total_tokens),
      cut: cutOf(parts, models, json.model),
    };
  }
  return resultForm("labels", "Classify the texts", [field, labelled("Model", model)], { run, show: showLabels });
}

function showLabels({ json, labels, ms, tokens, cut }) {
  const texts = json.input;
  const names = [...new Set(labels.flat().map(({ label }) => label))].sort();
  const scores = labels.map((found) => new Map(found.map(({ label, score }) => [label, score])));
  const sorted = labels.map((found) => [...found].sort((one, other) => other.score - one.score));
  const write = ({ label, score }) => [label, bar(score, fixed(score))];
  const writeNext = (found) => found.slice(1, 1 + NEXT_LABELS).map(({ label, score }) => `${label} ${fixed(score)}`).join(", ");
  return h(
    "div",
    {},
    summary(tokens, ms, count(texts.length, "text")),
    tellCut(cut.count, cut.model),
    texts.length <= TABLES_SHOWN
      ? texts.map((text, index) => table(excerpt(text, 80), ["Label", "Score"], sorted[index].map(write)))
      : shortened(
          "The best label of each text",
          ["Text", "Label", "Score", ...(names.length > 1 ? ["Next"] : [])],
          texts.map((text, index) => [longText(text), ...write(sorted[index][0]), ...(names.length > 1 ? [writeNext(sorted[index])] : [])]),
        ),
    saveButtons(
      "labels",
      () => [["text", ...names], ...texts.map((text, index) => [text, ...names.map((name) => scores[index].get(name))])],
      () => ({ model: json.model, texts, labels }),
    ),
    showSnippets("classify", "classify", json),
  );
}

/** Return how many texts of the parts of a request were cut off, and by which model. */
function cutOf(parts, models, name) {
  return { count: total(parts, ({ headers }) => countCut(headers)), model: models.find(({ id }) => id === name) };
}

function buildEntities(models) {
  const { field, read } = textsField("texts", "Texts", NEWS);
  const model = modelChoice(models);
  async function run(signal, tell) {
    const texts = required(read(), "text");
    const json = { model: model.value, inputs: texts.map((text) => [text]), aggregation_strategy: "simple" };
    const parts = await inParts(json.inputs, (inputs) => send("predict", { json: { ...json, inputs }, signal }), tell);
    const entities = parts.flatMap(({ body }) => body);
    return { json, texts, entities, ms: total(parts, ({ ms }) => ms), cut: cutOf(parts, models, json.model) };
  }
  return resultForm("entities", "Find the entities", [field, labelled("Model", model)], { run, show: showEntities });
}

function showEntities({ json, texts, entities, ms, cut }) {
  const counts = new Map();
  for (const { entity_group: name } of entities.flat()) counts.set(name, (counts.get(name) || 0) + 1);
  const names = [...counts.keys()].sort();
  return h(
    "div",
    {},
    summary(undefined, ms, count(texts.length, "text")),
    tellCut(cut.count, cut.model),
    h("p", { class: "labels" }, names.map((name, place) => [h("mark", { class: `entity-${place % COLOURS}` }, name), ` ${counts.get(name)}  `])),
    firstOf(texts, (shown) => shown.map((text, index) => h("p", { class: "entities" }, longText(markEntities(text, entities[index], names))))),
    saveButtons(
      "entities",
      () => [
        ["text", "entity", "label", "score", "start", "end"],
        ...entities.flatMap((found, index) => found.map((each) => [texts[index], each.word, each.entity_group, each.score, each.start, each.end])),
      ],
      () => ({ model: json.model, texts, entities }),
    ),
    showSnippets("entities", "predict", json),
  );
}

/** Return the text with its entities marked. Places count characters, and JavaScript's count UTF-16 units. */
function markEntities(text, entities, names) {
  const letters = [...text];
  const parts = [];
  let at = 0;
  for (const { start, end, entity_group: label, score } of entities) {
    parts.push(letters.slice(at, start).join(""));
    parts.push(h("mark", { class: `entity-${names.indexOf(label) % COLOURS}`, title: fixed(score) }, letters.slice(start, end).join(""), h("small", {}, ` ${label}`)));
    at = end;
  }
  return [...parts, letters.slice(at).join("")];
}
