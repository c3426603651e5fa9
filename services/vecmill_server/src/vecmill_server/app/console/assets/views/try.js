// The view "Try": embed, rerank or classify texts, and see the result.

import { h, tabs } from "../elements.js";
import { showLoading } from "../loading.js";
import { listModels } from "../server.js";
import { buildClassify } from "./classify.js";
import { buildEntities } from "./entities.js";
import { buildPictureSearch } from "./picture_search.js";
import { buildRerank } from "./rerank.js";
import { buildSimilarity } from "./similarity.js";

// What can be tried: the capability that a model needs, and the form.
const KINDS = {
  similarity: { title: "Similarity", capability: "embed", build: buildSimilarity },
  pictures: { title: "Pictures", capability: "image_embed", build: buildPictureSearch },
  rerank: { title: "Rerank", capability: "rerank", build: buildRerank },
  classify: { title: "Classify", capability: "classify", build: buildClassify },
  entities: { title: "Entities", capability: "classify_tokens", build: buildEntities },
};

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
  const element = h("section", {}, h("div", { class: "view-head" }, h("h2", {}, "Try"), links), loading, kind.build(modelsFor(kind)));
  return { title: kind.title, element, close };
}
