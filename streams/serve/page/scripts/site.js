// What the pages tell of one site: its queue now, the jobs that have waited longest, how good the predictions were.

import { bar, scatter, withinTwice } from "./draw.js";
import { jobTable } from "./jobs.js";
import { cell, table, wide } from "./table.js";
import { behind, clockTime, datum, days, duration, h, name, number } from "./text.js";
import { percent, plural, probability, seconds, sentence, utcText } from "./text.js";

const NARROW = window.matchMedia("(max-width: 40rem)").matches;
const HEAD = NARROW ? 3 : 8;
const RULES = { zero: "always zero", median: "recent median" };
const BOUNDS = ["0.9", "0.95"];

/** All of it; `known` is what the worker said, `outcomes` the last jobs, each where there is any, `heading` a tag. */
export const contents = (site, known, outcomes, heading) => [
  h("div", {}, ...(known ? about(known) : [])),
  h("section", { class: "chapter" }, ...(known ? accuracy(known, heading) : [])),
  h("section", { class: "chapter" }, ...(outcomes ? happened(outcomes, site, heading) : [])),
];

/** What stands below its heading; on a phone one opens it. */
const folded = (heading, ...content) => (NARROW
  ? h("details", { class: "numbers" }, h("summary", {}, heading), ...content) : h("div", {}, ...content));

/** The time in UTC too, where the reader's clock shows another. */
const inUtc = (time) => (new Date(time * 1000).getTimezoneOffset() ? ` (${utcText(time)})` : "");

function about(known) {
  const facts = [
    ["Queued", [number(known.live.queued_jobs), " for ", number(known.queued_cpus), " CPUs"]],
    ["Running", [number(known.live.running_jobs), " on ", number(known.running_cpus), " CPUs"]],
    ["Free", [number(known.live.free_cpus), ` of ${plural(known.cpus, "CPU")}`]],
    known.live.gpus ? ["Free GPUs", [number(known.live.free_gpus), ` of ${plural(known.live.gpus, "GPU")}`]] : null,
    ["Remaining work", known.remaining_work_s == null ? ["–"] : [seconds(known.remaining_work_s), " at full use"]],
    known.held_jobs ? ["Held", [number(known.held_jobs)]] : null,
    known.down_nodes ? ["Down", [plural(known.down_nodes, "node")]] : null,
    ["Jobs in history", [number(known.history_jobs)]],
    ["Method", [known.method]],
    ["Site’s time", [clockTime(known.made_at), inUtc(known.made_at)]],
    !known.as_of || (known.as_of === known.made_at && !known.lag_messages) ? null
      : ["Last event", [clockTime(known.as_of), known.stale ? "" : behind(known)]],
  ];
  const { queued, live } = known;
  const [head, rest] = [queued.slice(0, HEAD), queued.slice(HEAD)];
  return [
    h("p", { class: "wrong", hidden: known.stale || known.degraded ? null : "" },
      sentence(known.stale ? `stale: ${known.stale}` : `reduced accuracy: ${known.degraded}`)),
    h("dl", { class: "facts" }, facts.filter(Boolean).map(([term, value]) =>
      h("div", {}, h("dt", {}, term), h("dd", {}, ...value)))),
    ...(known.partitions ? [partitionTable(known.partitions)] : []),
    head.length ? jobTable("Longest pending", known.site, head, known.made_at) : h("p", { class: "hint" }, "No pending jobs."),
    h("details", { class: "numbers", hidden: rest.length ? null : "" },
      h("summary", {}, `${rest.length} more of ${plural(live.queued_jobs, "job")} pending`),
      jobTable("Other pending jobs", known.site, rest, known.made_at)),
  ];
}

