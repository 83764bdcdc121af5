// Tables, and bringing them up to date without disturbing who reads them.

import { h } from "./text.js";

/** A cell: its content; its `label` where the table is stacked, `kind` as class, whether it is the row's `head`. */
export const cell = (content, { label = null, kind = null, head = false } = {}) => ({ content, label, kind, head });

/** A row with sentences about it, which stand below it and are as wide as the table. */
export const explainedRow = (cells, sentences) => ({ cells, sentences });

/**
 * A table. `columns` are `[heading, kind]`, `rows` lists of cells or of what `explainedRow` gives. On narrow screens a
 * row of one with `blocks` in its `kind` is a block, and its cells say their columns' headings. Roles are said, lest
 * that take them away.
 */
export function table(caption, columns, rows, kind = "") {
  const headings = columns.map(([heading, kind]) =>
    h("th", { scope: "col", role: "columnheader", class: kind }, heading));
  const labels = columns.map(([heading]) => (typeof heading === "string" ? heading : null));
  return h("table", { class: kind, role: "table" },
    h("caption", {}, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, headings)),
    h("tbody", { role: "rowgroup" }, rows.flatMap((one) => {
      const { cells, sentences } = one.cells ? one : { cells: one, sentences: [] };
      const about = h("td", { role: "cell", colspan: cells.length },
        sentences.map((sentence) => h("span", { class: "line" }, sentence)));
      const further = sentences.length ? [h("tr", { role: "row", class: "about" }, about)] : [];
      return [row(cells, labels), ...further];
    })));
}

function row(cells, labels) {
  return h("tr", { role: "row" }, cells.map(({ content, label, kind, head }, place) => {
    const how = {
      class: kind, "data-label": label ?? labels[place], role: head ? "rowheader" : "cell", scope: head ? "row" : null,
    };
    return h(head ? "th" : "td", how, content);
  }));
}

/** A wide table's own place to be moved sideways in, also by keys. */
export const wide = (label, ...children) =>
  h("div", { class: "wide", role: "region", "aria-label": label, tabindex: 0 }, ...children);

/** Make `old` what `fresh` is and leave alone what has not changed, so that focus, selection and scrolling stay. */
export function update(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName || !(old instanceof Element)) return old.replaceWith(fresh);
  const gone = [...old.attributes].filter(({ name }) => name !== "open" && !fresh.hasAttribute(name));
  for (const { name } of gone) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  after.forEach((child, place) => (place < before.length ? update(before[place], child) : old.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
}
