// Tells that texts were cut off: a score of a beginning is no score of a text.

import { h } from "./elements.js";
import { count } from "./numbers.js";

const NUMBERS_TOLD = 20;

/** Return how many texts of a request were cut off, from the headers of the response. */
export function countCut(headers) {
  return Number(headers.get("x-truncated-inputs") || 0);
}

/** Return a sentence about `number` texts that `model` has cut off; `null` for none. */
export function tellCut(number, model) {
  return tell(number, "", model?.max_model_len ? `${model.id} reads ${count(model.max_model_len, "token")}` : null);
}

/** Return a sentence about the texts at `places`, of `total`, that a model which reads `limit` tokens has cut off. */
export function tellCutPlaces(places, total, limit) {
  const numbers = places.length <= NUMBERS_TOLD ? ` (number ${places.map((place) => place + 1).join(", ")})` : "";
  return tell(places.length, ` of ${total}${numbers}`, limit ? `the model reads ${count(limit, "token")}` : null);
}

function tell(number, which, reason) {
  if (!number) return null;
  return h("p", { class: "note" }, `${count(number, "text")}${which} ${number === 1 ? "was" : "were"} cut off${reason ? `: ${reason}` : ""}.`);
}
