// A box that searches what a result has, by words.

import { fill, h } from "./elements.js";
import { send } from "./server.js";
import { decodeBase64 } from "./vectors.js";

/**
 * Return a box that asks for words and shows what is near to them.
 *
 * `json` has the fields of the request for their embedding, and `show` returns elements for the words and the embedding.
 */
export function searchBox(label, json, show) {
  const query = h("input", { type: "search", required: true, "aria-label": label, placeholder: label });
  const found = h("div", { "aria-live": "polite" });
  async function search() {
    const words = query.value;
    const { body } = await send("v1/embeddings", { json: { ...json, input: [words], encoding_format: "base64" } });
    fill(found, show(words, decodeBase64(body.data[0].embedding)));
  }
  return h(
    "form",
    {
      class: "search",
      role: "search",
      autocomplete: "off",
      onsubmit: (event) => {
        event.preventDefault();
        search().catch((error) => fill(found, h("p", { class: "problem", role: "alert" }, error.message)));
      },
    },
    h("div", { class: "actions" }, query, h("button", { type: "submit" }, "Search")),
    found,
  );
}
