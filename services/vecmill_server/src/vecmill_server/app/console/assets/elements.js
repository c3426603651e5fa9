// Creates elements. Texts are never parsed as HTML, so nothing that a user or a server sends can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element. `on...` attributes are listeners; `null` and `false` leave an attribute out. */
export function h(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

/** Return an SVG element, as `h` does. */
export function svg(tag, attributes = {}, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

/** Put other children into an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/**
 * Return a table. `rows` are lists of cells: texts, numbers or elements. The first cell of a row is its heading.
 *
 * `style` is "stacked" for rows that a small window shows as lists, each cell with the heading of its column; "facts" for
 * names and values without headings.
 */
export function table(caption, headings, rows, style = null) {
  const isNumeric = headings.map((_, column) => rows.length > 0 && rows.every((cells) => isNumber(cells[column])));
  return h(
    "table",
    { class: style },
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, headings.map((heading, column) => h("th", { scope: "col", class: isNumeric[column] ? "of-numbers" : null }, heading)))),
    h(
      "tbody",
      {},
      rows.map((cells) =>
        h(
          "tr",
          {},
          cells.map((cell, column) => {
            const attributes = { class: isNumeric[column] ? "number" : null, "data-heading": style === "stacked" ? headings[column] : null };
            return column ? h("td", attributes, cell) : h("th", { ...attributes, scope: "row" }, cell);
          }),
        ),
      ),
    ),
  );
}

/** Numbers, with a unit or without, are never broken. Nor are buttons that show one. */
function isNumber(cell) {
  if (cell?.classList?.contains("number")) return true;
  return typeof cell === "number" || (typeof cell === "string" && /^[-–\u2212]?[\d.,]*(e-?\d+)?\s?(ms|s|min|kB|MB|GB|%)?$/.test(cell));
}

/** Return a labelled control. */
export function labelled(text, control, hint) {
  return h("label", {}, h("span", {}, text), control, hint ? h("small", {}, hint) : null);
}

/** Return a `select` with these options, pairs of value and text. */
export function choice(name, options, value) {
  return h(
    "select",
    { name },
    options.map(([each, text]) => h("option", { value: each, selected: each === value }, text)),
  );
}

/** Return a part of a result in a frame of its own. `width` is "wide-card" for the whole width, or "two-thirds" or "one-third". */
export function card(title, width, ...children) {
  return h("section", { class: width ? `card ${width}` : "card" }, title ? h("h3", {}, title) : null, children);
}

/** Return a button that looks like a link, for a number or a text in a table. */
export function textButton(text, label, onclick, isNumeric = false) {
  return h("button", { type: "button", class: isNumeric ? "text-button number" : "text-button", "aria-label": label, onclick }, text);
}

/** Return a part that scrolls sideways on its own, for tables that may be wider than the window. */
export function scrolled(label, ...children) {
  return h("div", { class: "wide", role: "region", "aria-label": label, tabindex: "0" }, children);
}

/** Return the links of the parts of a view. `parts` are pairs of the end of the address and a title. */
export function tabs(label, view, parts, current) {
  const link = ([name, title]) => h("a", { href: `#/${view}/${name}`, "aria-current": name === current ? "page" : null }, title);
  return h("nav", { "aria-label": label, class: "tabs" }, parts.map(link));
}

/** Return a button that opens a file and calls `read` with it. `types` are endings, such as ".csv". */
export function fileButton(label, types, read) {
  const file = h("input", {
    type: "file",
    "aria-label": label,
    accept: types.join(","),
    hidden: true,
    onchange: async () => {
      const [chosen] = file.files;
      if (chosen) await read(chosen);
      file.value = ""; // so that the same file can be opened again
    },
  });
  return [h("button", { type: "button", onclick: () => file.click() }, "Open a file"), file];
}

let lastId = 0;

/** Return an id that no other element of this page has. */
export function newId(word) {
  lastId += 1;
  return `${word}-${lastId}`;
}

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false)
      .map((child) => (child instanceof Node ? child : String(child))),
  );
  return element;
}
