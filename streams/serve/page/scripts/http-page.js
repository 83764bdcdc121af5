// The reference of the HTTP interface: paths, parameters, answers and types of the service's OpenAPI document.

import "./saving.js";
import { showStatus } from "./common.js";
import { cell, table } from "./table.js";
import { h } from "./text.js";

const status = document.getElementById("http-status");
const example = document.getElementById("http-curl");
example.textContent = example.textContent.replace("http://127.0.0.1:6067/", new URL("./", location.href).href);

/** Split a text into elements; words between backticks become code. */
const prose = (text) => text.split("`").map((part, place) => (place % 2 ? h("code", {}, part) : part));
const paragraphs = (text = "") => text.split("\n\n").map((one) => h("p", {}, prose(one)));
const target = (reference) => reference.split("/").at(-1);

/** Describe a type in words, with links to the types of the document. */
function kind(schema = {}) {
  if (schema.$ref) return [h("a", { href: `#${target(schema.$ref)}` }, target(schema.$ref))];
  if (schema.const != null) return [JSON.stringify(schema.const)];
  if (schema.enum) return [schema.enum.map((one) => JSON.stringify(one)).join(" or ")];
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices) return choices.flatMap((one, place) => [...(place ? [" or "] : []), ...kind(one)]);
  if (schema.prefixItems) return ["list of ", ...kind(schema.prefixItems[0])];
  if (schema.type === "array") return ["list of ", ...kind(schema.items)];
  if (schema.additionalProperties) return ["by name: ", ...kind(schema.additionalProperties)];
  return [schema.type ?? "anything"];
}

const folded = (summary, ...content) => h("details", { class: "numbers" }, h("summary", {}, summary), ...content);
const contentOf = (response) => kind(Object.values(response.content ?? {})[0]?.schema);

function pathSection(path, { parameters = [], description, responses }) {
  const parameterRows = parameters.map(({ name, in: where, required, schema, description: about }) => [
    cell(h("code", {}, name), { head: true }),
    cell(where === "path" ? "in the path" : required ? "yes" : "no"),
    cell(kind(schema)),
    cell(about ? prose(about) : "–"),
  ]);
  const columns = [["Parameter"], ["Required"], ["Type"], ["Description"]];
  const answerRows = Object.entries(responses).map(([code, response]) => [
    cell(code, { head: true }), cell(contentOf(response)), cell(prose(response.description)),
  ]);
  return h("section", { class: "chapter" },
    h("h2", {}, h("code", {}, `GET ${path}`)),
    paragraphs(description),
    parameterRows.length
      ? folded("Parameters", table(`Parameters of ${path}`, columns, parameterRows, "reference blocks")) : null,
    folded("Answers", table(`Answers of ${path}`, [["Status"], ["Type"], ["When"]], answerRows, "reference blocks")));
}

function typeSection(name, { properties = {}, required = [], description }) {
  const rows = Object.entries(properties).map(([field, schema]) => [
    cell(h("code", {}, field), { head: true }), cell(kind(schema)), cell(required.includes(field) ? "yes" : "no"),
  ]);
  const columns = [["Field"], ["Type"], ["Always present"]];
  const fields = table(`Fields of ${name}`, columns, rows, "reference blocks");
  const section = folded(name, ...paragraphs(description), fields);
  section.id = name;
  return section;
}

/** Open the type in the fragment of the address. */
function openLinkedType() {
  const linked = document.getElementById(location.hash.slice(1));
  if (linked?.matches("details")) linked.open = true;
  linked?.scrollIntoView();
}

try {
  const { paths, components } = await (await fetch("schema/openapi.json")).json();
  document.getElementById("http-paths").append(
    ...Object.entries(paths).filter(([, { get }]) => get).map(([path, { get }]) => pathSection(path, get)),
    h("section", { class: "chapter" }, h("h2", {}, "Types"),
      Object.entries(components.schemas).map(([name, schema]) => typeSection(name, schema))),
  );
  openLinkedType();
  window.addEventListener("hashchange", openLinkedType);
} catch {
  showStatus(status, "The service cannot be reached. Is it running, and are you connected?", true);
}
