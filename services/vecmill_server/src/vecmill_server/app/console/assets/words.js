// Entities by whole words: the labels of tokens joined as the pipeline of transformers does with `aggregation_strategy`.

// Letters with their marks, and numbers; every other sign but a space is a word of its own, as for tokenizers of BERT.
const WORD = /[\p{L}\p{M}\p{N}]+|[^\s\p{L}\p{M}\p{N}]/gu;

/**
 * Return entities, `{entity_group, word, score, start, end}`, of whole words.
 *
 * `tokens` are the labelled tokens of a text, in order, as `/predict` returns them with the strategy "none": places
 * count characters. With "first" the label of a word is that of its first token, and there is none if that has none.
 * With "max" it is that of its surest labelled token. Words that follow each other with one label are an entity, unless
 * a label begins with "B-". The score of an entity is the mean of its words'.
 */
export function joinWords(text, tokens, strategy) {
  const letters = [...text];
  const entities = [];
  let last = null;
  for (const word of labelWords(text, tokens, strategy)) {
    const { name, isBegin } = splitLabel(word.entity);
    const isNext = last && last.entity_group === name && !isBegin && !letters.slice(last.end, word.start).join("").trim();
    if (isNext) {
      last.end = word.end;
      last.scores.push(word.score);
    } else entities.push((last = { entity_group: name, scores: [word.score], start: word.start, end: word.end }));
  }
  return entities.map(({ entity_group: name, scores, start, end }) => ({
    entity_group: name,
    score: scores.reduce((sum, score) => sum + score, 0) / scores.length,
    word: letters.slice(start, end).join(""),
    start,
    end,
  }));
}

/** Return the words that have a label: `{start, end, entity, score}`. A token that goes beyond a word belongs to both. */
function labelWords(text, tokens, strategy) {
  const found = [];
  let next = 0;
  for (const { start, end } of placesOfWords(text)) {
    while (next < tokens.length && tokens[next].end <= start) next += 1;
    const own = [];
    for (let each = next; each < tokens.length && tokens[each].start < end; each += 1) own.push(tokens[each]);
    if (!own.length || (strategy === "first" && own[0].start > start)) continue;
    const { entity, score } = strategy === "first" ? own[0] : own.reduce((best, each) => (each.score > best.score ? each : best));
    found.push({ start, end, entity, score });
  }
  return found;
}

/** Return the places of the words of a text in characters: JavaScript's own count UTF-16 units. */
function placesOfWords(text) {
  const words = [];
  let [unit, start] = [0, 0];
  for (const { 0: word, index } of text.matchAll(WORD)) {
    start += [...text.slice(unit, index)].length;
    const end = start + [...word].length;
    words.push({ start, end });
    [unit, start] = [index + word.length, end];
  }
  return words;
}

/** Return the name of a label without its prefix, and whether it begins an entity. */
function splitLabel(label) {
  const isBegin = label.startsWith("B-");
  return { name: isBegin || label.startsWith("I-") ? label.slice(2) : label, isBegin };
}
