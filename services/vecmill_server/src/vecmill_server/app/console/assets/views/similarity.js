// Try: similarities of texts. `similarity_result` shows them, and is loaded while the server computes.

import { choice, h, labelled } from "../elements.js";
import { SENTENCES } from "../examples.js";
import { embedTexts, requireAtMost } from "../many_texts.js";
import { resultForm } from "../result_form.js";
import { importPart } from "../server.js";
import { textsField } from "../texts.js";
import { modelChoice, required } from "./try_forms.js";

// Of more, the similarities take hundreds of megabytes of the browser.
const MOST_TEXTS = 3_000;

/** Load what shows the result. */
export function loadSimilarityResult() {
  return importPart(() => import("./similarity_result.js"));
}

export function buildSimilarity(models) {
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
    loadSimilarityResult().catch(() => {}); // told when it is to be shown
    const answer = await embedTexts(json, signal, tell);
    return { json, ...answer, limit: models.find(({ id }) => id === json.model).max_model_len };
  }
  async function show(result) {
    return (await loadSimilarityResult()).showSimilarity(result);
  }
  const fields = [field, labelled("Model", model), options];
  return resultForm("similarity", "Compare the texts", fields, { run, show, isEager: true });
}
