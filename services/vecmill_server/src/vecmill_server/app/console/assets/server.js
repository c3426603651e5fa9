// Sends requests to the server that this page comes from. The key stays in this tab.

import { h } from "./elements.js";

// The assets are at PREFIX/console/assets/VERSION/.
export const BASE = new URL("../../..", import.meta.url);

// Several servers may share an origin, with a prefix for each.
const KEY = `vecmill-key ${BASE.pathname}`;
// A server may have a key of their own for the metrics.
const METRICS_KEY = `vecmill-metrics-key ${BASE.pathname}`;

/** A refused or failed request. `message` is the server's own sentence. */
export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** The URL of a path of the server. */
export function urlOf(path) {
  return new URL(path.replace(/^\//, ""), BASE).href;
}

/** Return `{body, headers, ms}` of a JSON request; `body` is text for other types. Throws `ServerError`. */
export async function send(path, { json, form, method, signal } = {}) {
  const began = performance.now();
  const response = await sendWithKey(path, { json, form, method, signal });
  const text = await response.text();
  const ms = performance.now() - began;
  const isJson = (response.headers.get("content-type") || "").startsWith("application/json");
  return { body: isJson ? JSON.parse(text) : text, headers: response.headers, ms, status: response.status };
}

/** Return the content of a path as a Blob. Throws `ServerError`. */
export async function download(path) {
  return (await sendWithKey(path, {})).blob();
}

/** Return the first `most` bytes of the content of a path as text, and whether there are more. Throws `ServerError`. */
export async function readBeginning(path, most) {
  const reader = (await sendWithKey(path, {})).body.getReader();
  const parts = [];
  let size = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    parts.push(part.value);
    size += part.value.length;
    if (size > most) break;
  }
  await reader.cancel();
  return { text: await new Blob(parts).slice(0, most).text(), isCut: size > most };
}

/** Return the module that `load` imports. Throws an error that says what to do if the server does not send it. */
export async function importPart(load) {
  try {
    return await load();
  } catch (error) {
    console.error(error);
    throw new Error("The server did not send a part of this page. Reload the page when it answers.");
  }
}

/** Return the served models, entries of `/v1/models`, without their other names. Those that load have no capabilities. */
export async function listModels() {
  const { body } = await send("v1/models");
  const models = body.data.filter(({ id, root }) => id === root);
  if (!models.some(({ state, capabilities }) => state === "not_loaded" && !capabilities)) return models;
  // What is loaded at its first request is described, but not yet there.
  const reports = new Map((await send("console/models.json")).body.models.map((report) => [report.name, report]));
  return models.map((model) => ({ ...model, capabilities: model.capabilities || reports.get(model.id)?.capabilities }));
}

async function sendWithKey(path, { json, form, method, signal }) {
  for (;;) {
    const asked = path === "metrics" || path === "console/history.json" ? METRICS_KEY : KEY;
    const slot = sessionStorage.getItem(asked) ? asked : KEY;
    const key = sessionStorage.getItem(slot);
    const headers = { accept: "application/json" };
    if (key) headers.authorization = `Bearer ${key}`;
    if (json !== undefined) headers["content-type"] = "application/json";
    let response;
    try {
      response = await fetch(urlOf(path), {
        method: method || (json !== undefined || form ? "POST" : "GET"),
        headers,
        body: json !== undefined ? JSON.stringify(json) : form,
        signal,
        cache: "no-store",
        credentials: "omit",
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServerError("The server cannot be reached.", 0);
    }
    if (response.status === 401) {
      await askForKey(asked, Boolean(key) && slot === asked);
      continue;
    }
    if (!response.ok) throw new ServerError(await readMessage(response), response.status);
    return response;
  }
}

async function readMessage(response) {
  const text = await response.text();
  try {
    const { error, detail, message } = JSON.parse(text);
    return error?.message || (typeof error === "string" ? error : null) || detail || message || text;
  } catch {
    return text || `The server answered with status ${response.status}.`;
  }
}

let asking = null;

/** Ask for a key until one is given. Several requests that wait for a key share one dialog. */
function askForKey(slot, wasRefused) {
  asking ??= showKeyDialog(slot, wasRefused).finally(() => {
    asking = null;
  });
  return asking;
}

function showKeyDialog(slot, wasRefused) {
  return new Promise((resolve, reject) => {
    const input = h("input", {
      type: "password",
      name: "key",
      autocomplete: "off",
      required: true,
      pattern: "[!-~]+", // what a header can carry
      title: "Letters, digits and signs of ASCII, without spaces",
    });
    const dialog = h(
      "dialog",
      {
        "aria-labelledby": "key-title",
        // After a key was given, this has no effect any more.
        onclose: () => {
          dialog.remove();
          reject(new ServerError("No key was given. Reload the page to give one.", 401));
        },
      },
      h(
        "form",
        {
          onsubmit: (event) => {
            event.preventDefault();
            sessionStorage.setItem(slot, input.value);
            resolve();
            dialog.close();
          },
        },
        h("h2", { id: "key-title" }, slot === KEY ? "This server asks for a key" : "The metrics ask for a key of their own"),
        slot === KEY ? null : h("p", {}, "It is the key that the server was started with as --metrics-key. An API key does not open them."),
        wasRefused ? h("p", { class: "problem", role: "alert" }, "The server does not accept this key.") : null,
        h("label", {}, h("span", {}, slot === KEY ? "API key" : "Metrics key"), input),
        h("p", {}, "The key stays in this tab, and is forgotten when the tab is closed."),
        h(
          "p",
          { class: "actions" },
          h("button", { type: "submit", class: "main" }, "Use this key"),
          h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        ),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}
