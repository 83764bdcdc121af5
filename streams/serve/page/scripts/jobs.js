// Tables of live jobs.

import { isCurrent } from "./bounds.js";
import { cell, rowWithNotes, table } from "./table.js";
import { clockTime, fromNow, h, jobPage, name, number, probability, seconds, sentence, tasksText } from "./text.js";

const COLUMNS = [
  ["Job"], ["Waited", "figure"], ["Expected"], ["At the latest"], ["CPUs", "figure"], ["Walltime", "figure"], ["Queue"],
];

/**
 * Return a table of live jobs of a site; `now` is the site's time (Unix seconds). The reason why a job is pending is
 * below its row. Consecutive jobs with the same reason show it once, below the last of them.
 */
export function jobTable(caption, site, jobs, now) {
  const reasons = oncePerRun(jobs.map(({ why }) => why));
  const rows = jobs.map((job, place) => rowWithNotes(cells(site, job, now), reasons[place]));
  return table(caption, COLUMNS, rows, "jobs blocks");
}

/** Return the notes of each row: the reason, with the number of its jobs, at the last row of those with that reason. */
export function oncePerRun(reasons) {
  let run = 0;
  return reasons.map((reason, place) => {
    run += 1;
    if (reason && reasons[place + 1] === reason) return [];
    const notes = reason ? [`${run > 1 ? `These ${run} jobs: ` : ""}${sentence(reason)}`] : [];
    run = 0;
    return notes;
  });
}

function cells(site, job, now) {
  return [
    cell([
      h("a", { href: jobPage(site, job.job) }, name(job.job)),
      job.attempt ? ` (attempt ${job.attempt})` : null,
      job.tasks_remaining == null ? null : h("span", { class: "line" }, tasksText(job)),
    ], { head: true }),
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

/** Return "starts in 2h" above "6 Feb, 14:03 CET". */
function due(verb, time, now) {
  const left = time - now;
  const done = verb === "ends" ? "ended" : "started";
  const text = left < -0.5 ? `should have ${done} ${fromNow(left)}` : `${verb} ${fromNow(left)}`;
  return [h("data", { value: time }, text), h("span", { class: "line" }, clockTime(time))];
}

/** Return the upper bound of 90 % on the start, as commands and notices do; without it the largest bound. */
function atLatest({ start, submit, eligible, bounds, blocked_by, expected_start: expected }, now) {
  const sorted = Object.entries(bounds ?? {}).sort(([a], [b]) => a - b);
  const latest = sorted.find(([q]) => q === "0.9") ?? sorted.at(-1);
  if (start != null || blocked_by || !latest) return "–";
  const [q, bound] = latest;
  const time = (eligible ?? submit) + bound;
  const left = time - now;
  if (!isCurrent(time, expected, now)) return "later than its bounds";
  return [
    h("data", { value: time }, `${fromNow(left)} (${probability(q)})`),
    h("span", { class: "line" }, clockTime(time)),
  ];
}
