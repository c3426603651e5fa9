// Try: labels of texts.

import { card, h, labelled, table } from "../elements.js";
import { REVIEWS } from "../examples.js";
import { inParts, total } from "../many_texts.js";
import { count, fixed } from "../numbers.js";
import { bar } from "../pictures.js";
import { resultForm } from "../result_form.js";
import { send } from "../server.js";
import { showSnippets } from "../snippets.js";
import { saveButtons } from "../take_away.js";
import { excerpt, longText, textsField } from "../texts.js";
import { tellCut } from "../truncation.js";
import { cutOf, modelChoice, required, shortened, summary } from "./try_forms.js";

// Of more texts, a table each is too long, and the best labels are shown.
const TABLES_SHOWN = 2;
const NEXT_LABELS = 2;

export function buildClassify(models) {
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
    { class: "cards" },
    h("div", { class: "wide-card" }, summary(tokens, ms, count(texts.length, "text")), tellCut(cut.count, cut.model)),
    texts.length <= TABLES_SHOWN
      ? texts.map((text, index) => card(null, texts.length === 1 ? "wide-card" : null, table(excerpt(text, 80), ["Label", "Score"], sorted[index].map(write))))
      : card(
          null,
          "wide-card",
          shortened(
            "The best label of each text",
            ["Text", "Label", "Score", ...(names.length > 1 ? ["Next"] : [])],
            texts.map((text, index) => [longText(text), ...write(sorted[index][0]), ...(names.length > 1 ? [writeNext(sorted[index])] : [])]),
          ),
        ),
    h(
      "div",
      { class: "wide-card" },
      saveButtons(
        "labels",
        () => [["text", ...names], ...texts.map((text, index) => [text, ...names.map((name) => scores[index].get(name))])],
        () => ({ model: json.model, texts, labels }),
      ),
      showSnippets("classify", "classify", json),
    ),
  );
}
