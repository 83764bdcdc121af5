// Tables of live jobs.

import { cell, explainedRow, table } from "./table.js";
import { clockTime, duration, fromNow, h, jobPage, name, number, probability, seconds, sentence } from "./text.js";

const COLUMNS = [
  ["Job"], ["Waited", "figure"], ["Expected"], ["At the latest"], ["CPUs", "figure"], ["Walltime", "figure"], ["Queue"],
];

/** A table of a site's live jobs; `now` is its time (Unix seconds). Why a job still queues stands below it. */
export function jobTable(caption, site, jobs, now) {
  return table(caption, COLUMNS, jobs.map((job) => explainedRow(cells(site, job, now), sentences(job))), "jobs blocks");
}

function cells(site, job, now) {
  return [
    cell([h("a", { href: jobPage(site, job.job) }, name(job.job)), job.attempt ? ` (attempt ${job.attempt})` : null], { head: true }),
    cell(job.phase === "held" ? "held" : seconds((job.start ?? now) - job.submit), { kind: "figure" }),
    cell(expected(job, now)),
    cell(atLatest(job, now)),
    cell(number(job.cpus), { kind: "figure" }),
    cell(seconds(job.walltime), { kind: "figure" }),
    cell(job.queue == null ? "–" : name(job.queue)),
  ];
}

const sentences = ({ why }) => (why ? [sentence(why)] : []);

function expected({ start, predicted_run_s: run, predicted_start, expected_start, held_back, reason }, now) {
  if (start != null) return run == null ? "runs" : due("ends", start + run, now);
  if (held_back) return "no start promised";
  const begin = expected_start ?? predicted_start;
  if (begin == null) return reason ? `no estimate: ${reason}` : "no estimate";
  return due("starts", begin, now);
}

/** "starts in 2 h, 6 Feb, 14:03 CET". */
function due(what, time, now) {
  const left = time - now;
  const done = what === "ends" ? "ended" : "started";
  const told = left < -0.5 ? `should have ${done} ${fromNow(left)}` : `${what} ${fromNow(left)}`;
  return [h("data", { value: time }, told), h("span", { class: "line" }, clockTime(time))];
}

/** When it will have started with 90 %, as commands and notices say it too; else as sure as the greatest bound is. */
function atLatest({ start, submit, eligible, bounds, held_back }, now) {
  const told = Object.entries(bounds ?? {}).sort(([a], [b]) => a - b);
  const known = told.find(([q]) => q === "0.9") ?? told.at(-1);
  if (start != null || held_back || !known) return "–";
  const [q, bound] = known;
  const time = (eligible ?? submit) + bound;
  const left = time - now;
  if (left < 0) return "later than was told";
  return [
    h("data", { value: time }, `${fromNow(left)} (${probability(q)})`),
    h("span", { class: "line" }, clockTime(time)),
  ];
}
