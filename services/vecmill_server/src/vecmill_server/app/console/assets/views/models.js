// The view "Models": what is served as a table, and of one model how accurate it is and what `vecmill optimize` has measured.

import { card, h, scrolled, table } from "../elements.js";
import { bytes, count, fixed, percent, short, time } from "../numbers.js";
import { scatter } from "../pictures.js";
import { send } from "../server.js";

export async function openModels([asked] = []) {
  const { body } = await send("console/models.json");
  const title = "Models";
  const chosen = body.models.find(({ name }) => encodeURIComponent(name) === asked) || body.models[0];
  const element = h("section", {}, h("h2", {}, title), showAll(body.models, chosen), chosen ? showModel(chosen) : null);
  return { title: asked && chosen ? chosen.name : title, element };
}

/** Return the table of all models, whose names lead to their descriptions. */
function showAll(models, chosen) {
  const headings = ["Model", "State", "Task", "Engine", "Device", "Dimensions", "Longest text", "Memory", "Accuracy", "Last request"];
  const write = (model) => {
    const { facts } = model;
    const isChosen = model === chosen;
    return [
      h("a", { href: `#/models/${encodeURIComponent(model.name)}`, "aria-current": isChosen ? "true" : null }, model.name),
      h("span", { class: `state state-${facts.state}` }, facts.state.replaceAll("_", " ")),
      facts.task?.replaceAll("_", " ") ?? "–",
      [facts.engine, facts.precision].filter(Boolean).join(" ") || "–",
      facts.device ?? "–",
      facts.dimensions ?? "–",
      facts["longest text, tokens"]?.toLocaleString("en") ?? "–",
      model.memory_mb === null ? (facts["weights on disk"] ?? "–") : bytes(model.memory_mb * 1e6),
      tellAccuracy(model),
      model.used_s_ago === null ? "–" : `${time(model.used_s_ago)} ago`,
    ];
  };
  const list = scrolled("Models", table("The served models", headings, models.map(write)));
  list.classList.add("whole");
  models.forEach((model, place) => list.querySelector("tbody").rows[place].classList.toggle("chosen", model === chosen));
  const note = "Memory is that of a model that is loaded on demand, or else of its weights on disk. Accuracy is the cosine of the text that differs most from the reference.";
  return card(null, "wide-card", list, h("p", { class: "note" }, note));
}

/** Return the cosine of the text that differs most from the reference, by whatever has measured it last; "–" for none. */
function tellAccuracy({ accuracy, check, precision_check: first }) {
  const found = check?.findings?.[0]?.cosine_min ?? accuracy?.cosine_min ?? first?.worst_cosine ?? null;
  return found === null ? "–" : fixed(found, 5);
}

function showModel(model) {
  const measured = showAccuracies(model);
  const width = measured.length + (model.prompts.length ? 1 : 0) > 1 ? null : "wide-card";
  return h(
    "article",
    {},
    h("h3", { id: "model" }, model.name),
    h(
      "div",
      { class: "cards" },
      card(null, "wide-card", showFacts(model)),
      model.prompts.length
        ? card(null, width, table("Prompts", ["Name", "Text before each text"], model.prompts.map(({ name, text }) => [name, h("code", {}, text)])))
        : null,
      measured.map((each) => card(null, width, each)),
      model.optimized ? showOptimized(model.optimized) : null,
    ),
  );
}

function showFacts(model) {
  return table(
    "What is served",
    ["", ""],
    [
      ...Object.entries(model.facts).map(([name, value]) => [name, Array.isArray(value) ? value.join(", ") : value]),
      ...(model.aliases.length ? [["other names", model.aliases.join(", ")]] : []),
      ...(model.memory_mb === null ? [] : [["memory", bytes(model.memory_mb * 1e6)]]),
      ["last request", model.used_s_ago === null ? "none yet" : `${time(model.used_s_ago)} ago`],
      ...(model.space ? [["space: vectors of equal spaces are comparable", h("code", {}, model.space)]] : []),
      ...(model.fingerprint ? [["fingerprint of weights and settings", h("code", {}, model.fingerprint)]] : []),
    ],
    "facts columns",
  );
}

/** Return what is known of the accuracy of the served precision: by the first start, `optimize` and `check`. */
function showAccuracies({ facts, accuracy, precision_check: first, check }) {
  const tables = [
    accuracy && showAccuracy(accuracy, "Accuracy of the served engine and precision, as vecmill optimize measured"),
    ...(check?.findings || []).map((finding) =>
      showAccuracy(finding, `Accuracy as vecmill check measured on ${check.checked_at.slice(0, 10)}${finding.side ? `, ${finding.side}` : ""}`),
    ),
    first &&
      table(
        `Accuracy of ${facts.precision}, as its first start measured`,
        ["", ""],
        [["Compared with", "the same model in fp32"], ["Texts", first.texts], ["Cosine, worst text", fixed(first.worst_cosine, 5)]],
        "facts",
      ),
  ].filter(Boolean);
  if (tables.length || facts.state !== "ready") return tables;
  return [h("p", { class: "note" }, "Its accuracy has not been measured here: ", h("code", {}, "vecmill check MODEL"), " compares it with its reference.")];
}

function showAccuracy(accuracy, title) {
  const rows = [
    ["Compared with", accuracy.reference],
    ["Texts", accuracy.texts],
    ["Cosine, worst text", accuracy.cosine_min === null ? "–" : fixed(accuracy.cosine_min, 5)],
    ["Cosine, mean", accuracy.cosine_mean === null ? "–" : fixed(accuracy.cosine_mean, 5)],
    ["Recall@10", accuracy.kept === null ? "–" : percent(accuracy.kept)],
    ["Largest difference", `${short(accuracy.largest_difference)} of ${short(accuracy.scale)}`],
  ];
  return table(title, ["", ""], rows, "facts");
}

function showOptimized({ reason, machine, plans, texts }) {
  const measured = plans.filter(({ texts_per_s: speed, loss }) => speed !== null && loss !== null);
  const points = (value) =>
    measured.map((plan) => ({ x: value(plan), y: 1 - plan.loss, name: describe(plan), mark: plan.is_chosen ? "chosen" : "" }));
  return card(
    "What vecmill optimize measured",
    "wide-card",
    h("p", {}, `Chosen: ${reason}. Over ${count(texts, "text")} on ${machine}.`),
    h(
      "div",
      { class: "grid" },
      scatter("Speed and accuracy of all plans: the best are at the top right.", "texts/s", "cosine, worst text", points(({ texts_per_s }) => texts_per_s)),
      scatter("Time of a single text and accuracy: the best are at the top left.", "single text, ms", "cosine, worst text", points(({ single_ms }) => single_ms)),
    ),
    scrolled(
      "All plans",
      table(
        "All plans, the fastest first",
        ["Plan", "Texts/s", "Single text, ms", "Cosine, worst text", "Memory, MB", ""],
        [...plans]
          .sort((one, other) => (other.texts_per_s ?? 0) - (one.texts_per_s ?? 0))
          .map((plan) => [
            plan.name,
            short(plan.texts_per_s),
            short(plan.single_ms),
            plan.loss === null ? "–" : fixed(1 - plan.loss, 5),
            short(plan.memory_mb),
            plan.is_chosen ? "chosen" : plan.is_safe ? "the safe plan" : plan.failure || "",
          ]),
      ),
    ),
  );
}

function describe({ name, texts_per_s: speed, single_ms: single, loss }) {
  return `${name}: ${short(speed)} texts/s, ${short(single)} ms, cosine ${fixed(1 - loss, 5)}`;
}
