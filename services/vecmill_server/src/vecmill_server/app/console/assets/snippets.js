// Shows a request as a shell command and as programs, ready to copy.

import { h, fill, newId } from "./elements.js";
import { BASE } from "./server.js";

const NEEDS_KEY = document.documentElement.dataset.needsKey === "true";
const KEY = NEEDS_KEY ? "YOUR_KEY" : "none";
// Fields that the clients have as arguments. The others go into the body as they are.
const OPENAI_ARGUMENTS = new Set(["model", "input", "dimensions", "encoding_format"]);

/** Return `{language: program}` for a request of `kind`: `embed`, `rerank`, `classify` or `entities`. */
export function writeSnippets(kind, path, json, base = BASE.href) {
  return {
    curl: writeCurl(base + path, json),
    "Python (openai)": kind === "embed" ? writeOpenAi(base, json) : writeOpenAiPost(base, path, json),
    JavaScript: writeJavaScript(base + path, json),
    ...(kind === "embed" ? { LangChain: writeLangChain(base, json) } : {}),
    ...(kind === "rerank" ? { LangChain: writeLangChainRerank(base, json) } : {}),
  };
}

/** Return an element with the request in each language, one shown at a time. */
export function showSnippets(kind, path, json) {
  const snippets = writeSnippets(kind, path, json);
  const languages = Object.keys(snippets);
  const code = h("code");
  const name = newId("language");
  const copy = h(
    "button",
    {
      type: "button",
      onclick: async () => {
        fill(copy, (await copyContent(code)) ? "Copied" : "Selected: press Ctrl+C");
        setTimeout(() => fill(copy, "Copy"), 1500);
      },
    },
    "Copy",
  );
  const show = (language) => fill(code, snippets[language]);
  show(languages[0]);
  return h(
    "details",
    { class: "snippets" },
    h("summary", {}, "This request in a program"),
    h(
      "fieldset",
      {},
      h("legend", {}, "Language"),
      languages.map((language, place) =>
        h(
          "label",
          { class: "inline" },
          h("input", { type: "radio", name, value: language, checked: !place, onchange: () => show(language) }),
          language,
        ),
      ),
    ),
    h("pre", { tabindex: "0" }, code),
    copy,
  );
}

/** Copy the text of an element, which stays selected where browsers offer no clipboard: over HTTP without TLS. */
async function copyContent(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(element);
    return document.execCommand("copy");
  }
}

function writeCurl(url, json) {
  const key = NEEDS_KEY ? `\n  -H 'authorization: Bearer ${KEY}' \\` : "";
  return `curl ${quoteShell(url)} \\\n  -H 'content-type: application/json' \\${key}\n  -d ${quoteShell(JSON.stringify(json))}`;
}

function writeJavaScript(url, json) {
  const key = NEEDS_KEY ? `, authorization: "Bearer ${KEY}"` : "";
  return `const response = await fetch(${JSON.stringify(url)}, {
  method: "POST",
  headers: { "content-type": "application/json"${key} },
  body: JSON.stringify(${JSON.stringify(json, null, 2).replaceAll("\n", "\n  ")}),
});
console.log(await response.json());`;
}

function writeClient(base) {
  return `from openai import OpenAI

client = OpenAI(base_url=${quotePython(`${base}v1`)}, api_key="${KEY}")`;
}

function writeOpenAi(base, json) {
  const entries = Object.entries(json);
  const known = entries.filter(([name]) => OPENAI_ARGUMENTS.has(name));
  const more = Object.fromEntries(entries.filter(([name]) => !OPENAI_ARGUMENTS.has(name)));
  const lines = known.map(([name, value]) => `    ${name}=${quotePython(value, 4)},`);
  if (Object.keys(more).length) lines.push(`    extra_body=${quotePython(more, 4)},`);
  return `${writeClient(base)}
response = client.embeddings.create(
${lines.join("\n")}
)
print(len(response.data), "embeddings of", len(response.data[0].embedding), "numbers")`;
}

function writeOpenAiPost(base, path, json) {
  return `${writeClient(base)}
response = client.post(
    ${quotePython(base + path)},
    cast_to=object,
    body=${quotePython(json, 4)},
)
print(response)`;
}

function writeLangChain(base, json) {
  const dimensions = json.dimensions ? `\n    dimensions=${json.dimensions},` : "";
  const { model, input, dimensions: _, encoding_format: __, ...more } = json;
  const extra = Object.keys(more).length ? `\n    model_kwargs={"extra_body": ${quotePython(more, 4)}},` : "";
  return `from langchain_openai import OpenAIEmbeddings

embeddings = OpenAIEmbeddings(
    model=${quotePython(model)},
    base_url=${quotePython(`${base}v1`)},
    api_key="${KEY}",
    check_embedding_ctx_length=False,${dimensions}${extra}
)
vectors = embeddings.embed_documents(${quotePython(input, 0)})
print(len(vectors), "embeddings of", len(vectors[0]), "numbers")`;
}

function writeLangChainRerank(base, { model, query, documents }) {
  return `import cohere
from langchain_cohere import CohereRerank

client = cohere.ClientV2(api_key="${KEY}", base_url=${quotePython(base.replace(/\/$/, ""))})
reranker = CohereRerank(client=client, model=${quotePython(model)}, top_n=${documents.length})
print(reranker.rerank(${quotePython(documents, 0)}, ${quotePython(query)}))`;
}

function quoteShell(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Return a value as Python writes it; lists and objects on several lines, `indent` spaces from the left. */
function quotePython(value, indent = null) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = indent === null ? null : indent + 4;
  const items = Array.isArray(value)
    ? value.map((each) => quotePython(each, inner))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${quotePython(each, inner)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  if (indent === null) return `${open}${items.join(", ")}${close}`;
  const edge = " ".repeat(indent);
  return `${open}\n${items.map((item) => `${edge}    ${item},`).join("\n")}\n${edge}${close}`;
}
