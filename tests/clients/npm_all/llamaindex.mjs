// LlamaIndex's embeddings of OpenAI's API, alone and in an index.
import { OpenAIEmbedding } from "@llamaindex/openai";
import { Document, Settings, VectorStoreIndex } from "llamaindex";
import { baseURL, inputs, report } from "./report.mjs";

const { EMBEDDER, UNKNOWN, TEXTS, QUERY, DOCUMENTS } = inputs;

const given = { baseURL: `${baseURL}/v1`, apiKey: "none is asked", model: EMBEDDER, maxRetries: 0 };
const embedder = new OpenAIEmbedding(given);
const patient = new OpenAIEmbedding({ ...given, maxRetries: 2 });

async function oneByOne() {
  const found = [];
  for (const text of TEXTS) found.push(await embedder.getTextEmbedding(text));
  return found;
}

async function retrieve() {
  Settings.embedModel = embedder;
  const documents = DOCUMENTS.map((text, place) => new Document({ text, id_: String(place) }));
  const index = await VectorStoreIndex.fromDocuments(documents);
  const found = await index.asRetriever({ similarityTopK: DOCUMENTS.length }).retrieve(QUERY);
  return found.map((entry) => [Number(entry.node.sourceNode.nodeId), entry.score]);
}

await report({
  "embed": () => embedder.getTextEmbeddingsBatch(TEXTS),
  "embed queries": oneByOne,
  "embed short": () => new OpenAIEmbedding({ ...given, dimensions: 64 }).getTextEmbeddingsBatch(TEXTS),
  "retrieve": retrieve,
  "error": () => new OpenAIEmbedding({ ...given, model: UNKNOWN }).getTextEmbeddingsBatch(TEXTS),
  "retried": async () => (await patient.getTextEmbeddingsBatch(TEXTS.slice(0, 2))).length,
});
