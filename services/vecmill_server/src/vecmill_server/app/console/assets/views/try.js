// The view "Try": embed, rerank or classify texts, and see the result.

import { h, tabs } from "../elements.js";
import { showLoading } from "../loading.js";
import { importPart, listModels } from "../server.js";
import { buildSimilarity, loadSimilarityResult } from "./similarity.js";

// What can be tried: the capability that a model needs, and the form. Most models need the first form only.
const KINDS = {
  similarity: { title: "Similarity", capability: "embed", load: async () => buildSimilarity },
  pictures: {
    title: "Pictures",
    capability: "image_embed",
    load: async () => (await import("./picture_search.js")).buildPictureSearch,
  },
  rerank: { title: "Rerank", capability: "rerank", load: async () => (await import("./rerank.js")).buildRerank },
  classify: {
    title: "Classify",
    capability: "classify",
    load: async () => (await import("./classify.js")).buildClassify,
  },
  entities: {
    title: "Entities",
    capability: "classify_tokens",
    load: async () => (await import("./entities.js")).buildEntities,
  },
};

/** Load all forms, so that they are there when the server is not. */
export function loadForms() {
  return Promise.all([loadSimilarityResult(), ...Object.values(KINDS).map(({ load }) => load())]);
}

export async function openTry([asked] = [], reopen = () => {}) {
  const models = await listModels();
  const modelsFor = ({ capability }) => models.filter((model) => model.capabilities?.includes(capability));
  const kinds = Object.entries(KINDS).filter(([, kind]) => modelsFor(kind).length);
  const { element: loading, close } = showLoading(models, reopen, !kinds.length);
  if (!kinds.length) {
    const note = h("p", { class: "card" }, "No model is ready yet. This page opens as soon as one is.");
    return { title: "Try", element: h("section", {}, h("h2", {}, "Try"), loading, note), close };
  }
  const [name, kind] = kinds.find(([each]) => each === asked) || kinds[0];
  const links = tabs("What to try", "try", kinds.map(([each, { title }]) => [each, title]), name);
  const build = await importPart(kind.load);
  const head = h("div", { class: "view-head" }, h("h2", {}, "Try"), links);
  const element = h("section", {}, head, loading, build(modelsFor(kind)));
  return { title: kind.title, element, close };
}
