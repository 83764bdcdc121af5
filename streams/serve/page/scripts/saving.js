// Downloads of the data of a page: its tables as CSV, and the answers it has received as JSON.

import { answeredPaths } from "./api.js";
import { h } from "./text.js";

const place = document.getElementById("saving");
place.hidden = false;

/** Return the cells of a table as CSV; machine-readable numbers and times where a cell has them. */
function csv(table) {
  const plain = (at) => at.querySelector("data")?.value ?? at.querySelector("time")?.dateTime ?? at.textContent;
  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  return [...table.rows].map((row) => [...row.cells].map((at) => quoted(plain(at))).join(",")).join("\r\n");
}

function save(text, file) {
  const href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  h("a", { href, download: file }).click();
  URL.revokeObjectURL(href);
}

function list() {
  const tables = [...document.querySelectorAll("main table")].map((table) => {
    const file = `${table.caption.textContent}.csv`;
    const button = h("button", { type: "button", class: "plain" }, file);
    button.addEventListener("click", () => save(csv(table), file));
    return h("li", {}, button);
  });
  const paths = [...answeredPaths].filter((path) => path !== "v1/me");
  const answers = paths.map((path) => h("li", {}, h("a", { href: path }, path)));
  place.lastElementChild.replaceChildren(
    h("p", { class: "hint" }, "Tables, as CSV; times in UTC, durations in seconds:"), h("ul", {}, tables),
    h("p", { class: "hint" }, "Answers of the service, as JSON:"), h("ul", {}, answers),
  );
}

place.addEventListener("toggle", () => place.open && list());
