// The content about one site: its current state, its longest pending jobs, and the accuracy of its predictions.

import { bar, scatter, withinTwice } from "./draw.js";
import { jobTable } from "./jobs.js";
import { cell, table, wide } from "./table.js";
import { clockTime, datum, days, duration, h, lagText, name, number } from "./text.js";
import { percent, plural, probability, seconds, sentence, utcText } from "./text.js";

const NARROW = window.matchMedia("(max-width: 40rem)").matches;
const HEAD = NARROW ? 3 : 8;
const RULES = { zero: "always zero", median: "recent median" };
const BOUNDS = ["0.9", "0.95"];
const FEATURES = 8; // maximum number of features shown

/** Return the content: the worker's `answer` and the last `outcomes`, each unless null. `heading` is a tag. */
export const contents = (site, answer, outcomes, heading) => [
  h("div", {}, ...(answer ? currentState(answer) : [])),
  h("section", { class: "chapter" }, ...(answer ? accuracy(answer, heading) : [])),
  h("section", { class: "chapter" }, ...(outcomes ? lastOutcomes(outcomes, site, heading) : [])),
];

/** Return the content below its heading; folded on narrow screens. */
const folded = (heading, ...content) => (NARROW
  ? h("details", { class: "numbers" }, h("summary", {}, heading), ...content) : h("div", {}, ...content));

/** Return the time in UTC, if it differs from the local time. */
const inUtc = (time) => (new Date(time * 1000).getTimezoneOffset() ? ` (${utcText(time)})` : "");

function currentState(answer) {
  const facts = [
    ["Queued", [number(answer.live.queued_jobs), " for ", number(answer.queued_cpus), " CPUs"]],
    ["Running", [number(answer.live.running_jobs), " on ", number(answer.running_cpus), " CPUs"]],
    ["Free", [number(answer.live.free_cpus), ` of ${plural(answer.cpus, "CPU")}`]],
    answer.live.gpus ? ["Free GPUs", [number(answer.live.free_gpus), ` of ${plural(answer.live.gpus, "GPU")}`]] : null,
    ["Remaining work", answer.remaining_work_s == null ? ["–"] : [seconds(answer.remaining_work_s), " at full use"]],
    answer.held_jobs ? ["Held", [number(answer.held_jobs)]] : null,
    answer.down_nodes ? ["Down", [plural(answer.down_nodes, "node")]] : null,
    ["Jobs in history", [number(answer.history_jobs)]],
    ["Method", [answer.method]],
    ["Site’s time", [clockTime(answer.made_at), inUtc(answer.made_at)]],
    !answer.as_of || (answer.as_of === answer.made_at && !answer.lag_messages) ? null
      : ["Last event", [clockTime(answer.as_of), answer.stale ? "" : lagText(answer)]],
  ];
  const { queued, live } = answer;
  const [head, rest] = [queued.slice(0, HEAD), queued.slice(HEAD)];
  return [
    h("p", { class: "wrong", hidden: answer.stale || answer.degraded ? null : "" },
      sentence(answer.stale ? `stale: ${answer.stale}` : `reduced accuracy: ${answer.degraded}`)),
    h("dl", { class: "facts" }, facts.filter(Boolean).map(([term, value]) =>
      h("div", {}, h("dt", {}, term), h("dd", {}, ...value)))),
    ...(answer.partitions ? [partitionTable(answer.partitions)] : []),
    head.length ? jobTable("Longest pending", answer.site, head, answer.made_at)
      : h("p", { class: "hint" }, "No pending jobs."),
    h("details", { class: "numbers", hidden: rest.length ? null : "" },
      h("summary", {}, `${rest.length} more of ${plural(live.queued_jobs, "job")} pending`),
      jobTable("Other pending jobs", answer.site, rest, answer.made_at)),
  ];
}

/** Return a table of the partitions; with GPUs if the site has any. */
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

/** Return the jobs and the mean error of a method over several weeks; null without a job. */
const overall = (weeks, method) => {
  const measured = weeks.flatMap(({ methods }) => methods);
  const own = measured.filter((one) => one.method === method && one.mean_error_s != null);
  const jobs = own.reduce((sum, week) => sum + week.jobs, 0);
  return jobs ? { jobs, mean_error_s: own.reduce((sum, week) => sum + week.jobs * week.mean_error_s, 0) / jobs } : null;
};

/** Return the accuracy of the predictions, and of the estimates shown to users. */
function accuracy({ weeks, method, answers, features, order_fit: fit }, heading) {
  const title = h(heading, {}, "Accuracy of predictions");
  const scored = weeks.filter(({ methods }) => methods.some(({ jobs }) => jobs)).toReversed();
  if (!scored.length) return [title, h("p", { class: "hint" }, "No job has started since its wait was predicted.")];
  const rules = [method, ...Object.keys(RULES).filter((rule) => rule !== method)];
  const measured = scored.flatMap(({ methods }) => methods.filter((one) => rules.includes(one.method)));
  const greatest = Math.max(1, ...measured.map((one) => one.mean_error_s ?? 0));
  const bounds = BOUNDS.filter((q) => measured.some((one) => one.method === method && q in one.coverage));
  const columns = [
    ["Week"], ["Jobs", "figure"],
    ...rules.map((rule) => [RULES[rule] ?? rule, "figure"]),
    ["Within ×2", "figure"],
    ...bounds.map((q) => [`In ${probability(q)} bound`, "figure"]),
  ];
  const rows = scored.map((week) => weekRow(week, rules, bounds, greatest));
  const caption = "Mean error of predicted waits, by week";
  const note = "A week’s days are UTC. Within ×2: predicted and actual wait differ by a factor of 2 at most.";
  return [
    title,
    h("p", {}, summary(scored, rules)),
    folded(caption, table(caption, columns, rows, "weeks blocks"), h("p", { class: "hint" }, note)),
    ...orderFit(fit),
    ...answerAccuracy(answers),
    ...correlations(features),
  ];
}

