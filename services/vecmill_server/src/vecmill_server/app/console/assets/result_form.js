// A form whose result is shown beside it. Both are kept for this tab.

import { fill, h } from "./elements.js";
import { forget, keep, readKept } from "./kept.js";

// Runs that have not ended, by the name of their form. They go on when the view is left.
const running = new Map();

/** Stop all runs, and forget what they would find. */
export function stopRuns() {
  for (const { controller } of running.values()) controller.abort();
  running.clear();
}

/**
 * Return a form that calls `run` and shows its result, or its error.
 *
 * `run` gets a signal that stops it, and a function that tells how far it is. It returns a value that JSON can carry,
 * and `show` makes an element of it, or the promise of one, now or after a reload. `name` is what both are kept under.
 * With `isEager`, a form for which nothing was kept is sent at once.
 */
export function resultForm(name, button, fields, { run, show, isEager = false }) {
  const output = h("div", { class: "output" });
  // Read aloud: one sentence. The result has hundreds of cells.
  const spoken = h("p", { class: "spoken", role: "status" });
  const submit = h("button", { type: "submit", class: "main" }, button);
  const stop = h("button", { type: "button", hidden: true, onclick: () => running.get(name)?.controller.abort() }, "Stop");
  const progress = h("small", {});
  const [fieldsName, resultName] = [`${name} fields`, `${name} result`];
  const stale = h("p", { class: "stale-note", hidden: true }, "This result is of earlier texts or settings.");
  let shownFor = null; // the fields of the form that the result is of, as JSON
  let followed = null;

  async function present({ result, fields: own }) {
    const found = await show(result);
    shownFor = own;
    fill(output, stale, found);
    markStale();
    return found;
  }

  /** Show a result that was kept, unless another release of this page has kept it in another form. */
  async function presentKept(result) {
    try {
      await present(result);
    } catch {
      forget(resultName);
    }
  }

  /** Dim a result that belongs to other texts or settings than the form has. */
  function markStale() {
    const isStale = Boolean(shownFor) && shownFor !== JSON.stringify(readFields(form));
    output.classList.toggle("stale", isStale);
    stale.hidden = !isStale;
  }

  /** Run and keep the result, whichever view is shown by then. Return it or the error. */
  async function execute(own) {
    try {
      const found = { result: await run(own.controller.signal, (text) => own.tell(text)), fields: own.fields };
      if (running.get(name) === own) keep(resultName, found);
      return { found };
    } catch (error) {
      if (running.get(name) === own && !isStop(error)) forget(resultName);
      return { error };
    } finally {
      if (running.get(name) === own) running.delete(name);
    }
  }

  /** Show that a run goes on, and what comes of it. */
  async function follow(own) {
    followed = own;
    own.tell = (text) => fill(progress, text);
    submit.setAttribute("aria-busy", "true");
    stop.hidden = false;
    try {
      const { found, error } = await own.ended;
      if (followed !== own) return;
      if (error) throw error;
      const shown = await present(found);
      fill(spoken, shown.querySelector(".summary")?.textContent);
    } catch (error) {
      if (followed === own && !isStop(error)) showError(error);
    } finally {
      if (followed === own) {
        submit.removeAttribute("aria-busy");
        stop.hidden = true;
        fill(progress);
      }
    }
  }

  function showError(error) {
    shownFor = null;
    markStale();
    fill(output, h("p", { class: "problem", role: "alert" }, error.message));
  }

  function start() {
    running.get(name)?.controller.abort();
    const own = { controller: new AbortController(), fields: JSON.stringify(readFields(form)), tell: () => {} };
    running.set(name, own);
    own.ended = Promise.resolve().then(() => execute(own)); // after `follow` listens
    follow(own);
  }

  const form = h(
    "form",
    {
      autocomplete: "off", // browsers keep no texts for later forms
      onsubmit: (event) => {
        event.preventDefault();
        keep(fieldsName, readFields(form));
        start();
      },
      oninput: () => {
        keep(fieldsName, readFields(form));
        markStale();
      },
      onkeydown: (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
      },
    },
    fields,
    h("div", { class: "actions" }, submit, stop, progress),
  );
  const kept = readKept(fieldsName);
  if (kept) {
    const first = JSON.stringify(readFields(form));
    writeFields(form, kept);
    if (JSON.stringify(readFields(form)) !== first) openChanged(form, JSON.parse(first));
  }
  const result = readKept(resultName);
  if (running.has(name)) follow(running.get(name));
  else if (result) presentKept(result);
  else if (isEager && !kept) start();
  return h("div", { class: "try" }, form, h("div", {}, spoken, output));
}

/** A run that was stopped leaves what is shown as it is. */
function isStop(error) {
  return error.name === "AbortError";
}

/** Open the parts of a form that hide fields which differ from what they were first. */
function openChanged(form, first) {
  const fields = readFields(form);
  controlsOf(form).forEach((control, place) => {
    const details = control.closest("details");
    if (details && JSON.stringify(fields[place]) !== JSON.stringify(first[place])) details.open = true;
  });
}

function controlsOf(form) {
  return [...form.elements].filter(({ name, type }) => name && type !== "file");
}

function readFields(form) {
  return controlsOf(form).map(({ name, type, value, checked }) =>
    type === "checkbox" || type === "radio" ? { name, value, checked } : { name, value },
  );
}

/** Write fields as they were kept. A choice that there is no more keeps its first value. */
function writeFields(form, kept) {
  for (const control of controlsOf(form)) {
    const isBox = control.type === "checkbox" || control.type === "radio";
    const found = kept.find(({ name, value }) => name === control.name && (!isBox || value === control.value));
    if (!found) continue;
    if (isBox) control.checked = found.checked;
    else if (control.tagName !== "SELECT" || [...control.options].some(({ value }) => value === found.value)) {
      control.value = found.value;
    }
  }
}
