// The part of a form that takes pictures, dropped, chosen or pasted. They are kept until the page is left.

import { fill, h } from "./elements.js";
import { keepHere, readHere } from "./kept.js";
import { count } from "./numbers.js";
import { FORMATS, PICTURE_TYPES, readDropped, readPicture, thumbnail } from "./picture_files.js";

const MOST_PICTURES = 500;
const SHOWN = 60;
const NAMED = 3;
// Pictures that are decoded at the same time.
const READERS = 2;

// The field that takes what is dropped anywhere on the page: beside it, the browser would open the file in place of the page.
let shownField = null;

for (const type of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(type, (event) => {
    if (!shownField?.field.isConnected || !event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    shownField.field.classList.toggle("over", type === "dragenter" || type === "dragover");
    if (type === "drop") shownField.drop(event.dataTransfer);
  });
}

/** Return `{field, read}`: a part of a form, and the function that returns its pictures, see `readPicture`. */
export function picturesField(name) {
  const read = () => readHere(name) || [];
  // What the form compares to tell whether a result is of earlier pictures.
  const listed = h("input", { type: "hidden", name });
  const state = h("p", { class: "note", role: "status" });
  const problems = h("p", { class: "problem", role: "alert", hidden: true });
  const shown = h("ul", { class: "thumbnails", "aria-label": "Chosen pictures", tabindex: "0" });
  const remove = h("button", { type: "button", onclick: () => set([]) }, "Remove all");

  function set(pictures) {
    keepHere(name, pictures);
    problems.hidden = true;
    show();
    listed.dispatchEvent(new Event("input", { bubbles: true }));
  }

  function show() {
    const pictures = read();
    listed.value = pictures.map(({ id }) => id).join(" ");
    fill(shown, pictures.slice(0, SHOWN).map((picture) => h("li", { title: picture.name }, thumbnail(picture, picture.name))));
    const more = pictures.length > SHOWN ? `, of which ${SHOWN} are shown` : "";
    fill(state, pictures.length ? `${count(pictures.length, "picture")}${more}` : "No pictures yet");
    remove.hidden = !pictures.length;
  }

  /** Add files. Those that are no pictures, or too many, are named. */
  async function add(files) {
    const known = new Set(read().map(({ file }) => keyOf(file)));
    const fresh = files.filter((file) => !known.has(keyOf(file)));
    const room = MOST_PICTURES - read().length;
    const taken = fresh.slice(0, Math.max(0, room));
    const found = new Array(taken.length);
    let [next, done] = [0, 0];
    const work = async () => {
      while (next < taken.length) {
        const place = next;
        next += 1;
        found[place] = await readPicture(taken[place]).catch(() => null);
        done += 1;
        fill(state, `Reading pictures: ${done} of ${taken.length}`);
      }
    };
    await Promise.all(Array.from({ length: READERS }, work));
    set([...read(), ...found.filter(Boolean)]);
    const others = taken.filter((_, place) => !found[place]).map((file) => file.name);
    const sentences = [
      others.length ? `${describe(others)} no ${FORMATS}.` : null,
      fresh.length > taken.length ? `This view takes at most ${count(MOST_PICTURES, "picture")}: ${(fresh.length - taken.length).toLocaleString("en")} were left out. For more, there is vecmill embed.` : null,
    ].filter(Boolean);
    problems.hidden = !sentences.length;
    fill(problems, sentences.join(" "));
  }

  const file = h("input", {
    type: "file",
    "aria-label": "Files with pictures",
    accept: PICTURE_TYPES.join(","),
    multiple: true,
    hidden: true,
    onchange: async () => {
      await add([...file.files]);
      file.value = ""; // so that the same files can be chosen again
    },
  });
  const field = h(
    "div",
    {
      class: "drop",
      role: "group",
      "aria-label": "Pictures",
    },
    h("b", {}, "Pictures"),
    h("p", { class: "note" }, "Drop pictures or folders here. They are sent to this server alone, as they are."),
    h("div", { class: "actions" }, h("button", { type: "button", onclick: () => file.click() }, "Choose pictures"), remove, file),
    listed,
    state,
    problems,
    shown,
  );
  shownField = {
    field,
    drop: (transfer) =>
      readDropped(transfer).then(add, (error) => {
        problems.hidden = false;
        fill(problems, error.message);
      }),
  };
  queueMicrotask(show); // when the form has been filled with what was kept
  return { field, read };
}

function describe(names) {
  const rest = names.length - NAMED;
  const named = names.slice(0, NAMED).join(", ") + (rest > 0 ? ` and ${rest.toLocaleString("en")} more` : "");
  return `${named} ${names.length === 1 ? "is" : "are"}`;
}

function keyOf({ name, path, size, lastModified, webkitRelativePath }) {
  return JSON.stringify([webkitRelativePath || path || name, size, lastModified]);
}
