// What a file becomes as the input of a batch, and what the errors of a batch say.

import { count } from "./numbers.js";
import { decodeText, readTextsWithIds } from "./text_files.js";

export const ENDPOINTS = ["/v1/embeddings", "/v1/rerank"];
const REQUESTS_TYPE = "jsonl";
// Of a file with texts, which the page holds several times over. Files with requests are sent as they are.
const MOST_BYTES = 64 * 2 ** 20;
// By default a server takes no more requests in a batch.
const MOST_TEXTS = 50_000;
const MOST_ID_LETTERS = 512;
const LOOKED_AT_BYTES = 2 ** 16;
const IDS_SHOWN = 5;

/**
 * Return what a batch can be started with: `{file, note}` for a file with requests, `{texts, ids, note}` for one with texts.
 *
 * `file` is a File or a Blob with a name. Throws an error for a file that is too large or has no texts.
 */
export async function readBatchFile(file) {
  const isLines = file.name.toLowerCase().endsWith(`.${REQUESTS_TYPE}`);
  const beginning = isLines ? await file.slice(0, LOOKED_AT_BYTES).text() : "";
  if (isLines && !hasTexts(beginning)) return { file, note: null };
  if (file.size > MOST_BYTES) throw new Error(`${file.name} is larger than ${MOST_BYTES / 2 ** 20} MB. For more, there is vecmill embed.`);
  const { content, isUtf8 } = decodeText(await file.arrayBuffer());
  const { texts, ids, source } = readTextsWithIds(file.name, content);
  if (texts.length > MOST_TEXTS) {
    throw new Error(`${file.name} has ${count(texts.length, "text")}, and a batch at most ${count(MOST_TEXTS, "request")}. For more, there is vecmill embed.`);
  }
  const from = source ? ` from ${source}` : "";
  const encoding = isUtf8 ? "" : " The file is not UTF-8, and was read as Windows-1252.";
  return { texts, ids: fitIds(ids, texts.length), note: `${count(texts.length, "text")}${from}: a request for an embedding each.${encoding}` };
}

/** Return whether the first line is a text or has one, and is no request. A line that is cut or is no JSON has none. */
function hasTexts(beginning) {
  const line = beginning.split("\n").find((each) => each.trim()) || "";
  try {
    const first = JSON.parse(line);
    if (typeof first === "string") return true;
    return Boolean(first) && typeof first === "object" && !("custom_id" in first) && !("body" in first) && readTextsWithIds("a.jsonl", line).texts.length > 0;
  } catch {
    return false;
  }
}

/** Return the ids if the API takes them: each of 1 to 512 characters, none twice. Otherwise the numbers of the texts. */
function fitIds(ids, size) {
  const isFit = ids && ids.every((id) => id && id.length <= MOST_ID_LETTERS) && new Set(ids).size === ids.length;
  return isFit ? ids : Array.from({ length: size }, (_, index) => String(index + 1));
}

/** Return the lines of the input of a batch that embeds texts, JSON lines as OpenAI's Batch API takes them. */
export function writeRequests(texts, ids, model) {
  const write = (input, index) => JSON.stringify({ custom_id: ids[index], method: "POST", url: ENDPOINTS[0], body: { model, input } });
  return `${texts.map(write).join("\n")}\n`;
}

/**
 * Return `[{message, status, total, ids}]` of the beginning of a file of errors: equal messages once, the most frequent
 * first, with how many requests have it and the first of their ids. A last line that is cut is left out.
 */
export function sumUpErrors(content) {
  const found = new Map();
  for (const line of content.split("\n")) {
    const entry = parse(line);
    if (!entry) continue;
    const message = messageOf(entry);
    const status = entry.response?.status_code ?? null;
    const key = `${status} ${message}`;
    if (!found.has(key)) found.set(key, { message, status, total: 0, ids: [] });
    const same = found.get(key);
    same.total += 1;
    if (same.ids.length < IDS_SHOWN) same.ids.push(String(entry.custom_id));
  }
  return [...found.values()].sort((one, other) => other.total - one.total);
}

function parse(line) {
  try {
    const entry = JSON.parse(line);
    return entry && typeof entry === "object" ? entry : null;
  } catch {
    return null;
  }
}

function messageOf({ error, response }) {
  const body = response?.body;
  const found = error?.message || body?.error?.message || body?.error || body?.detail || body?.message;
  return typeof found === "string" ? found : JSON.stringify(found ?? body ?? null);
}
