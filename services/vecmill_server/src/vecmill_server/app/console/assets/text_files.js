// Reads texts from files: text, Markdown, CSV, TSV, JSON and JSON lines.

// The column or key of the texts, the first that there is; `vecmill embed` reads "text" too.
const TEXT_NAMES = ["text", "content", "body", "sentence", "document", "passage", "input", "title", "question"];

// The column or key of an id of each text.
const ID_NAMES = ["custom_id", "id", "_id"];

const SEPARATORS = [",", ";", "\t"];

const READERS = { txt: readPlain, md: readParagraphs, csv: readTable, tsv: readTable, json: readJson, jsonl: readJsonLines, ndjson: readJsonLines };

/** The ends of the names of files that are read. */
export const TEXT_TYPES = Object.keys(READERS).map((type) => `.${type}`);

/** Return `{texts, source}` of a file; `source` names the column or key. Throws for a type that is not read. */
export function readTexts(name, content) {
  const { texts, source } = readTextsWithIds(name, content);
  return { texts, source };
}

/** Return what `readTexts` does, and `ids`: the id of each text, as text; `null` where the file has none. */
export function readTextsWithIds(name, content) {
  const type = name.toLowerCase().split(".").at(-1);
  const read = Object.hasOwn(READERS, type) ? READERS[type] : null;
  if (!read) throw new Error(`${name} is not read here. Choose a file of the type txt, md, csv, tsv, json or jsonl.`);
  const found = read(content.replace(/^\uFEFF/, "").replaceAll("\r\n", "\n"));
  if (!found.texts.length) throw new Error(`${name} has no texts.`);
  return found;
}

/** Return `{content, isUtf8}` of the bytes of a file: UTF-8, or else Windows-1252, in which all bytes are letters. */
export function decodeText(buffer) {
  try {
    return { content: new TextDecoder("utf-8", { fatal: true }).decode(buffer), isUtf8: true };
  } catch {
    return { content: new TextDecoder("windows-1252").decode(buffer), isUtf8: false };
  }
}

/** Return the lines of a text without the empty ones. */
export function linesOf(text) {
  return text
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter(Boolean);
}

/** Return what stands between empty lines. */
export function paragraphsOf(text) {
  return text
    .split(/\r?\n[^\S\n]*\r?\n/)
    .map((paragraph) => paragraph.trim())
    .filter(Boolean);
}

/** Return the rows of CSV (RFC 4180), lists of cells. */
export function parseCsv(content, separator = ",") {
  const rows = [[]];
  let cell = "";
  let isQuoted = false;
  const endCell = () => {
    rows.at(-1).push(cell);
    cell = "";
  };
  for (let place = 0; place < content.length; place += 1) {
    const letter = content[place];
    if (isQuoted) {
      if (letter !== '"') cell += letter;
      else if (content[place + 1] === '"') {
        cell += '"';
        place += 1;
      } else isQuoted = false;
    } else if (letter === '"' && !cell) isQuoted = true;
    else if (letter === separator) endCell();
    else if (letter === "\n") {
      endCell();
      rows.push([]);
    } else if (letter !== "\r" || content[place + 1] !== "\n") cell += letter;
  }
  endCell();
  return rows.filter((cells) => cells.some((each) => each.trim()));
}

function readPlain(content) {
  const paragraphs = paragraphsOf(content);
  // Lines that belong together are separated from others by empty lines.
  return paragraphs.length > 1 && paragraphs.some((each) => each.includes("\n")) ? readParagraphs(content) : { texts: linesOf(content), source: null, ids: null };
}

function readParagraphs(content) {
  return { texts: paragraphsOf(content), source: null, ids: null };
}

/** Return the separator of a table: the one of which its first line has most. */
function findSeparator(content) {
  const first = content.split("\n", 1)[0];
  const [best] = SEPARATORS.map((each) => [first.split(each).length, each]).sort(([one], [other]) => other - one);
  return best[1];
}

function readTable(content) {
  const separator = findSeparator(content);
  const [headings = [], ...rows] = parseCsv(content, separator);
  const names = headings.map((name) => name.trim().toLowerCase());
  const name = TEXT_NAMES.find((each) => names.includes(each));
  // Without a known heading: the column with the most letters, and the first row may be a text.
  const column = name ? names.indexOf(name) : longestColumn([headings, ...rows]);
  const idColumn = name ? ID_NAMES.map((each) => names.indexOf(each)).find((each) => each >= 0) : undefined;
  const entries = (name ? rows : [headings, ...rows]).map((cells) => [(cells[column] || "").trim(), (cells[idColumn] || "").trim()]);
  return { ...pickFilled(entries, idColumn !== undefined), source: name ? `column ${headings[column].trim()}` : `column ${column + 1}` };
}

/** Return the texts that are not empty, and their ids. */
function pickFilled(entries, hasIds) {
  const filled = entries.filter(([text]) => text);
  return { texts: filled.map(([text]) => text), ids: hasIds ? filled.map(([, id]) => id) : null };
}

function longestColumn(rows) {
  const sums = [];
  for (const cells of rows) cells.forEach((cell, column) => (sums[column] = (sums[column] || 0) + cell.length));
  return Math.max(0, sums.indexOf(Math.max(...sums)));
}

function readJsonLines(content) {
  const lines = content.split("\n").map((line, index) => [line.trim(), index + 1]);
  return pickTexts(lines.filter(([line]) => line).map(([line, number]) => parseJson(line, `Line ${number}`)));
}

/** Return the value of a JSON text. Throws an error that begins with `where`. */
function parseJson(text, where) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${where} is not JSON: ${error.message}.`);
  }
}

function readJson(content) {
  const found = parseJson(content, "The file");
  return pickTexts(Array.isArray(found) ? found : Object.values(found).find(Array.isArray) || [found]);
}

function pickTexts(entries) {
  const keys = entries.filter((each) => each && typeof each === "object").flatMap(Object.keys);
  const key = TEXT_NAMES.find((each) => keys.includes(each));
  const idKey = ID_NAMES.find((each) => keys.includes(each));
  const texts = entries.map((entry) => [typeof entry === "string" ? entry : entry?.[key], String(entry?.[idKey] ?? "")]);
  const found = texts.filter(([text]) => typeof text === "string").map(([text, id]) => [text.trim(), id]);
  return { ...pickFilled(found, Boolean(idKey)), source: key ? `key ${key}` : null };
}
