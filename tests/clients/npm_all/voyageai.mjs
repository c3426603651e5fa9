// voyageai, whose rerank without options looks like Cohere's.
import { VoyageAIClient } from "voyageai";
import { baseURL, inputs, report } from "./report.mjs";

const { EMBEDDER, RERANKER, UNKNOWN, TEXTS, TOO_LONG, QUERY, DOCUMENTS } = inputs;

const given = { environment: `${baseURL}/voyage/v1`, apiKey: "none is asked", maxRetries: 0 };
const client = new VoyageAIClient(given);
const patient = new VoyageAIClient({ ...given, maxRetries: 2 });

const texts = { model: EMBEDDER, input: TEXTS };
const asked = { model: RERANKER, query: QUERY, documents: DOCUMENTS };
const rows = async (asking, options) =>
  (await asking.embed({ ...texts, ...options })).data.map((entry) => entry.embedding);
const ranked = async (answer) => (await answer).data.map((entry) => [entry.index, entry.relevanceScore]);

await report({
  "embed": () => rows(client),
  "embed documents": () => rows(client, { inputType: "document" }),
  "embed as int8": () => rows(client, { outputDtype: "int8" }),
  "embed short": () => rows(client, { outputDimension: 64 }),
  "usage": async () => (await client.embed(texts)).usage.totalTokens,
  "rerank": () => ranked(client.rerank(asked)),
  "best": () => ranked(client.rerank({ ...asked, topK: 1 })),
  "error": () => rows(client, { model: UNKNOWN }),
  "too long": () => rows(client, { input: [TOO_LONG], truncation: false }),
  "retried": async () => (await rows(patient, { input: TEXTS.slice(0, 2) })).length,
});
