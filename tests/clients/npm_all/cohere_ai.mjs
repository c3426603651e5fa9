// cohere-ai, both of its clients.
import { CohereClient, CohereClientV2 } from "cohere-ai";
import { baseURL, inputs, report } from "./report.mjs";

const { EMBEDDER, RERANKER, UNKNOWN, TEXTS, TOO_LONG, HARD_TEXT, QUERY, DOCUMENTS } = inputs;

const given = { environment: baseURL, token: "none is asked", maxRetries: 0 };
const v1 = new CohereClient(given);
const v2 = new CohereClientV2(given);
const patient = new CohereClientV2({ ...given, maxRetries: 2 });

const texts = { model: EMBEDDER, texts: TEXTS, inputType: "search_document" };
const asked = { model: RERANKER, query: QUERY, documents: DOCUMENTS };
const kinds = ["float", "int8", "uint8", "binary", "ubinary", "base64"];

const embedded = (client, options) => client.embed({ ...texts, embeddingTypes: ["float"], ...options });
const floats = async (client, options) => (await embedded(client, options)).embeddings.float;
const tokens = (answer) => answer.meta.billedUnits.inputTokens;
const ranked = async (answer) => (await answer).results.map((entry) => [entry.index, entry.relevanceScore]);

await report({
  "embed v1": async () => (await v1.embed(texts)).embeddings,
  "embed v2": () => floats(v2),
  "embed v2 in kinds": async () => (await embedded(v2, { embeddingTypes: kinds })).embeddings,
  "usage v1": async () => tokens(await v1.embed(texts)),
  "usage v2": async () => tokens(await embedded(v2)),
  "rerank v1": () => ranked(v1.rerank(asked)),
  "rerank v2": () => ranked(v2.rerank(asked)),
  "best of v2": () => ranked(v2.rerank({ ...asked, topN: 1 })),
  "tokenize and join": async () => (await v1.tokenize({ text: HARD_TEXT, model: EMBEDDER })).tokenStrings.join(""),
  "models": async () => (await v1.models.list()).models.map((model) => model.name),
  "error": () => floats(v2, { model: UNKNOWN }),
  "error v1": () => v1.embed({ ...texts, model: UNKNOWN }),
  "too long": () => floats(v2, { texts: [TOO_LONG], truncate: "NONE" }),
  "retried": async () => (await floats(patient, { texts: TEXTS.slice(0, 2) })).length,
});
