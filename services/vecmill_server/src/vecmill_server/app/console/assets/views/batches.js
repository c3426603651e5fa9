// The view "Batches": files and batches of OpenAI's Batch API, their progress, download and cancel.

import { choice, fill, h, labelled, table } from "../elements.js";
import { bytes, count } from "../numbers.js";
import { download, send } from "../server.js";
import { saveBlob } from "../take_away.js";

const EVERY_MS = 3_000;
const ENDPOINTS = ["/v1/embeddings", "/v1/rerank"];
const ENDED = new Set(["completed", "failed", "expired", "cancelled"]);

export async function openBatches() {
  const title = "Batches";
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const list = h("div");
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
    const found = JSON.stringify([batches.body.data, files.body.data]);
    if (found === shown) return;
    shown = found;
    const focused = list.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
    fill(list, showBatches(batches.body.data, files.body.data, act), showFiles(files.body.data, act));
    if (focused) list.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
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
    return { title, element: h("section", {}, h("h2", {}, title), h("p", {}, error.message)) };
  }
  setTimeout(look, EVERY_MS);
  const element = h("section", {}, h("h2", {}, title), newBatch(act), problem, list);
  return {
    title,
    element,
    close() {
      isOpen = false;
    },
  };
}

function newBatch(act) {
  const file = h("input", { type: "file", name: "file", accept: ".jsonl", required: true });
  const endpoint = choice("endpoint", ENDPOINTS.map((each) => [each, each]), ENDPOINTS[0]);
  const submit = h("button", { type: "submit", class: "main" }, "Start a batch");
  return h(
    "form",
    {
      class: "row",
      onsubmit: async (event) => {
        event.preventDefault();
        submit.disabled = true; // until the file is there: it may be large
        await act(async () => {
          const form = new FormData();
          form.append("purpose", "batch");
          form.append("file", file.files[0]);
          const { body } = await send("v1/files", { form });
          await send("v1/batches", {
            json: { input_file_id: body.id, endpoint: endpoint.value, completion_window: "24h" },
          });
          event.target.reset();
        });
        submit.disabled = false;
      },
    },
    labelled("File with a request on each line", file, "JSON lines, as OpenAI's Batch API takes them."),
    labelled("Route", endpoint),
    submit,
  );
}

function showBatches(batches, files, act) {
  if (!batches.length) return h("p", {}, "There are no batches yet.");
  const names = new Map(files.map(({ id, filename }) => [id, filename]));
  return h(
    "div",
    { class: "wide whole", role: "region", "aria-label": "Batches", tabindex: "0" },
    table(
      "Batches, the newest first",
      ["State", "File", "Requests", "Actions", "Made", "Route", "Batch"],
      batches.map((batch) => {
        const name = names.get(batch.input_file_id);
        return [state(batch), name ?? "deleted", progress(batch), actions(batch, name, act), made(batch.created_at), batch.endpoint, batch.id];
      }),
    ),
  );
}

/** A moment in Unix seconds, in the time of the browser. */
function made(seconds) {
  const moment = new Date(seconds * 1000);
  return h("time", { datetime: moment.toISOString() }, moment.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" }));
}

/** The state of a batch, and why it failed. */
function state({ status, errors, expires_at: expiresAt }) {
  const reasons = (errors?.data || []).map(({ line, message }) => h("li", {}, line ? `line ${line}: ${message}` : message));
  const until = ENDED.has(status) || !expiresAt ? null : h("small", {}, " until ", made(expiresAt));
  return h("div", { class: "reasons" }, status.replaceAll("_", " "), until, reasons.length ? h("ul", { class: "problem" }, reasons) : null);
}

function progress({ id, request_counts: { total, completed, failed } }) {
  const text = `${completed + failed} of ${count(total, "request")}${failed ? `, ${failed} failed` : ""}`;
  return h("span", {}, h("progress", { max: total || 1, value: completed + failed, "aria-label": `Progress of ${id}` }), ` ${text}`);
}

/** Buttons of a batch. What they save is named after its file, if there still is one. */
function actions(batch, name, act) {
  const stem = name ? name.replace(/\.jsonl$/, "") : batch.id;
  const save = (id, what) =>
    h(
      "button",
      {
        type: "button",
        "aria-label": `Save ${what} of ${batch.id}`,
        onclick: () => act(async () => saveBlob(await download(`v1/files/${id}/content`), `${stem}-${what}.jsonl`)),
      },
      `Save ${what}`,
    );
  return [
    batch.output_file_id ? save(batch.output_file_id, "results") : null,
    batch.error_file_id ? save(batch.error_file_id, "errors") : null,
    ENDED.has(batch.status)
      ? null
      : h(
          "button",
          {
            type: "button",
            "aria-label": `Cancel ${batch.id}`,
            onclick: () => act(() => send(`v1/batches/${batch.id}/cancel`, { method: "POST" })),
          },
          "Cancel",
        ),
  ];
}

function showFiles(files, act) {
  if (!files.length) return null;
  return h(
    "div",
    { class: "wide whole", role: "region", "aria-label": "Files", tabindex: "0" },
    table(
      "Files",
      ["File", "Name", "Made", "Size", "Actions"],
      files.map(({ id, filename, created_at: createdAt, bytes: size }) => [
        id,
        filename,
        made(createdAt),
        bytes(size),
        h(
          "button",
          {
            type: "button",
            "aria-label": `Delete ${id}`,
            onclick: () => {
              if (confirm(`Delete ${filename}?`)) act(() => send(`v1/files/${id}`, { method: "DELETE" }));
            },
          },
          "Delete",
        ),
      ]),
    ),
  );
}
