// The state of the sites and workers, for operators.

import { errorText, get } from "./api.js";
import { openPage, requireToken, showStatus } from "./common.js";
import { cell, rowWithNotes, table, update } from "./table.js";
import { clockTime, datum, duration, h, localClock, name, number, percent, plural } from "./text.js";
import { seconds, sentence, sitePage, workerProgress } from "./text.js";

const RULES = [["median", "Recent median would be"], ["zero", "“Immediately” would be"]];
const status = document.getElementById("status-summary");
const place = document.getElementById("status-now");

async function refresh() {
  try {
    const answer = await get(["status"]);
    showStatus(status, summary(answer));
    update(place, h("div", { id: "status-now" }, ...sections(answer)));
  } catch (error) {
    showStatus(status, errorText(error), true);
    requireToken(error);
  }
}

function summary({ sites, workers, unanswered, compiling }) {
  const stale = sites.filter(({ stale }) => stale).length;
  const unread = sites.reduce((max, { lag_messages: messages }) => Math.max(max, messages), 0);
  const parts = [
    `${plural(sites.length + unanswered.length, "site")}, ${stale ? `${stale} stale` : "none stale"}`,
    ...workerSummary({ sites, workers, unanswered }),
    unread ? `up to ${plural(unread, "message")} unread` : "no message unread",
  ];
  return [`${parts.join("; ")}.`, workerProgress(compiling)].filter(Boolean).join(" ");
}

/** Summarize the workers. A worker answers for its sites, so workers without a site are missing. */
function workerSummary({ sites, workers, unanswered }) {
  if (unanswered.length) return [`no worker answers for ${unanswered.join(", ")}`];
  return sites.length ? [`${plural(workers.length, "worker")} with sites`] : [];
}

function sections({ now, sites, workers, unanswered }) {
  return [
    h("section", { class: "chapter" }, h("h2", {}, "Sites"), sites.length ? siteTable(sites)
      : h("p", { class: "hint" }, unanswered.length ? "No worker has answered for any site." : "No site has reported yet.")),
    h("section", { class: "chapter" }, h("h2", {}, "Workers"), workers.length ? workerTable(workers, now)
      : h("p", { class: "hint" }, sites.length || unanswered.length ? "No worker has answered."
        : "A worker is listed here once it has a site, after the first event of that site.")),
    h("section", { class: "chapter" }, h("h2", {}, "Dead letters"), ...deadLetters(workers)),
    h("p", {}, h("a", { href: "alerts" }, "Alerts: meaning and remedies")),
    h("p", { class: "hint" }, `As of ${localClock()}.`),
  ];
}

function siteTable(sites) {
  const columns = [
    ["Site"], ["State"], ["Last event"], ["Unread events", "figure"], ["Delay", "figure"], ["Jobs scored", "figure"],
    ["Mean error", "figure"], ...RULES.map(([, title]) => [title, "figure"]), ["In 90 % bound", "figure"],
  ];
  const rows = sites.map((site) => {
    const { recent, baselines } = site;
    const fields = Object.entries(site.unknown_fields);
    const notes = [
      site.stale ? sentence(`stale: ${site.stale}`) : "",
      site.degraded && !site.stale ? sentence(`reduced accuracy: ${site.degraded}`) : "",
      fields.length ? `Ignored fields of its events: ${fields.map(([field, times]) => `${field} (${times}×)`).join(", ")}.`
        : "",
    ].filter(Boolean);
    return rowWithNotes([
      cell(h("a", { href: sitePage(site.site) }, name(site.site)), { head: true }),
      cell(site.stale ? h("b", { class: "wrong" }, "stale") : site.degraded ? "reduced accuracy" : "ok"),
      cell(site.as_of == null ? "–" : clockTime(site.as_of)),
      cell(number(site.lag_messages), { kind: "figure" }),
      cell(seconds(site.lag_s), { kind: "figure" }),
      cell(number(recent?.jobs ?? 0), { kind: "figure" }),
      cell(seconds(recent?.mean_error_s), { kind: "figure" }),
      ...RULES.map(([rule]) => cell(seconds(baselines?.[rule]), { kind: "figure" })),
      cell(datum(recent?.coverage["0.9"], percent(recent?.coverage["0.9"])), { kind: "figure" }),
    ], notes);
  });
  const caption = "Sites, and the accuracy of their predictions in the last one or two weeks";
  return h("div", {}, table(caption, columns, rows, "blocks"));
}

function workerTable(workers, now) {
  const columns = [
    ["Worker"], ["Last checkpoint"], ["Oldest event not durable", "figure"], ["Messages rejected", "figure"],
  ];
  const rows = workers.map(({ name: worker, checkpoint, undurable_s: undurable, rejected }) => [
    cell(name(worker), { head: true }),
    cell(checkpoint == null ? "none yet" : [clockTime(checkpoint), `, ${duration(Math.max(now - checkpoint, 0))} ago`]),
    cell(undurable ? ["for ", seconds(undurable)] : "all are", { kind: "figure" }),
    cell(number(total(rejected)), { kind: "figure" }),
  ]);
  return table("Workers, since the start of each", columns, rows, "blocks");
}

const total = (rejected) => Object.values(rejected).reduce((sum, count) => sum + count, 0);

function deadLetters(workers) {
  const reasons = {};
  for (const { rejected } of workers) {
    for (const [reason, count] of Object.entries(rejected)) reasons[reason] = (reasons[reason] ?? 0) + count;
  }
  const sorted = Object.entries(reasons).sort(([, a], [, b]) => b - a);
  if (!sorted.length) return [h("p", { class: "hint" }, "None since the workers started.")];
  const rows = sorted.map(([reason, count]) => [cell(reason, { head: true }), cell(number(count), { kind: "figure" })]);
  return [
    table("Dead letters by reason, since the workers started", [["Reason"], ["Messages", "figure"]], rows, "reasons"),
    h("p", { class: "hint" }, "The reference, “Event outcomes”, describes each reason and its handling."),
  ];
}

openPage(refresh, refresh);
