// The view "Compare": two served models, or one model with two plans, on the same texts.

import { choice, h, labelled, table } from "../elements.js";
import { SENTENCES } from "../examples.js";
import { count, fixed, percent, short } from "../numbers.js";
import { heatMap } from "../pictures.js";
import { resultForm } from "../result_form.js";
import { listModels, send } from "../server.js";
import { saveButtons } from "../take_away.js";
import { linesOf, textsField } from "../texts.js";
import { cosine, cosineMatrix, decodeBase64, nearestPairs, neighbours, ranks } from "../vectors.js";

const NEIGHBOURS = 10;
const CHANGED_PAIRS = 10;

export async function openCompare() {
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
  const names = models.map(({ id }) => [id, id]);
  const first = choice("first", names, models[0].id);
  const second = choice("second", names, models[1].id);
  const { area, field } = textsField("texts", "Texts", SENTENCES, 8);
  const find = (name) => models.find(({ id }) => id === name);
  const fields = [h("div", { class: "grid" }, labelled("First model", first), labelled("Second model", second)), field];
  const form = resultForm("Compare the models", fields, async (signal) => {
    const texts = linesOf(area);
    if (texts.length < 3) throw new Error("Type at least three texts.");
    const one = await embed(find(first.value), texts, signal);
    const other = await embed(find(second.value), texts, signal);
    return showComparison(texts, one, other);
  });
  return { title, element: h("section", {}, h("h2", {}, title), form) };
}

async function embed(model, input, signal) {
  const json = { model: model.id, input, encoding_format: "base64" };
  const { body, ms } = await send("v1/embeddings", { json, signal });
  const rows = body.data.map(({ embedding }) => decodeBase64(embedding));
  return { model, rows, ms, tokens: body.usage.total_tokens, matrix: cosineMatrix(rows) };
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
  const changes = changedPairs(one.matrix, other.matrix);
  return h(
    "div",
    {},
    table("The two requests", ["", ...names], facts),
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
    table(
      "Pairs whose rank changes most (1 is the nearest pair)",
      ["Text", "Text", ...names.map((name) => `Rank, ${name}`)],
      changes.slice(0, CHANGED_PAIRS).map(({ a, b, before, after }) => [texts[a], texts[b], before + 1, after + 1]),
    ),
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
