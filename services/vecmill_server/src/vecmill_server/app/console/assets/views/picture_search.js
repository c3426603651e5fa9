// Try: pictures found by words, words found by pictures, and a map of the pictures.

import { card, fill, h, labelled, table } from "../elements.js";
import { PICTURE_WORDS } from "../examples.js";
import { analyse, embedTexts, requireAtMost, total } from "../many_texts.js";
import { count, fixed } from "../numbers.js";
import { cutRequests, thumbnail, toDataUri } from "../picture_files.js";
import { bar } from "../pictures.js";
import { picturesField } from "../pictures_field.js";
import { pointMap } from "../point_map.js";
import { resultForm } from "../result_form.js";
import { searchBox } from "../search_box.js";
import { makeSelection } from "../selection.js";
import { send } from "../server.js";
import { saveButtons } from "../take_away.js";
import { excerpt, longText, textsField } from "../texts.js";
import { tellCutPlaces } from "../truncation.js";
import { cosine, decodeBase64, nearestTo } from "../vectors.js";
import { firstOf, modelChoice, summary } from "./try_forms.js";

const MOST_WORDS = 1_000;
const FOUND = 12;
const NEIGHBOURS = 8;
const OF_WORD = 4;
// What a server says of one picture, and not of all requests.
const REFUSED = [400, 413, 422];

export function buildPictureSearch(models) {
  const pictures = picturesField("pictures");
  const words = textsField("words", "Words that may describe them", PICTURE_WORDS);
  const model = modelChoice(models);
  async function run(signal, tell) {
    const chosen = pictures.read();
    if (!chosen.length) throw new Error("Drop or choose at least one picture.");
    const texts = words.read();
    requireAtMost(texts, MOST_WORDS, "This view compares");
    const found = await embedPictures(chosen, model.value, signal, tell);
    const ofWords = texts.length ? await embedTexts({ model: model.value, input: texts }, signal, tell) : { embeddings: [], truncated: [] };
    return { model: model.value, ...found, words: texts, wordEmbeddings: ofWords.embeddings, truncated: ofWords.truncated, limit: models.find(({ id }) => id === model.value).max_model_len };
  }
  const show = (result) => showPictures(result, pictures.read());
  return resultForm("pictures", "Compare the pictures", [pictures.field, words.field, labelled("Model", model)], { run, show });
}

/** Return the embeddings in base64 of all pictures that the server takes, their `ids`, and what it says of the others. */
async function embedPictures(pictures, model, signal, tell) {
  const [ids, embeddings, refused, answers] = [[], [], [], []];
  async function ask(some) {
    const input = [];
    for (const { file } of some) input.push({ image: await toDataUri(file) });
    const answer = await send("v1/embeddings", { json: { model, input, encoding_format: "base64" }, signal });
    answers.push(answer);
    ids.push(...some.map(({ id }) => id));
    embeddings.push(...answer.body.data.map(({ embedding }) => embedding));
  }
  for (const [start, end] of cutRequests(pictures.map(({ file }) => file.size))) {
    tell(`${start.toLocaleString("en")} of ${count(pictures.length, "picture")}`);
    const some = pictures.slice(start, end);
    try {
      await ask(some);
    } catch (error) {
      if (!REFUSED.includes(error.status)) throw error;
      // The error is about one of them, and the others are wanted.
      for (const one of some) {
        try {
          await (some.length > 1 ? ask([one]) : Promise.reject(error));
        } catch (own) {
          if (!REFUSED.includes(own.status)) throw own;
          refused.push(`${one.name}: ${own.message.replace(/^`input\[\d+\](\.image)?` /, "")}`);
        }
      }
    }
  }
  if (!ids.length) throw new Error(refused.join(" "));
  return { ids, embeddings, refused, tokens: total(answers, ({ body }) => body.usage.total_tokens), ms: total(answers, ({ ms }) => ms) };
}

async function showPictures(result, chosen) {
  const byId = new Map(chosen.map((picture) => [picture.id, picture]));
  const pictures = result.ids.map((id) => byId.get(id));
  if (!pictures.every(Boolean)) throw new Error("The pictures of this result are there no more.");
  const rows = result.embeddings.map(decodeBase64);
  const words = result.wordEmbeddings.map(decodeBase64);
  const { matrix, drawn, places } = await analyse(rows, { hasThumbnails: true });
  const selection = makeSelection();
  const about = { ...result, pictures, rows, wordRows: words, matrix, selection };
  selection.choose(0);
  return h(
    "div",
    { class: "cards" },
    h(
      "div",
      { class: "wide-card" },
      summary(result.tokens, result.ms, `${count(rows.length, "picture")}, ${count(rows[0].length, "number")} each`),
      tellCutPlaces(result.truncated, words.length, result.limit),
      result.refused.length ? h("div", { class: "problem", role: "alert" }, `${count(result.refused.length, "picture")} left out:`, h("ul", {}, result.refused.map((each) => h("li", {}, each)))) : null,
    ),
    card(null, "wide-card", pictureSearch(about)),
    card("Pictures", "one-third", h("div", { class: "gallery" }, firstOf(pictures.map((_, row) => row), (shown) => gallery(about, shown.map((row) => ({ row })))))),
    card(null, "two-thirds", showChosen(about)),
    rows.length > 2 ? card("Map", "wide-card", showMap(about, drawn, places)) : null,
    words.length ? card(null, "wide-card", showWords(about)) : null,
    h(
      "div",
      { class: "wide-card" },
      saveButtons(
        "pictures",
        () => [["picture", ...result.words], ...pictures.map(({ name }, row) => [name, ...words.map((word) => cosine(word, rows[row]))])],
        () => ({ model: result.model, pictures: pictures.map(({ name }) => name), embeddings: rows.map((row) => [...row]), words: result.words, word_embeddings: words.map((row) => [...row]) }),
      ),
    ),
  );
}