/** The partitions as they are now; GPUs only where the site has any. */
function partitionTable(partitions) {
  const withGpus = partitions.some(({ gpus }) => gpus);
  const columns = [["Partition"], ["Queued", "figure"], ["Running", "figure"], ["Free CPUs", "figure"]];
  if (withGpus) columns.push(["Free GPUs", "figure"]);
  const of = (free, all) => (all ? [number(free), " of ", number(all)] : "–");
  const rows = partitions.map((one) => [
    cell([name(one.name), one.up ? null : " (down)"], { head: true }),
    cell(number(one.queued_jobs), { kind: "figure" }),
    cell(number(one.running_jobs), { kind: "figure" }),
    cell(of(one.free_cpus, one.cpus), { kind: "figure" }),
    ...(withGpus ? [cell(of(one.free_gpus, one.gpus), { kind: "figure" })] : []),
  ]);
  return table("Partitions", columns, rows, "partitions blocks");
}

/** A method's week or weeks: mean errors weighted by jobs. */
const overall = (weeks, method) => {
  const measured = weeks.flatMap(({ methods }) => methods);
  const own = measured.filter((known) => known.method === method && known.mean_error_s != null);
  const jobs = own.reduce((sum, week) => sum + week.jobs, 0);
  return jobs ? { jobs, mean_error_s: own.reduce((sum, week) => sum + week.jobs * week.mean_error_s, 0) / jobs } : null;
};

/** How right predictions were, and what people act on. */
function accuracy({ weeks, method, answers }, heading) {
  const title = h(heading, {}, "Accuracy of predictions");
  const told = weeks.filter(({ methods }) => methods.some(({ jobs }) => jobs)).toReversed();
  if (!told.length) return [title, h("p", { class: "hint" }, "No job has started since its wait was predicted.")];
  const rules = [method, ...Object.keys(RULES).filter((rule) => rule !== method)];
  const measured = told.flatMap(({ methods }) => methods.filter((known) => rules.includes(known.method)));
  const greatest = Math.max(1, ...measured.map((known) => known.mean_error_s ?? 0));
  const bounds = BOUNDS.filter((q) => measured.some((known) => known.method === method && q in known.coverage));
  const columns = [
    ["Week"], ["Jobs", "figure"],
    ...rules.map((rule) => [RULES[rule] ?? rule, "figure"]),
    ["Within ×2", "figure"],
    ...bounds.map((q) => [`In ${probability(q)} bound`, "figure"]),
  ];
  const rows = told.map((week) => weekRow(week, rules, bounds, greatest));
  const caption = "Mean error of predicted waits, by week";
  const note = "A week’s days are UTC. Within ×2: predicted and actual wait differ by a factor of 2 at most.";
  return [
    title,
    h("p", {}, verdict(told, rules)),
    folded(caption, table(caption, columns, rows, "weeks blocks"), h("p", { class: "hint" }, note)),
    ...acted(answers),
  ];
}

const KINDS = {
  expected: "Expected starts of pending jobs, latest estimate",
  "what-if": "What-if, right before each job’s submission",
  grid: "Grid estimates, for the next job of the same shape",
  query: "Answers to questions about a job",
};

/** How right the numbers were that people act on, beside the predictions of the same jobs. */
function acted(answers) {
  if (!answers?.length) return [];
  const columns = [
    ["Estimate"], ["Jobs", "figure"], ["Mean error", "figure"], ["Error at submission", "figure"],
    ["Within ×2", "figure"], ["In 90 % bound", "figure"],
  ];
  const regret = answers.some(({ regret_s: one }) => one != null);
  if (regret) columns.push(["Regret", "figure"]);
  const rows = answers.map((one) => [
    cell(KINDS[one.kind] ?? one.kind, { head: true }),
    cell(number(one.jobs), { kind: "figure" }),
    cell(seconds(one.mean_error_s), { kind: "figure" }),
    cell(seconds(one.predicted_error_s), { kind: "figure" }),
    cell(datum(one.within_factor_2, percent(one.within_factor_2)), { kind: "figure" }),
    cell(datum(one.coverage["0.9"], percent(one.coverage["0.9"])), { kind: "figure" }),
    ...(regret ? [cell(seconds(one.regret_s), { kind: "figure" })] : []),
  ]);
  const caption = "Accuracy of the estimates shown to users";
  return [folded(caption, table(caption, columns, rows, "answers blocks"))];
}

