// The sites: their queues now, the jobs that have waited longest, and how good the predictions were.

import { explained, get } from "./api.js";
import { bar, scatter, withinTwice } from "./draw.js";
import { jobTable } from "./jobs.js";
import { cell, table, update, wide } from "./table.js";
import { behind, datum, days, duration, h, localClock, name, number } from "./text.js";
import { percent, plural, probability, seconds, siteTime } from "./text.js";

const OPEN_AT_ONCE = 3;
const HEAD = 8;
const FIND_FROM = 12;
const RULES = { zero: "always zero", median: "median of the last" };
const BOUNDS = ["0.9", "0.95"];

/** The list of sites. `refused` is told of a refusal before it is shown. */
export class Sites {
  constructor(refused) {
    this.said = document.getElementById("sites-said");
    this.list = document.getElementById("site-list");
    this.find = document.getElementById("find");
    this.queues = document.getElementById("queues");
    this.views = new Map();
    this.refused = refused;
    document.getElementById("find-site").addEventListener("input", () => this.filter());
  }

  /** Bring the list and all opened sites up to date; one time after the other. */
  async refresh() {
    if (this.busy) return;
    this.busy = true;
    try {
      this.show((await get(["sites"])).sites);
      await Promise.all([...this.views.values()].filter(({ root }) => root.open).map((view) => view.load()));
    } catch (error) {
      this.say(explained(error), true);
      this.refused(error);
    } finally {
      this.busy = false;
    }
  }

  say(text, wrong = false) {
    this.said.textContent = text;
    this.said.classList.toggle("wrong", wrong);
  }

  show(sites) {
    const first = !this.views.size && sites.length <= OPEN_AT_ONCE;
    for (const [site, { root }] of this.views) {
      if (!sites.some((known) => known.site === site)) {
        root.remove();
        this.views.delete(site);
      }
    }
    for (const known of sites) this.view(known.site, first).summarize(known);
    this.find.hidden = sites.length < FIND_FROM;
    const queues = new Set(sites.flatMap(({ queues }) => queues ?? []).filter((queue) => queue != null));
    update(this.queues, h("datalist", { id: "queues" }, [...queues].map((value) => h("option", { value }))));
    this.say(sites.length ? `${plural(sites.length, "site")}, as of ${localClock()}, your time.`
      : "No site has reported yet. Send its scheduler’s events, or a trace’s with “queuecast feed TRACE”.");
    this.filter();
  }

  view(site, open) {
    if (!this.views.has(site)) {
      const view = new View(site, this.refused);
      view.root.open = open;
      this.views.set(site, view);
      this.list.append(view.root);
    }
    return this.views.get(site);
  }

  filter() {
    const wanted = document.getElementById("find-site").value.trim().toLowerCase();
    for (const [site, { root }] of this.views) root.hidden = !this.find.hidden && !site.toLowerCase().includes(wanted);
  }
}

/** One site: a line that says how it is, and what is loaded once it is opened. */
class View {
  constructor(site, refused) {
    this.site = site;
    this.refused = refused;
    this.line = h("summary", {});
    this.body = h("div", { class: "body" }, h("p", { class: "hint" }, "Asking…"));
    this.root = h("details", { class: "one" }, this.line, this.body);
    this.root.addEventListener("toggle", () => this.root.open && this.load());
  }

  /** What stands of the site; once it is opened, what its worker says is newer. */
  summarize(stands) {
    this.stands = stands;
    this.head();
  }

  head() {
    const { live, cpus } = this.root.open && this.answered ? this.known : this.stands;
    const { stale } = this.stands;
    update(this.line, h("summary", {},
      h("h3", {}, name(this.site)),
      h("span", { class: "use" }, bar(cpus ? 1 - live.free_cpus / cpus : 0, "used")),
      h("span", { class: "now" },
        h("span", { class: "queued" }, h("b", {}, number(live.queued_jobs)), " queued"),
        h("span", { class: "running" }, h("b", {}, number(live.running_jobs)), " running"),
        h("span", { class: "free" }, h("b", {}, number(live.free_cpus)), ` of ${plural(cpus, "CPU")} free`)),
      stale ? h("span", { class: "silent" }, `stale: ${stale}`) : null));
  }

  async load() {
    if (this.loading) return;
    this.loading = true;
    const [site, outcomes] = await Promise.allSettled([
      get(["sites", this.site]),
      get(["sites", this.site, "outcomes"]),
    ]);
    this.loading = false;
    for (const { reason } of [site, outcomes]) if (reason) this.refused(reason);
    this.answered = Boolean(site.value);
    if (site.value) this.known = site.value;
    if (outcomes.value) this.outcomes = outcomes.value.outcomes;
    const refusal = site.reason ?? outcomes.reason;
    const parts = [
      h("p", { class: "wrong", hidden: refusal ? null : "" }, refusal ? explained(refusal, this.site) : ""),
      h("div", {}, ...(this.known ? about(this.known) : [])),
      h("div", { class: "pair" },
        h("section", {}, ...(this.known ? accuracy(this.known) : [])),
        h("section", {}, ...(this.outcomes ? happened(this.outcomes, this.site) : []))),
    ];
    update(this.body, h("div", { class: "body" }, ...parts));
    this.head();
  }
}

