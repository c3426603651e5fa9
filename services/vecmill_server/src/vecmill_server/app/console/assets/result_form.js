// A form whose result is shown beside it.

import { fill, h } from "./elements.js";

/** Return a form that runs `run` and shows the element that it returns, or its error. */
export function resultForm(button, fields, run) {
  const output = h("div", { class: "output" });
  // Read aloud: one sentence. The result has hundreds of cells.
  const spoken = h("p", { class: "spoken", role: "status" });
  const submit = h("button", { type: "submit", class: "main" }, button);
  let running = null;

  async function show(own) {
    submit.setAttribute("aria-busy", "true");
    try {
      const found = await run(own.signal);
      if (running !== own) return;
      fill(output, found);
      fill(spoken, found.querySelector(".summary")?.textContent);
    } catch (error) {
      if (running === own) fill(output, h("p", { class: "problem", role: "alert" }, error.message));
    } finally {
      if (running === own) submit.removeAttribute("aria-busy");
    }
  }

  const form = h(
    "form",
    {
      autocomplete: "off", // browsers keep no texts for later forms
      onsubmit: (event) => {
        event.preventDefault();
        running?.abort();
        running = new AbortController();
        show(running);
      },
      onkeydown: (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
      },
    },
    fields,
    submit,
  );
  return h("div", { class: "try" }, form, h("div", {}, spoken, output));
}
