// The Vercel AI SDK, with its providers for OpenAI, for compatible servers and for Cohere.
import { createCohere } from "@ai-sdk/cohere";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, embedMany, rerank } from "ai";
import { baseURL, inputs, report } from "./report.mjs";

const { EMBEDDER, RERANKER, UNKNOWN, TEXTS, TOO_LONG, QUERY, DOCUMENTS } = inputs;

const apiKey = "none is asked";
const openai = createOpenAI({ baseURL: `${baseURL}/v1`, apiKey });
const compatible = createOpenAICompatible({ name: "vecmill", baseURL: `${baseURL}/v1`, apiKey });
const cohere = createCohere({ baseURL: `${baseURL}/v2`, apiKey });

const short = { dimensions: 64 };

const many = (provider, { model = EMBEDDER, ...options } = {}) =>
  embedMany({ model: provider.embeddingModel(model), values: TEXTS, maxRetries: 0, ...options });
const rows = async (provider, options) => (await many(provider, options)).embeddings;
const usage = async (provider) => (await many(provider)).usage.tokens;
const retried = async (provider) => (await rows(provider, { values: TEXTS.slice(0, 2), maxRetries: 2 })).length;
const oneByOne = async (model) => {
  const found = [];
  for (const value of TEXTS) found.push((await embed({ model, value, maxRetries: 0 })).embedding);
  return found;
};
const ranked = async (options) => {
  const asked = { model: cohere.rerankingModel(RERANKER), query: QUERY, documents: DOCUMENTS, maxRetries: 0 };
  const found = await rerank({ ...asked, ...options });
  return found.ranking.map((entry) => [entry.originalIndex, entry.score]);
};

await report({
  "embed openai": () => rows(openai),
  "embed openai-compatible": () => rows(compatible),
  "embed cohere": () => rows(cohere),
  "embed one by one": () => oneByOne(openai.embeddingModel(EMBEDDER)),
  "embed short openai": () => rows(openai, { providerOptions: { openai: short } }),
  "embed short openai-compatible": () => rows(compatible, { providerOptions: { openaiCompatible: short } }),
  "usage openai": () => usage(openai),
  "usage openai-compatible": () => usage(compatible),
  "usage cohere": () => usage(cohere),
  "rerank": () => ranked(),
  "best": () => ranked({ topN: 1 }),
  "error openai": () => rows(openai, { model: UNKNOWN }),
  "error openai-compatible": () => rows(compatible, { model: UNKNOWN }),
  "error cohere": () => rows(cohere, { model: UNKNOWN }),
  "too long": () => rows(cohere, { values: [TOO_LONG], providerOptions: { cohere: { truncate: "NONE" } } }),
  "retried openai": () => retried(openai),
  "retried openai-compatible": () => retried(compatible),
  "retried cohere": () => retried(cohere),
});