function about(known) {
  const facts = [
    ["Queued", [number(known.live.queued_jobs), " for ", number(known.queued_cpus), " CPUs"]],
    ["Running", [number(known.live.running_jobs), " on ", number(known.running_cpus), " CPUs"]],
    ["Free", [number(known.live.free_cpus), ` of ${plural(known.cpus, "CPU")}`]],
    ["Work left", known.drain_s == null ? ["–"] : [seconds(known.drain_s), " at full use"]],
    known.held_jobs ? ["Held", [number(known.held_jobs)]] : null,
    known.down_nodes ? ["Down", [plural(known.down_nodes, "node")]] : null,
    ["Learnt from", [plural(known.history_jobs, "job")]],
    ["Method", [known.method]],
    ["Site’s time", [h("time", { datetime: new Date(known.made_at * 1000).toISOString() }, siteTime(known.made_at))]],
    known.as_of ? ["Last event", [siteTime(known.as_of), behind(known)]] : null,
  ];
  const { queued, live } = known;
  const [head, rest] = [queued.slice(0, HEAD), queued.slice(HEAD)];
  return [
    h("p", { class: "wrong", hidden: known.degraded ? null : "" }, `Less sure than usual: ${known.degraded}.`),
    h("dl", { class: "facts" }, facts.filter(Boolean).map(([term, value]) =>
      h("div", {}, h("dt", {}, term), h("dd", {}, ...value)))),
    ...(known.partitions ? [partitionTable(known.partitions)] : []),
    head.length ? jobTable("Waiting longest", head, known.made_at) : h("p", { class: "hint" }, "Nobody waits."),
    h("details", { class: "numbers", hidden: rest.length ? null : "" },
      h("summary", {}, `${rest.length} more of ${plural(live.queued_jobs, "job")} that wait`),
      jobTable("Waiting less long", rest, known.made_at)),
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
  return wide("Partitions", table("Partitions", columns, rows, "partitions"));
}

/** A method's week or weeks: mean errors weighted by jobs. */
const overall = (weeks, method) => {
  const measured = weeks.flatMap(({ methods }) => methods);
  const own = measured.filter((known) => known.method === method && known.mean_error_s != null);
  const jobs = own.reduce((sum, week) => sum + week.jobs, 0);
  return jobs ? { jobs, mean_error_s: own.reduce((sum, week) => sum + week.jobs * week.mean_error_s, 0) / jobs } : null;
};

function accuracy({ weeks, method }) {
  const title = h("h4", {}, "How good the predictions were");
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
  return [title, h("p", {}, verdict(told, rules)), wide(caption, table(caption, columns, rows, "weeks"))];
}

function verdict(weeks, rules) {
  const [own, ...others] = rules.map((rule) => ({ rule, found: overall(weeks, rule) })).filter(({ found }) => found);
  if (!own) return "";
  const beside = others.map(({ rule, found }) => `${RULES[rule]} by ${duration(found.mean_error_s)}`);
  const lost = others.some(({ found }) => found.mean_error_s < own.found.mean_error_s);
  return `Over ${plural(own.found.jobs, "job")}, off by ${duration(own.found.mean_error_s)} on average`
    + (beside.length ? `; ${beside.join(", ")}.` : ".") + (lost ? " A trivial rule did better." : "");
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

function happened(outcomes, site) {
  const title = h("h4", {}, "Predicted and actual waits");
  const jobs = latest(outcomes);
  if (!jobs.length) return [title, h("p", { class: "hint" }, "No job has started lately.")];
  const drawn = jobs.filter(({ predicted_wait_s: wait }) => wait != null);
  const withheld = jobs.length - drawn.length;
  const close = drawn.filter(({ predicted_wait_s: said, actual_wait_s: wait }) => withinTwice(said, wait));
  const note = `Of the last ${plural(drawn.length, "prediction")}, ${close.length} lay within a factor of 2 (the band).`
    + (withheld ? ` For ${plural(withheld, "job")} none was made.` : "");
  const columns = [["Job"], ["Predicted", "figure"], ["Actual", "figure"], ["Off by", "figure"]];
  const caption = `Predictions at ${site}, the latest first`;
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
      h("summary", {}, "The same as a table"),
      wide(caption, table(caption, columns, rows, "outcomes"))),
  ];
}

