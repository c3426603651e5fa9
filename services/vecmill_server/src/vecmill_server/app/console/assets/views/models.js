// The view "Models": what is served, how accurate it is, and what `vecmill optimize` has measured.

import { h, scrolled, table } from "../elements.js";
import { bytes, count, fixed, percent, short, time } from "../numbers.js";
import { scatter } from "../pictures.js";
import { send } from "../server.js";

// Of more, each is a line that opens.
const MODELS_OPEN = 2;

export async function openModels() {
  const { body } = await send("console/models.json");
  const title = "Models";
  const isOpen = body.models.length <= MODELS_OPEN;
  return { title, element: h("section", {}, h("h2", {}, title), body.models.map((model) => showModel(model, isOpen))) };
}

/** What tells a model from the others, in a line. */
function summarise({ facts }) {
  const plan = [facts.engine, facts.precision].filter(Boolean).join(" ");
  return [facts.task?.replaceAll("_", " "), plan, facts.state].filter(Boolean).join(", ");
}

function showModel(model, isOpen) {
  const details = h(
    "details",
    { open: isOpen },
    h("summary", {}, h("h3", {}, model.name), " ", h("span", { class: "note" }, summarise(model))),
    table(
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
    ),
    model.prompts.length
      ? table("Prompts", ["Name", "Text before each text"], model.prompts.map(({ name, text }) => [name, h("code", {}, text)]))
      : null,
    showAccuracies(model),
    model.optimized ? showOptimized(model.optimized) : null,
  );
  return h("article", {}, details);
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
      ),
  ].filter(Boolean);
  if (tables.length || facts.state !== "ready") return tables;
  return h("p", { class: "note" }, "Its accuracy has not been measured here: ", h("code", {}, "vecmill check MODEL"), " compares it with its reference.");
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
  return table(title, ["", ""], rows);
}

function showOptimized({ reason, machine, plans, texts }) {
  const measured = plans.filter(({ texts_per_s: speed, loss }) => speed !== null && loss !== null);
  const points = (value) =>
    measured.map((plan) => ({ x: value(plan), y: 1 - plan.loss, name: describe(plan), mark: plan.is_chosen ? "chosen" : "" }));
  return h(
    "div",
    {},
    h("h4", {}, "What vecmill optimize measured"),
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
