// The console: shows the view that the fragment of the address names, and the state of the server.

import { fill, h } from "./elements.js";
import { forgetAll } from "./kept.js";
import { stopRuns } from "./result_form.js";
import { importPart } from "./server.js";
import { describeState, listAnswering, onState, watchState } from "./server_state.js";
import { loadForms, openTry } from "./views/try.js";

// The first view comes with this module, the others when it is shown.
const VIEWS = {
  try: async () => openTry,
  compare: async () => (await import("./views/compare.js")).openCompare,
  models: async () => (await import("./views/models.js")).openModels,
  watch: async () => (await import("./views/watch.js")).openWatch,
  batches: async () => (await import("./views/batches.js")).openBatches,
};
// Views with texts and results that can be cleared.
const WITH_TEXTS = ["try", "compare"];

const main = document.getElementById("view");
const state = document.getElementById("state");
const clear = document.getElementById("clear");
let bringBack = null; // what was cleared last
let close = () => {};
let opened = 0;
let hasFailed = false;
let answering = ""; // the models that could be asked at the last look

async function showView() {
  const [, asked, ...rest] = location.hash.split("/");
  const name = Object.hasOwn(VIEWS, asked ?? "") ? asked : "try";
  opened += 1;
  const turn = opened;
  const hadFocus = main.contains(document.activeElement);
  close();
  close = () => {};
  hasFailed = false;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  clear.hidden = !WITH_TEXTS.includes(name);
  fill(main, h("p", { role: "status" }, "Loading …"));
  try {
    const open = await importPart(VIEWS[name]);
    const view = await open(rest, showView);
    if (turn !== opened) {
      view.close?.();
      return;
    }
    close = view.close || close;
    fill(main, view.element);
    document.title = `${view.title} – vecmill`;
    if (hadFocus) main.focus(); // the link that was followed is gone
  } catch (error) {
    if (turn !== opened) return;
    hasFailed = true;
    fill(main, h("p", { class: "problem card", role: "alert" }, error.message));
  }
}

/** Show the state of the server. A view that could not be opened is opened when more models can be asked. */
function showState(reading) {
  const { kind, text } = describeState(reading);
  if (state.textContent !== text) fill(state, text); // only a change is read aloud
  state.className = kind;
  const found = reading ? listAnswering(reading).join("\n") : "";
  if (found && found !== answering && hasFailed) showView();
  answering = found;
}

/** Clear all texts and results, or bring those back that were cleared last. */
function clearOrBringBack() {
  stopRuns();
  bringBack?.();
  offerToBringBack(bringBack ? null : forgetAll());
  showView();
}

function offerToBringBack(undo) {
  bringBack = undo;
  fill(clear, undo ? "Undo the clearing" : "Clear texts and results");
}

addEventListener("hashchange", showView);
clear.addEventListener("click", clearOrBringBack);
// What is typed or sent now is not to be replaced by what was cleared.
main.addEventListener("input", () => offerToBringBack(null));
main.addEventListener("submit", () => offerToBringBack(null));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment names the view
  main.focus();
});
/** Load what is not open, so that it is there when the server is not. */
function loadOthers() {
  for (const load of [loadForms, ...Object.values(VIEWS)]) load().catch(() => {}); // whoever opens one is told
}

showView().then(loadOthers);
onState(showState);
watchState();