/** Return a list of pictures, `{row, value}`, each a button that chooses it; with its similarity where there is one. */
function gallery({ pictures, selection }, entries) {
  const buttons = entries.map(({ row, value }) => {
    const score = value === undefined ? "" : fixed(value);
    const name = `${pictures[row].name}${score ? `, similarity ${score}` : ""}`;
    const button = h("button", { type: "button", class: "picture", title: pictures[row].name, "aria-label": name, "aria-pressed": "false", onclick: () => selection.choose(row) }, thumbnail(pictures[row]), score ? h("span", { class: "number" }, score) : null);
    return { row, button };
  });
  selection.onChange((chosen, found) => {
    for (const { row, button } of buttons) {
      button.setAttribute("aria-pressed", String(chosen.includes(row)));
      button.classList.toggle("found", found.has(row));
    }
  });
  return h("ul", { class: "thumbnails" }, buttons.map(({ button }) => h("li", {}, button)));
}

/** Return the map, whose points are the pictures themselves. */
function showMap({ pictures, matrix, selection }, drawn, places) {
  const title = "Near pictures are similar. Two dimensions show only a part of the differences (principal components).";
  const names = pictures.map(({ name }) => name);
  const draw = (row) => thumbnail(pictures[row]);
  return pointMap(title, names, places, drawn, selection, (row) => nearestTo(matrix[row], row, NEIGHBOURS), { noun: "picture", draw }).element;
}

/** Return the chosen picture with the words and the pictures nearest to it. */
function showChosen(about) {
  const { pictures, rows, words, wordRows, matrix, selection } = about;
  const element = h("div", { class: "neighbours", "aria-live": "polite", tabindex: "-1" });
  let shown = null;
  selection.onChange(([row]) => {
    if (row === shown) return;
    shown = row;
    if (element.contains(document.activeElement)) element.focus(); // the button that was pressed goes
    if (row === undefined) {
      fill(element, h("p", { class: "note" }, "Choose a picture: the words and pictures nearest to it are shown here."));
      return;
    }
    const scores = wordRows.map((word) => cosine(word, rows[row]));
    const best = nearestTo(scores, -1, NEIGHBOURS);
    // Its own listeners would stay with the selection.
    const others = { ...about, selection: { ...selection, onChange: () => {} } };
    fill(
      element,
      h("h3", {}, "Words and pictures for ", h("bdi", {}, excerpt(pictures[row].name, 80))),
      h(
        "div",
        { class: "chosen-picture" },
        thumbnail(pictures[row], pictures[row].name),
        words.length ? table("The nearest words", ["Words", "Similarity"], best.map((each) => [longText(words[each]), bar(scores[each], fixed(scores[each]))])) : null,
      ),
      rows.length > 1 ? h("h4", {}, "The nearest pictures") : null,
      gallery(others, nearestTo(matrix[row], row, NEIGHBOURS).map((each) => ({ row: each, value: matrix[row][each] }))),
    );
  });
  return element;
}

/** Return a table of the words, each with the pictures nearest to it. */
function showWords(about) {
  const { words, wordRows } = about;
  return firstOf(words.map((word, place) => [word, place]), (some) =>
    table("Pictures for the words", ["Words", "The nearest pictures"], some.map(([word, place]) => [longText(word), gallery(about, nearestPictures(about, wordRows[place], OF_WORD))]), "stacked"),
  );
}

function nearestPictures({ rows }, wanted, most) {
  const found = rows.map((row, index) => ({ row: index, value: cosine(row, wanted) }));
  return found.sort((one, other) => other.value - one.value).slice(0, most);
}

/** Return a box that finds the pictures nearest to words, which are marked in the map. */
function pictureSearch(about) {
  return searchBox("Find pictures by words", { model: about.model }, (words, wanted) => {
    const nearest = nearestPictures(about, wanted, FOUND);
    about.selection.find(nearest.map(({ row }) => row));
    return [h("h4", {}, "Nearest to: ", h("bdi", {}, excerpt(words, 80))), gallery(about, nearest)];
  });
}
