// Try: the entities in texts, marked where they are.

import { card, choice, h, labelled } from "../elements.js";
import { NEWS } from "../examples.js";
import { inParts, total } from "../many_texts.js";
import { count, fixed } from "../numbers.js";
import { COLOURS } from "../pictures.js";
import { resultForm } from "../result_form.js";
import { send } from "../server.js";
import { showSnippets } from "../snippets.js";
import { saveButtons } from "../take_away.js";
import { longText, textsField } from "../texts.js";
import { tellCut } from "../truncation.js";
import { joinWords } from "../words.js";
import { cutOf, firstOf, modelChoice, required, summary } from "./try_forms.js";

const SIMPLE = "simple";
const STRATEGIES = [
  ["first", "whole words, by their first token"],
  ["max", "whole words, by their surest token"],
  [SIMPLE, "tokens, as the model labels them"],
];

export function buildEntities(models) {
  const { field, read } = textsField("texts", "Texts", NEWS);
  const model = modelChoice(models);
  const strategy = choice("strategy", STRATEGIES, STRATEGIES[0][0]);
  async function run(signal, tell) {
    const texts = required(read(), "text");
    // Words are joined here, of the labels of tokens.
    const asked = strategy.value === SIMPLE ? SIMPLE : "none";
    const json = { model: model.value, inputs: texts.map((text) => [text]), aggregation_strategy: asked };
    const parts = await inParts(json.inputs, (inputs) => send("predict", { json: { ...json, inputs }, signal }), tell);
    const found = parts.flatMap(({ body }) => body);
    const entities = asked === SIMPLE ? found : found.map((tokens, index) => joinWords(texts[index], tokens, strategy.value));
    return { json, texts, entities, ms: total(parts, ({ ms }) => ms), cut: cutOf(parts, models, json.model) };
  }
  const fields = [field, labelled("Model", model), labelled("Entities of", strategy, "As aggregation_strategy of transformers: first, max or simple.")];
  return resultForm("entities", "Find the entities", fields, { run, show: showEntities });
}

function showEntities({ json, texts, entities, ms, cut }) {
  const counts = new Map();
  for (const { entity_group: name } of entities.flat()) counts.set(name, (counts.get(name) || 0) + 1);
  const names = [...counts.keys()].sort();
  return h(
    "div",
    { class: "cards" },
    h("div", { class: "wide-card" }, summary(undefined, ms, count(texts.length, "text")), tellCut(cut.count, cut.model)),
    card(
      "Entities",
      "wide-card",
      names.length ? null : h("p", { class: "note" }, "The model finds no entities in these texts."),
      h("p", { class: "labels" }, names.map((name, place) => [h("mark", { class: `entity-${place % COLOURS}` }, name), ` ${counts.get(name)}  `])),
      firstOf(texts, (shown) => shown.map((text, index) => h("p", { class: "entities" }, longText(markEntities(text, entities[index], names))))),
    ),
    h(
      "div",
      { class: "wide-card" },
      saveButtons(
        "entities",
        () => [
          ["text", "entity", "label", "score", "start", "end"],
          ...entities.flatMap((found, index) => found.map((each) => [texts[index], each.word, each.entity_group, each.score, each.start, each.end])),
        ],
        () => ({ model: json.model, texts, entities }),
      ),
      showSnippets("entities", "predict", json),
    ),
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
