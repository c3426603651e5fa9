// Tells that texts were cut off: a score of a beginning is no score of a text.

import { h } from "./elements.js";
import { count } from "./numbers.js";

/** Return how many texts of a request were cut off, from the headers of the response. */
export function countCut(headers) {
  return Number(headers.get("x-truncated-inputs") || 0);
}

/** Return a sentence about texts that were cut off; `null` for none. `which` are their numbers, if they are known. */
export function tellCut(cut, model, which = "") {
  if (!cut) return null;
  const limit = model?.max_model_len ? `: ${model.id} reads ${count(model.max_model_len, "token")}` : "";
  return h("p", { class: "note" }, `${count(cut, "text")}${which} ${cut === 1 ? "was" : "were"} cut off${limit}.`);
}
