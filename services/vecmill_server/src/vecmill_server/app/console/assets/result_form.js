// A form whose result is shown beside it. Both are kept for this tab.

import { fill, h } from "./elements.js";
import { forget, keep, readKept } from "./kept.js";

/**
 * Return a form that calls `run` and shows its result, or its error.
 *
 * `run` returns a value that JSON can carry, and `show` makes an element of it, now or after a reload. `name` is what
 * both are kept under. With `isEager`, a form for which nothing was kept is sent at once.
 */
export function resultForm(name, button, fields, { run, show, isEager = false }) {
  const output = h("div", { class: "output" });
  // Read aloud: one sentence. The result has hundreds of cells.
  const spoken = h("p", { class: "spoken", role: "status" });
  const submit = h("button", { type: "submit", class: "main" }, button);
  const [fieldsName, resultName] = [`${name} fields`, `${name} result`];
  const stale = h("p", { class: "stale-note", hidden: true }, "This result is of earlier texts or settings.");
  let shownFor = null; // the fields of the form that the result is of, as JSON
  let running = null;

  function present({ result, fields: own }) {
    const found = show(result);
    shownFor = own;
    fill(output, stale, found);
    markStale();
    return found;
  }

  /** Show a result that was kept, unless another release of this page has kept it in another form. */
  function presentKept(result) {
    try {
      present(result);
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

  async function compute(own) {
    submit.setAttribute("aria-busy", "true");
    try {
      const fieldsThen = JSON.stringify(readFields(form));
      const result = await run(own.signal);
      if (running !== own) return;
      const found = { result, fields: fieldsThen };
      keep(resultName, found);
      fill(spoken, present(found).querySelector(".summary")?.textContent);
    } catch (error) {
      if (running !== own) return;
      forget(resultName);
      shownFor = null;
      markStale();
      fill(output, h("p", { class: "problem", role: "alert" }, error.message));
    } finally {
      if (running === own) submit.removeAttribute("aria-busy");
    }
  }

  function start() {
    running?.abort();
    running = new AbortController();
    compute(running);
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
    submit,
  );
  const kept = readKept(fieldsName);
  if (kept) writeFields(form, kept);
  const result = readKept(resultName);
  if (result) presentKept(result);
  else if (isEager && !kept) start();
  return h("div", { class: "try" }, form, h("div", {}, spoken, output));
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
