// Compare: how well models find the right answers of labelled queries, with all dimensions and with fewer.

import { card, fileButton, h, labelled, scrolled, table } from "../elements.js";
import { LABELLED } from "../examples.js";
import { embedTexts, requireAtMost } from "../many_texts.js";
import { count, fixed } from "../numbers.js";
import { resultForm } from "../result_form.js";
import { estimateMean, findPValue, firstRight, measureQueries, rankDocuments, readLabelled } from "../retrieval.js";
import { saveButtons } from "../take_away.js";
import { longText } from "../texts.js";
import { decodeBase64, mean } from "../vectors.js";
import { modelBoxes } from "./try_forms.js";

const MOST_LABELLED = 5_000;
const QUERIES_SHOWN = 50;
// What is shown of a row beside nDCG: the heading, and the name of the measure.
const MEASURES = [
  ["recall@1", "recall1"],
  ["recall@5", "recall5"],
  ["recall@10", "recall10"],
  ["reciprocal rank", "reciprocal"],
];

export function buildQueries(models) {
  const { field, chosen } = modelBoxes("models", models, 2);
  const area = h("textarea", { name: "labelled", rows: 10, spellcheck: "false" }, LABELLED);
  const open = fileButton("A file with labelled queries", [".tsv", ".txt"], async (file) => {
    area.value = await file.text();
    area.dispatchEvent(new Event("input", { bubbles: true }));
  });
  const hint = "On each line a query, => or a tab, and a right answer. A line without either is a further document.";
  const fewer = h("input", { name: "fewer_dimensions", pattern: "[0-9, ]*", title: "Numbers, with commas between them" });
  async function run(signal, tell) {
    const { queries, documents, right } = readLabelled(area.value);
    if (!queries.length) throw new Error("No line has a query, then => or a tab, and a right answer.");
    if (documents.length < 2) throw new Error("There must be at least two documents to find the right one among.");
    requireAtMost([...queries, ...documents], MOST_LABELLED, "This view takes");
    const rows = [];
    for (const model of chosen()) {
      // Models with a prompt for queries and one for documents get both.
      const asked = await embed(model, queries, "query", signal, tell);
      const found = await embed(model, documents, "document", signal, tell);
      rows.push(...rankByDimensions(model, asked, found, readNumbers(fewer.value)));
    }
    return { queries, documents, right: right.map((each) => [...each]), rows };
  }
  const typed = h("div", { class: "texts" }, labelled("Labelled queries", area, hint), h("div", { class: "actions" }, open));
  const dimensions = labelled("Fewer dimensions too", fewer, "Such as 256, 128. Models that were trained for it lose little.");
  return resultForm("labelled queries", "Measure", [typed, field, dimensions], { run, show: showQueries });
}

async function embed(model, input, purpose, signal, tell) {
  const asked = { model, input, input_type: purpose };
  const { embeddings } = await embedTexts(asked, signal, (text) => tell(`${model}: ${text}`));
  return embeddings.map(decodeBase64);
}

function readNumbers(text) {
  return text.split(/[\s,]+/).map(Number).filter(Boolean);
}

/** Return the rankings by all dimensions of the embeddings, and by the first of them. */
function rankByDimensions(model, asked, found, fewer) {
  const all = asked[0].length;
  const sizes = [...new Set(fewer)].filter((size) => size < all);
  return [all, ...sizes].map((size) => {
    const [queries, documents] = [asked, found].map((rows) => rows.map((row) => row.subarray(0, size)));
    return { name: size === all ? model : `${model}, ${size} dimensions`, rankings: rankDocuments(queries, documents) };
  });
}

function showQueries({ queries, documents, right, rows }) {
  const sets = right.map((each) => new Set(each));
  const names = rows.map(({ name }) => name);
  const measured = rows.map(({ rankings }) => measureQueries(rankings, sets));
  const estimates = measured.map(({ ndcg10 }) => estimateMean(ndcg10));
  const chances = measured.map(({ ndcg10 }, row) => (row ? findPValue(ndcg10, measured[0].ndcg10) : null));
  const places = queries.map((_, query) => rows.map(({ rankings }) => firstRight(rankings[query], sets[query])));
  const what = `${count(queries.length, "query").replace("querys", "queries")} over ${count(documents.length, "document")}`;
  const write = (name, row) => [
    name,
    fixed(estimates[row].mean),
    `${fixed(estimates[row].low)} to ${fixed(estimates[row].high)}`,
    ...MEASURES.map(([, key]) => fixed(mean(measured[row][key]))),
    ...(rows.length > 1 ? [chances[row] === null ? "" : fixed(chances[row])] : []),
  ];
  const headings = ["Model", "nDCG@10", "95% interval", ...MEASURES.map(([heading]) => heading), ...(rows.length > 1 ? ["p"] : [])];
  const tableOf = table(`How well each model finds the right answers: ${what}`, headings, names.map(write), "stacked");
  return h(
    "div",
    { class: "cards" },
    card(null, "wide-card", scrolled("Measures", tableOf), h("p", { class: "note" }, tellMeaning(rows.length > 1))),
    card(null, "wide-card", showWorst(queries, documents, rows, places)),
    h(
      "div",
      { class: "wide-card" },
      saveButtons(
        "labelled-queries",
        () => [["query", ...names], ...queries.map((query, place) => [query, ...places[place]])],
        () => ({
          models: names,
          measures: measured.map((each, row) => ({ ...meansOf(each), interval: [estimates[row].low, estimates[row].high], p: chances[row] })),
          queries: queries.map((query, place) => ({ query, places: places[place] })),
        }),
      ),
    ),
  );
}

function tellMeaning(hasSeveral) {
  const interval = "The interval is where nDCG would be with other queries of the same kind.";
  const chance = "p is how often chance alone makes a difference to the first row as large as this one; below 0.05 a difference is hardly chance.";
  return hasSeveral ? `${interval} ${chance}` : interval;
}

function meansOf(measured) {
  return Object.fromEntries(Object.entries(measured).map(([key, values]) => [key, mean(values)]));
}

/** Return a table of the queries whose right answer is found last. */
function showWorst(queries, documents, rows, places) {
  const order = queries.map((_, query) => query).sort((one, other) => Math.max(...places[other]) - Math.max(...places[one]));
  const headings = ["Query", ...rows.flatMap(({ name }) => [`Place, ${name}`, `First found, ${name}`])];
  const write = (query) => [
    longText(queries[query]),
    ...rows.flatMap(({ rankings }, row) => [places[query][row], longText(documents[rankings[query][0]])]),
  ];
  const part = queries.length > QUERIES_SHOWN ? ` (${QUERIES_SHOWN} of ${queries.length})` : "";
  const shown = order.slice(0, QUERIES_SHOWN).map(write);
  return scrolled("Queries", table(`Place of the first right answer, the worst queries first${part}`, headings, shown, "stacked"));
}
