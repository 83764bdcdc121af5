// Tables of live jobs.

import { holds } from "./bounds.js";
import { cell, explainedRow, table } from "./table.js";
import { clockTime, duration, fromNow, h, jobPage, name, number, probability, seconds, sentence } from "./text.js";

const COLUMNS = [
  ["Job"], ["Waited", "figure"], ["Expected"], ["At the latest"], ["CPUs", "figure"], ["Walltime", "figure"], ["Queue"],
];

/**
 * A table of a site's live jobs; `now` is its time (Unix seconds). Why a job still queues stands below it, once below
 * the last of several jobs that follow each other and wait for the same reason.
 */
export function jobTable(caption, site, jobs, now) {
  const reasons = oncePerRun(jobs.map(({ why }) => why));
  const rows = jobs.map((job, place) => explainedRow(cells(site, job, now), reasons[place]));
  return table(caption, COLUMNS, rows, "jobs blocks");
}

/** What stands below each row: the reason where the next row has another, saying for how many rows it holds. */
export function oncePerRun(reasons) {
  let run = 0;
  return reasons.map((reason, place) => {
    run += 1;
    if (reason && reasons[place + 1] === reason) return [];
    const told = reason ? [`${run > 1 ? `These ${run} jobs: ` : ""}${sentence(reason)}`] : [];
    run = 0;
    return told;
  });
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

function expected({ start, predicted_run_s: run, predicted_start, expected_start, blocked_by, reason }, now) {
  if (start != null) return run == null ? "runs" : due("ends", start + run, now);
  if (blocked_by) return "no bound: blocked";
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
function atLatest({ start, submit, eligible, bounds, blocked_by, expected_start: expected }, now) {
  const told = Object.entries(bounds ?? {}).sort(([a], [b]) => a - b);
  const known = told.find(([q]) => q === "0.9") ?? told.at(-1);
  if (start != null || blocked_by || !known) return "–";
  const [q, bound] = known;
  const time = (eligible ?? submit) + bound;
  const left = time - now;
  if (!holds(time, expected, now)) return "later than its bounds";
  return [
    h("data", { value: time }, `${fromNow(left)} (${probability(q)})`),
    h("span", { class: "line" }, clockTime(time)),
  ];
}