function verdict(weeks, rules) {
  const [own, ...others] = rules.map((rule) => ({ rule, found: overall(weeks, rule) })).filter(({ found }) => found);
  if (!own) return "";
  const beside = others.map(({ rule, found }) => `${RULES[rule]} ${duration(found.mean_error_s)}`);
  const lost = others.some(({ found }) => found.mean_error_s < own.found.mean_error_s);
  return `Over ${plural(own.found.jobs, "job")}, mean error ${duration(own.found.mean_error_s)}`
    + (beside.length ? `; ${beside.join(", ")}.` : ".") + (lost ? " A baseline did better." : "");
}

function weekRow({ begin, end, methods }, rules, bounds, greatest) {
  const [own] = rules.map((rule) => methods.find((known) => known.method === rule));
  return [
    cell(days(begin, end), { head: true }),
    cell(number(own?.jobs), { kind: "figure" }),
    ...rules.map((rule, place) => {
      const error = methods.find((known) => known.method === rule)?.mean_error_s;
      const drawn = [seconds(error), bar(error / greatest, place ? "rule" : "own")];
      return cell(error == null ? "–" : drawn, { kind: "figure" });
    }),
    cell(datum(own?.within_factor_2, percent(own?.within_factor_2)), { kind: "figure" }),
    ...bounds.map((q) => cell(datum(own?.coverage[q], percent(own?.coverage[q])), { kind: "figure" })),
  ];
}

/** Each prediction once: a job that has ended repeats what was said when it started. */
function latest(outcomes) {
  const known = new Map();
  for (const outcome of outcomes) {
    const key = JSON.stringify([outcome.job, outcome.attempt, outcome.made_at]);
    if (!known.has(key) || known.get(key).actual_run_s == null) known.set(key, outcome);
  }
  return [...known.values()];
}

/** The last predictions beside what happened. */
function happened(outcomes, site, heading) {
  const title = h(heading, {}, "Predicted and actual waits");
  const jobs = latest(outcomes);
  const drawn = jobs.filter(({ predicted_wait_s: wait }) => wait != null);
  if (!drawn.length) return [title, h("p", { class: "hint" }, "No job with an estimate has started recently.")];
  const withheld = jobs.length - drawn.length;
  const close = drawn.filter(({ predicted_wait_s: said, actual_wait_s: wait }) => withinTwice(said, wait));
  const note = `Of the last ${plural(drawn.length, "prediction")}, ${close.length} were within a factor of 2 (the band).`
    + (withheld ? ` For ${plural(withheld, "job")}: no prediction.` : "");
  const columns = [["Job"], ["Predicted", "figure"], ["Actual", "figure"], ["Error", "figure"]];
  const caption = `Predictions at ${site}, latest first`;
  const rows = jobs.map((job) => [
    cell([name(job.job), job.censored ? " (cancelled)" : null], { head: true }),
    cell(seconds(job.predicted_wait_s), { kind: "figure" }),
    cell(seconds(job.actual_wait_s), { kind: "figure" }),
    cell(job.predicted_wait_s == null ? "–" : seconds(job.error_s), { kind: "figure" }),
  ]);
  return [
    title,
    h("p", {}, note, drawn.some(({ censored }) => censored) ? " Hollow: cancelled in the queue." : null),
    h("div", { class: "plot" }, scatter(drawn.map((job) => [job.predicted_wait_s, job.actual_wait_s, job.censored]))),
    h("details", { class: "numbers" },
      h("summary", {}, "Show as a table"),
      wide(caption, table(caption, columns, rows, "outcomes"))),
  ];
}

