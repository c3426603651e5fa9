// What a view shows of models that load, while it works with those that are ready.

import { fill, h } from "./elements.js";
import { count } from "./numbers.js";
import { listAnswering, listLoading, onState } from "./server_state.js";

/**
 * Return `{element, close}`: how far the loading is, and the names of the models that the server still loads.
 *
 * `listed` are the models as the view has found them. When another one can be asked, `reopen` is called, but not while
 * somebody works in the view: then a button does it. A view that `isWaiting` has nothing to work in yet.
 */
export function showLoading(listed, reopen, isWaiting) {
  const known = new Set(listed.filter(({ state, capabilities }) => capabilities || state !== "loading").map(({ id }) => id));
  const element = h("div", { class: "loading-note", role: "status", hidden: true });
  let shown = "";
  let isFirst = true; // it may be older than the list
  const close = onState((reading) => {
    if (!reading) return; // the head of the page says so
    const loading = listLoading(reading);
    const fresh = listAnswering(reading).filter((name) => !known.has(name));
    const isIdle = isWaiting || !document.getElementById("view").contains(document.activeElement);
    if (fresh.length && isIdle && !isFirst) {
      reopen();
      return;
    }
    const found = JSON.stringify([loading, fresh]);
    if (found === shown) return; // only a change is read aloud
    shown = found;
    element.hidden = !loading.length && !fresh.length;
    fill(element, loading.length ? tellLoading(loading, reading.models.length) : null, fresh.length ? offer(fresh, reopen) : null);
  });
  isFirst = false;
  return { element, close };
}

function tellLoading(loading, all) {
  return [
    h("progress", { max: all, value: all - loading.length, "aria-label": "Models that are loaded" }),
    h("span", {}, `${all - loading.length} of ${count(all, "model")} loaded. Still loading: ${loading.join(", ")}.`),
  ];
}

function offer(names, reopen) {
  return h("button", { type: "button", onclick: reopen }, `Offer ${names.join(", ")} too`);
}
