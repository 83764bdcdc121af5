// What a page shows, to be saved: each of its tables as CSV, each answer that it has asked for as JSON.

import { answered } from "./api.js";
import { h } from "./text.js";

const place = document.getElementById("saving");
place.hidden = false;

/** A table's cells as CSV: the numbers and times that machines read, where a cell has any. */
function csv(shown) {
  const plain = (at) => at.querySelector("data")?.value ?? at.querySelector("time")?.dateTime ?? at.textContent;
  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  return [...shown.rows].map((row) => [...row.cells].map((at) => quoted(plain(at))).join(",")).join("\r\n");
}

function save(text, file) {
  const href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  h("a", { href, download: file }).click();
  URL.revokeObjectURL(href);
}

function list() {
  const tables = [...document.querySelectorAll("main table")].map((shown) => {
    const file = `${shown.caption.textContent}.csv`;
    const button = h("button", { type: "button", class: "plain" }, file);
    button.addEventListener("click", () => save(csv(shown), file));
    return h("li", {}, button);
  });
  const answers = [...answered].filter((path) => path !== "v1/me").map((path) => h("li", {}, h("a", { href: path }, path)));
  place.lastElementChild.replaceChildren(
    h("p", { class: "hint" }, "Tables, as CSV; times in UTC, durations in seconds:"), h("ul", {}, tables),
    h("p", { class: "hint" }, "Answers of the service, as JSON:"), h("ul", {}, answers),
  );
}

place.addEventListener("toggle", () => place.open && list());
