// Tables, and updates of elements that keep focus, selection and scroll position.

import { h } from "./text.js";

/** A cell: its content, `label` in the stacked layout, `kind` as class, and whether it is the row's `head`. */
export const cell = (content, { label = null, kind = null, head = false } = {}) => ({ content, label, kind, head });

/** A row with notes: sentences below it, as wide as the table. */
export const rowWithNotes = (cells, notes) => ({ cells, notes });

/**
 * Return a table. `columns` are `[heading, kind]`; `rows` are lists of cells, or results of `rowWithNotes`.
 *
 * With `blocks` in `kind`, each row is a block on narrow screens, and each cell shows its column's heading. The roles
 * are explicit, because that layout would remove the implicit ones.
 */
export function table(caption, columns, rows, kind = "") {
  const headings = columns.map(([heading, kind]) =>
    h("th", { scope: "col", role: "columnheader", class: kind }, heading));
  const labels = columns.map(([heading]) => (typeof heading === "string" ? heading : null));
  return h("table", { class: kind, role: "table" },
    h("caption", {}, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, headings)),
    h("tbody", { role: "rowgroup" }, rows.flatMap((one) => {
      const { cells, notes } = one.cells ? one : { cells: one, notes: [] };
      const about = h("td", { role: "cell", colspan: cells.length },
        notes.map((note) => h("span", { class: "line" }, note)));
      const further = notes.length ? [h("tr", { role: "row", class: "about" }, about)] : [];
      return [row(cells, labels), ...further];
    })));
}

function row(cells, labels) {
  return h("tr", { role: "row" }, cells.map(({ content, label, kind, head }, place) => {
    const attributes = {
      class: kind, "data-label": label ?? labels[place], role: head ? "rowheader" : "cell", scope: head ? "row" : null,
    };
    return h(head ? "th" : "td", attributes, content);
  }));
}

/** Return a region in which a wide table scrolls horizontally, also by keyboard. */
export const wide = (label, ...children) =>
  h("div", { class: "wide", role: "region", "aria-label": label, tabindex: 0 }, ...children);

/** Change `old` into `fresh`. Unchanged parts stay, and with them focus, selection and scroll position. */
export function update(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName || !(old instanceof Element)) return old.replaceWith(fresh);
  const removed = [...old.attributes].filter(({ name }) => name !== "open" && !fresh.hasAttribute(name));
  for (const { name } of removed) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  after.forEach((child, place) => (place < before.length ? update(before[place], child) : old.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
}
