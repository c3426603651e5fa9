// @huggingface/inference, which posts to the address itself, and retries after a 503 alone.
import { InferenceClient } from "@huggingface/inference";
import { baseURL, inputs, report } from "./report.mjs";

const { TEXTS, QUERY, DOCUMENTS } = inputs;

const client = new InferenceClient("none is asked").endpoint(baseURL);
const classifier = new InferenceClient("none is asked").endpoint(`${baseURL}/predict`);

await report({
  "embed": () => client.featureExtraction({ inputs: TEXTS }),
  "embed short": () => client.featureExtraction({ inputs: TEXTS, dimensions: 64 }),
  "embed raw": () => client.featureExtraction({ inputs: TEXTS, normalize: false }),
  "similarity": () => client.sentenceSimilarity({ inputs: { source_sentence: QUERY, sentences: DOCUMENTS } }),
  "classify": () => classifier.textClassification({ inputs: TEXTS[0], parameters: {} }),
  "best label": () => classifier.textClassification({ inputs: TEXTS[0], parameters: { top_k: 1 } }),
  "error": () => client.featureExtraction({ inputs: TEXTS, prompt_name: "no-such-prompt" }),
  "two": async () => (await client.featureExtraction({ inputs: TEXTS.slice(0, 2) })).length,
});
