// The view "Batches": files and batches of OpenAI's Batch API, their progress, errors, download and cancel.

import { ENDPOINTS, readBatchFile, sumUpErrors, writeRequests } from "../batch_file.js";
import { card, choice, fill, h, labelled, scrolled, table } from "../elements.js";
import { bytes, count } from "../numbers.js";
import { download, listModels, readBeginning, send } from "../server.js";
import { saveBlob } from "../take_away.js";
import { TEXT_TYPES } from "../text_files.js";
import { longText } from "../texts.js";

const EVERY_MS = 3_000;
const ENDED = new Set(["completed", "failed", "expired", "cancelled"]);
const HEADINGS = ["State", "File", "Requests", "Actions", "Made", "Batch"];
// Of the errors of a batch, so much is read to sum them up. The saved file has all.
const ERRORS_BYTES = 2 ** 20;
const MESSAGES_SHOWN = 20;

export async function openBatches() {
  const title = "Batches";
  const problem = h("p", { class: "problem card", role: "alert", hidden: true });
  const list = h("div");
  const errors = new Map(); // the elements with the errors of batches that somebody has opened, by their ids
  let isOpen = true;
  let shown = "";
  let isUnreachable = false;

  async function act(work) {
    problem.hidden = true;
    isUnreachable = false;
    try {
      await work();
      await refresh();
    } catch (error) {
      tell(error);
    }
  }

  function tell(error) {
    fill(problem, error.message);
    problem.hidden = false;
  }

  async function refresh() {
    const [batches, files] = await Promise.all([send("v1/batches?limit=100"), send("v1/files")]);
    const found = JSON.stringify([batches.body.data, files.body.data, [...errors.keys()]]);
    if (found === shown) return;
    shown = found;
    const focused = list.contains(document.activeElement) && document.activeElement.dataset.key;
    fill(list, showBatches(batches.body.data, files.body.data, act, errors), showFiles(files.body.data, act));
    if (focused) list.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  async function look() {
    if (!isOpen) return;
    try {
      if (!document.hidden) await refresh();
      if (isUnreachable) problem.hidden = true; // the problem of an action stays
      isUnreachable = false;
    } catch (error) {
      tell(error);
      isUnreachable = true;
      if (error.status === 401) return; // nobody gave a key
    }
    setTimeout(look, EVERY_MS);
  }

  try {
    await refresh();
  } catch (error) {
    if (error.status !== 404) throw error;
    return { title, element: h("section", {}, h("h2", {}, title), h("p", { class: "card" }, error.message)) };
  }
  const models = (await listModels()).filter(({ capabilities }) => capabilities?.includes("embed"));
  setTimeout(look, EVERY_MS);
  const element = h("section", {}, h("h2", {}, title), h("div", { class: "try" }, newBatch(models, act), h("div", {}, problem, list)));
  return {
    title,
    element,
    close() {
      isOpen = false;
    },
  };
}

function newBatch(models, act) {
  const file = h("input", { type: "file", name: "file", accept: TEXT_TYPES.join(","), required: true, onchange: () => read() });
  const endpoint = labelled("Route", choice("endpoint", ENDPOINTS.map((each) => [each, each]), ENDPOINTS[0]));
  const model = labelled("Model", choice("model", models.map(({ id }) => [id, id]), models[0]?.id));
  const note = h("p", { class: "note", role: "status" });
  const submit = h("button", { type: "submit", class: "main" }, "Start a batch");
  let reading = null;

  /** Read the chosen file, and ask for what it needs: requests name their model, texts do not. */
  function read() {
    const [chosen] = file.files;
    reading = chosen ? readBatchFile(chosen) : null;
    const asked = reading;
    fill(note);
    submit.disabled = true;
    (reading || Promise.resolve({})).then(
      (found) => asked === reading && offer(found),
      (error) => asked === reading && fill(note, h("span", { class: "problem" }, error.message)),
    );
  }

  function offer({ texts, note: found }) {
    fill(note, found);
    model.hidden = !texts;
    endpoint.hidden = Boolean(texts);
    submit.disabled = Boolean(texts) && !models.length;
  }

  async function start() {
    const { texts, ids, file: requests } = await reading;
    const form = new FormData();
    form.append("purpose", "batch");
    if (texts) form.append("file", new Blob([writeRequests(texts, ids, model.querySelector("select").value)]), `${file.files[0].name}.jsonl`);
    else form.append("file", requests);
    const { body } = await send("v1/files", { form });
    const route = texts ? ENDPOINTS[0] : endpoint.querySelector("select").value;
    await send("v1/batches", { json: { input_file_id: body.id, endpoint: route, completion_window: "24h" } });
  }

  model.hidden = true;
  const form = h(
    "form",
    {
      class: "card",
      onsubmit: async (event) => {
        event.preventDefault();
        submit.disabled = true; // until the file is there: it may be large
        await act(async () => {
          await start();
          form.reset();
          read();
        });
        submit.disabled = false;
      },
    },
    labelled("File with requests or texts", file, "JSON lines as OpenAI's Batch API takes them; or texts to embed: txt, md, csv, tsv, json or jsonl."),
    note,
    endpoint,
    model,
    submit,
  );
  return form;
}

function showBatches(batches, files, act, errors) {
  if (!batches.length) return h("p", { class: "card empty" }, "There are no batches yet. A batch embeds a file in the background, and its results stay here until they are deleted.");
  const names = new Map(files.map(({ id, filename }) => [id, filename]));
  return card(
    null,
    "wide-card",
    h(
      "div",
      { class: "wide whole", role: "region", "aria-label": "Batches", tabindex: "0" },
      h(
        "table",
        { class: "stacked" },
        h("caption", {}, "Batches, the newest first"),
        h("thead", {}, h("tr", {}, HEADINGS.map((heading) => h("th", { scope: "col" }, heading)))),
        h("tbody", {}, batches.map((batch) => showBatch(batch, names.get(batch.input_file_id), act, errors))),
      ),
    ),
  );
}

/** Return the row of a batch, and one below it that says why it failed, or what its errors are. */
function showBatch(batch, name, act, errors) {
  const [first, ...cells] = [state(batch), name ?? "deleted", progress(batch), actions(batch, name, act, errors), made(batch.created_at), h("small", {}, `${batch.endpoint} ${batch.id}`)];
  const reasons = (batch.errors?.data || []).map(({ line, message }) => h("li", {}, line ? `line ${line}: ${message}` : message));
  const below = [reasons.length ? h("ul", {}, reasons) : null, errors.get(batch.id)].filter(Boolean);
  return [
    h("tr", { class: below.length ? "with-reasons" : null }, h("th", { scope: "row" }, first), cells.map((cell, column) => h("td", { "data-heading": HEADINGS[column + 1] }, cell))),
    below.length ? h("tr", {}, h("td", { colspan: HEADINGS.length, class: "reasons" }, below)) : null,
  ];
}

/** A moment in Unix seconds, in the time of the browser. */
function made(seconds) {
  const moment = new Date(seconds * 1000);
  return h("time", { datetime: moment.toISOString() }, moment.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" }));
}

function state({ status, expires_at: expiresAt }) {
  const until = ENDED.has(status) || !expiresAt ? null : h("small", {}, " until ", made(expiresAt));
  return [h("span", { class: `state state-${status}` }, status.replaceAll("_", " ")), until];
}

function progress({ id, request_counts: { total, completed, failed } }) {
  const text = `${completed + failed} of ${count(total, "request")}${failed ? `, ${failed} failed` : ""}`;
  return h("span", { class: "progress" }, h("progress", { max: total || 1, value: completed + failed, "aria-label": `Progress of ${id}` }), h("span", {}, text));
}

/** Buttons of a batch. What they save is named after its file, if there still is one. */
function actions(batch, name, act, errors) {
  const stem = name ? name.replace(/\.jsonl$/, "") : batch.id;
  const button = (text, work, key = text) =>
    h("button", { type: "button", "aria-label": `${text} of ${batch.id}`, "data-key": `${key} ${batch.id}`, onclick: () => act(work) }, text);
  const save = (id, what) =>
    button(`Save ${what}`, async () => saveBlob(await download(`v1/files/${id}/content`), `${stem}-${what}.jsonl`));
  const isShown = errors.has(batch.id);
  const toggle = async () => {
    if (isShown) errors.delete(batch.id);
    else errors.set(batch.id, showErrors(await readBeginning(`v1/files/${batch.error_file_id}/content`, ERRORS_BYTES)));
  };
  return h(
    "div",
    { class: "actions" },
    batch.output_file_id ? save(batch.output_file_id, "results") : null,
    batch.error_file_id ? button(isShown ? "Hide errors" : "Show errors", toggle, "errors") : null,
    batch.error_file_id ? save(batch.error_file_id, "errors") : null,
    ENDED.has(batch.status) ? null : button("Cancel", () => send(`v1/batches/${batch.id}/cancel`, { method: "POST" })),
  );
}

/** Return the messages of a file of errors, each once. */
function showErrors({ text, isCut }) {
  const messages = sumUpErrors(text);
  const part = isCut ? " in the first megabyte of the errors" : "";
  return table(
    messages.length > MESSAGES_SHOWN ? `The ${MESSAGES_SHOWN} most frequent of ${messages.length} messages${part}` : `What went wrong${part}`,
    ["Message", "Status", "Requests", "The first of them"],
    messages.slice(0, MESSAGES_SHOWN).map(({ message, status, total, ids }) => [longText(message), status ?? "–", total, longText(ids.join(", ") + (total > ids.length ? ", …" : ""))]),
    "stacked",
  );
}

function showFiles(files, act) {
  if (!files.length) return null;
  const remove = ({ id, filename }) => {
    if (confirm(`Delete ${filename}?`)) act(() => send(`v1/files/${id}`, { method: "DELETE" }));
  };
  const write = (file) => [
    file.id,
    h("span", { class: "breaks" }, file.filename),
    made(file.created_at),
    bytes(file.bytes),
    h("button", { type: "button", "aria-label": `Delete ${file.id}`, "data-key": `delete ${file.id}`, onclick: () => remove(file) }, "Delete"),
  ];
  return card(null, "wide-card", scrolled("Files", table("Files", ["File", "Name", "Made", "Size", "Actions"], files.map(write), "stacked")));
}
