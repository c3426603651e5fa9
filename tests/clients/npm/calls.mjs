// Makes the calls that standard input lists, with the `openai` package as it comes, and prints what came back.
import { text } from "node:stream/consumers";
import OpenAI from "openai";

const { baseURL, calls, maxRetries } = JSON.parse(await text(process.stdin));
const client = new OpenAI({ baseURL, apiKey: "none is asked", maxRetries });

const kinds = {
  embed: async (given) => (await client.embeddings.create(given)).data.map((entry) => entry.embedding),
  list: async () => (await client.models.list()).data.map((model) => model.id),
  retrieve: async (id) => (await client.models.retrieve(id)).id,
};

const answers = [];
for (const [kind, given] of calls) {
  try {
    answers.push({ result: await kinds[kind](given) });
  } catch (error) {
    const { status, code, type, param, message } = error;
    answers.push({ error: { name: error.constructor.name, status, code, type, param, message } });
  }
}
console.log(JSON.stringify(answers));
