// Try: similarities of texts, as a heat map, pairs, a map, groups and a search, which mark the same texts.

import { card, fill, h, table, textButton } from "../elements.js";
import { heatMap } from "../heat_map.js";
import { analyse } from "../many_texts.js";
import { count, fixed } from "../numbers.js";
import { bar, groupMark } from "../pictures.js";
import { pointMap } from "../point_map.js";
import { searchBox } from "../search_box.js";
import { makeSelection } from "../selection.js";
import { showSnippets } from "../snippets.js";
import { saveButtons } from "../take_away.js";
import { excerpt, longText } from "../texts.js";
import { tellCutPlaces } from "../truncation.js";
import { cosine, decodeBase64, findGroups, nearestTo } from "../vectors.js";
import { summary } from "./try_forms.js";

// With fewer texts, the heat map shows their groups.
const TEXTS_WITH_GROUPS = 12;
const MOST_GROUPS = 20;
const FOUND = 10;
const NEIGHBOURS = 8;

export async function showSimilarity(result) {
  const { json, embeddings, tokens, ms } = result;
  const rows = embeddings.map(decodeBase64);
  const { matrix, joins, order, pairs, drawn, places } = await analyse(rows);
  const truncated = new Set(result.truncated);
  const labels = json.input.map((text, index) => (truncated.has(index) ? `(cut off) ${text}` : text));
  const head = ["text", ...json.input];
  const hasGroups = rows.length > TEXTS_WITH_GROUPS;
  const selection = makeSelection();
  // Groups are there without a choice; of fewer texts the nearest pair shows what a choice does.
  if (!hasGroups && pairs.length) selection.choose(pairs[0].one);
  const scale = `Cosine similarity: 1 means the same, 0 unrelated${hasGroups ? "; similar texts are beside each other" : ""}`;
  return h(
    "div",
    { class: "cards" },
    h("div", { class: "wide-card" }, summary(tokens, ms, `${count(rows.length, "text")}, ${count(rows[0].length, "number")} each`), tellCutPlaces(result.truncated, rows.length, result.limit)),
    hasGroups ? card(null, "wide-card", textSearch(json, rows, labels, selection)) : null,
    rows.length > 1
      ? card(null, "two-thirds", heatMap(scale, labels, matrix, { order: hasGroups ? order : undefined, selection }))
      : null,
    rows.length > 1 ? card(null, "one-third", showPairs(labels, pairs, selection)) : null,
    rows.length > 2 ? card("Map", "wide-card", showMap({ labels, matrix, joins, drawn, places, hasGroups }, selection)) : null,
    h(
      "div",
      { class: "wide-card" },
      saveButtons(
        "similarity",
        () => [head, ...matrix.map((row, index) => [json.input[index], ...row])],
        () => ({ model: json.model, texts: json.input, embeddings: rows.map((row) => [...row]), similarity: matrix.map((row) => [...row]) }),
      ),
      showSnippets("embed", "v1/embeddings", json),
    ),
  );
}

/** Return a table of pairs. A pair is chosen by its number; those with a chosen text are marked. */
function showPairs(labels, pairs, selection) {
  const element = table(
    "The nearest pairs",
    ["Text", "Text", "Similarity"],
    pairs.map(({ one, other, value }) => [
      longText(labels[one]),
      longText(labels[other]),
      textButton(fixed(value), `${fixed(value)}: show texts ${one + 1} and ${other + 1} in the pictures`, () => selection.choose(one, other), true),
    ]),
  );
  const lines = [...element.tBodies[0].rows];
  selection.onChange((chosen) =>
    pairs.forEach(({ one, other }, place) => lines[place].classList.toggle("chosen", chosen.length > 0 && chosen.every((row) => row === one || row === other))),
  );
  return element;
}

/** Return the map, and beside it the neighbours of the chosen text and the groups. */
function showMap({ labels, matrix, joins, drawn, places, hasGroups }, selection) {
  const title = "Near points are similar texts. Two dimensions show only a part of the differences (principal components).";
  const map = pointMap(title, labels, places, drawn, selection, (row) => nearestTo(matrix[row], row, NEIGHBOURS));
  const groups = hasGroups ? showGroups(labels, matrix, joins, map.showGroups) : null;
  return h("div", { class: "map-parts" }, map.element, h("div", {}, showNeighbours(labels, matrix, selection), groups));
}

/** Return the list of the texts nearest to the chosen one. */
function showNeighbours(labels, matrix, selection) {
  const element = h("div", { class: "neighbours", "aria-live": "polite" });
  selection.onChange(([row]) => {
    if (row === undefined) {
      fill(element, h("p", { class: "note" }, "Choose a text in a picture, a pair or a search: its neighbours are listed here."));
      return;
    }
    const nearest = nearestTo(matrix[row], row, NEIGHBOURS);
    const write = (each) => [textButton(each + 1, `Choose text ${each + 1}`, () => selection.choose(each), true), longText(labels[each]), bar(matrix[row][each], fixed(matrix[row][each]))];
    fill(
      element,
      h("h4", {}, `Nearest to ${row + 1}. `, h("bdi", {}, excerpt(labels[row], 80))),
      table("Neighbours of the chosen text", ["Number", "Text", "Similarity"], nearest.map(write)),
      h("button", { type: "button", onclick: () => selection.choose(null) }, "Choose none"),
    );
  });
  return element;
}

/** Return the groups of similar texts, whose number the reader chooses. `tell` is called with the groups. */
function showGroups(labels, matrix, joins, tell) {
  const most = Math.min(MOST_GROUPS, labels.length);
  const usual = Math.min(most, Math.max(2, Math.round(Math.sqrt(labels.length / 2))));
  const number = h("input", { type: "range", min: "2", max: String(most), value: String(usual), "aria-label": "Number of groups" });
  const list = h("div", { class: "groups" });
  const draw = () => {
    const found = findGroups(matrix, Number(number.value), joins);
    fill(
      list,
      found.map((members, group) =>
        h(
          "details",
          {},
          h("summary", {}, groupMark(group), ` ${count(members.length, "text")}: `, h("bdi", {}, excerpt(labels[members[0]], 100))),
          h("ol", {}, members.map((row) => h("li", { value: row + 1 }, longText(labels[row])))),
        ),
      ),
    );
    tell(found);
  };
  number.addEventListener("input", draw);
  draw();
  return h(
    "section",
    {},
    h("h4", {}, "Groups of similar texts"),
    h("label", { class: "inline" }, "Fewer", number, "more"),
    h("p", { class: "note" }, "Each is named by its most typical text (average linkage)."),
    list,
  );
}

/** Return a box that finds the texts nearest to a query, which are marked in the pictures. */
function textSearch(json, rows, labels, selection) {
  // With a prompt of the model's before the texts, the query has its own.
  const purpose = json.input_type ? { input_type: "query" } : {};
  return searchBox("Search these texts by meaning", { ...json, ...purpose }, (words, wanted) => {
    const all = rows.map((row, index) => ({ index, value: cosine(row, wanted) })).sort((one, other) => other.value - one.value);
    const nearest = all.slice(0, FOUND);
    selection.find(nearest.map(({ index }) => index));
    const choose = (index) => textButton(index + 1, `Choose text ${index + 1}`, () => selection.choose(index), true);
    const lines = nearest.map(({ index, value }) => [choose(index), longText(labels[index]), fixed(value)]);
    return table(`Nearest to: ${excerpt(words, 80)}`, ["Number", "Text", "Similarity"], lines);
  });
}