const KINDS = {
  expected: "Expected starts of pending jobs, latest estimate",
  "what-if": "What-if, right before each job’s submission",
  grid: "Grid estimates, for the next job of the same shape",
  query: "Answers to questions about a job",
};

/** Return the accuracy of the estimates shown to users, and of the predictions for the same jobs. */
function answerAccuracy(answers) {
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

/** Return the share of recent starts that the order of the simulated schedule explains, also by kind of job. */
function orderFit(fit) {
  if (!fit) return [];
  const hint = "50 % explains nothing. The schedule is simulated in this order.";
  return [h("p", { class: "order-fit" }, `${sentence(fit.text)} `, h("span", { class: "hint" }, hint))];
}

/** Return the features of a submission whose values have the largest rank correlation with the waits. */
function correlations(features) {
  const largest = Object.entries(features ?? {}).slice(0, FEATURES);
  if (!largest.length) return [];
  const rows = largest.map(([feature, weight]) => [
    cell(featureName(feature), { head: true }),
    cell([number(weight), bar(weight, "own")], { kind: "figure" }),
  ]);
  const caption = "Rank correlation with the wait";
  const hint = "Values at the submission of recently started jobs: 0 is no correlation, 1 the same order as the waits.";
  return [h("details", { class: "numbers" }, h("summary", {}, "What the waits depend on"),
    table(caption, [["Feature"], ["Correlation", "figure"]], rows, "features blocks"), h("p", { class: "hint" }, hint))];
}

/** Return the name of a feature in words: `user_queued_ert` is the estimated run time of the user's queued jobs. */
function featureName(feature) {
  const words = { cpus: "CPUs", ert: "estimated run time", elapsed: "elapsed time", user: "user’s" };
  const [first, ...rest] = feature.split("_").map((word) => words[word] ?? word);
  return [first[0].toUpperCase() + first.slice(1), ...rest].join(" ");
}

function summary(weeks, rules) {
  const [own, ...others] = rules.map((rule) => ({ rule, mean: overall(weeks, rule) })).filter(({ mean }) => mean);
  if (!own) return "";
  const compared = others.map(({ rule, mean }) => `${RULES[rule]} ${duration(mean.mean_error_s)}`);
  const beaten = others.some(({ mean }) => mean.mean_error_s < own.mean.mean_error_s);
  return `Over ${plural(own.mean.jobs, "job")}, mean error ${duration(own.mean.mean_error_s)}`
    + (compared.length ? `; ${compared.join(", ")}.` : ".") + (beaten ? " A baseline did better." : "");
}

function weekRow({ begin, end, methods }, rules, bounds, greatest) {
  const [own] = rules.map((rule) => methods.find((one) => one.method === rule));
  return [
    cell(days(begin, end), { head: true }),
    cell(number(own?.jobs), { kind: "figure" }),
    ...rules.map((rule, place) => {
      const error = methods.find((one) => one.method === rule)?.mean_error_s;
      const drawn = [seconds(error), bar(error / greatest, place ? "rule" : "own")];
      return cell(error == null ? "–" : drawn, { kind: "figure" });
    }),
    cell(datum(own?.within_factor_2, percent(own?.within_factor_2)), { kind: "figure" }),
    ...bounds.map((q) => cell(datum(own?.coverage[q], percent(own?.coverage[q])), { kind: "figure" })),
  ];
}

/** Return each prediction once: the outcome at the end of a job repeats the one at its start. */
function latest(outcomes) {
  const unique = new Map();
  for (const outcome of outcomes) {
    const key = JSON.stringify([outcome.job, outcome.attempt, outcome.made_at]);
    if (!unique.has(key) || unique.get(key).actual_run_s == null) unique.set(key, outcome);
  }
  return [...unique.values()];
}

/** Return the last predictions and the actual waits. */
function lastOutcomes(outcomes, site, heading) {
  const title = h(heading, {}, "Predicted and actual waits");
  const jobs = latest(outcomes);
  const drawn = jobs.filter(({ predicted_wait_s: wait }) => wait != null);
  if (!drawn.length) return [title, h("p", { class: "hint" }, "No job with an estimate has started recently.")];
  const unpredicted = jobs.length - drawn.length;
  const close = drawn.filter((job) => withinTwice(job.predicted_wait_s, job.actual_wait_s));
  const note = `Of the last ${plural(drawn.length, "prediction")}, ${close.length} were within a factor of 2 (the band).`
    + (unpredicted ? ` For ${plural(unpredicted, "job")}: no prediction.` : "");
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

