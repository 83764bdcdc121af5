// What if: a job that is only considered, and the sites in the order in which it would be done.

import { Refused, explained, get } from "./api.js";
import { axis, band, Scale } from "./draw.js";
import { cell, explainedRow, table } from "./table.js";
import { behind, count, duration, h, localClock, name, percent, plural, probability } from "./text.js";
import { clockText, seconds, sentence, sitePage, size } from "./text.js";

const FIRST = 12;
const SHOWN = ["0.9", "0.95"];

/** The form and its result. `refused` is told of a refusal before it is shown. */
export class Ask {
  constructor(refused) {
    this.form = document.getElementById("ask-form");
    this.said = document.getElementById("said");
    this.place = document.getElementById("ranking");
    this.refused = refused;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.remember();
      this.ask();
    });
    window.addEventListener("popstate", () => this.recall());
    for (const field of this.fields) field.addEventListener("input", () => this.mark(""));
  }

  get fields() {
    return [...this.form.querySelectorAll("input")];
  }

  /** Write the job into the address, so that it can be kept and passed on. */
  remember() {
    const address = new URL(location.href);
    for (const field of this.fields) {
      if (valueOf(field)) address.searchParams.set(field.name, valueOf(field));
      else address.searchParams.delete(field.name);
    }
    if (address.href !== location.href) history.pushState(null, "", address);
  }

  /** Read the job from the address, and ask at once where there is one. */
  recall() {
    const asked = new URLSearchParams(location.search);
    if (!asked.has("cpus")) return this.clear();
    for (const field of this.fields) {
      if (field.type === "checkbox") field.checked = asked.get(field.name) === "true";
      else field.value = asked.get(field.name) ?? "";
    }
    const further = this.fields.some((field) => field.closest("details") && asked.has(field.name));
    if (further) document.getElementById("more").open = true;
    return this.form.checkValidity() ? this.ask() : undefined;
  }

  clear() {
    this.asking?.abort();
    this.say("");
    this.place.replaceChildren();
  }

  say(text, wrong = false) {
    this.said.textContent = text;
    this.said.classList.toggle("wrong", wrong);
  }

  /** Point at the field that the service names as wrong, and say it by the field's label; none: point at no field. */
  mark(detail) {
    const wrong = this.fields.find(({ name }) => detail.startsWith(`${name}: `));
    if (wrong) this.say(`${wrong.labels[0].firstChild.data.trim()}${detail.slice(wrong.name.length)}`, true);
    for (const field of this.fields) field.setAttribute("aria-invalid", field === wrong);
    if (wrong?.closest("details")) wrong.closest("details").open = true;
    wrong?.focus();
  }

  async ask() {
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    this.say("Querying the sites…");
    this.place.setAttribute("aria-busy", "true");
    try {
      const job = Object.fromEntries(this.fields.map((field) => [field.name, valueOf(field)]));
      const found = await get(["rank"], { ...job, why: "true", start_within: within(job.start_within) }, signal);
      this.say(verdict(found));
      this.place.replaceChildren(...result(found));
    } catch (error) {
      if (signal.aborted) return;
      this.refuse(error);
    } finally {
      if (!signal.aborted) this.place.removeAttribute("aria-busy");
    }
  }

  refuse(error) {
    this.place.replaceChildren();
    this.say(explained(error), true);
    if (error instanceof Refused && error.status === 400) this.mark(error.detail);
    this.refused(error);
  }
}

/** What a field says; nothing where it is empty, or not ticked. */
const valueOf = (field) => (field.type !== "checkbox" ? field.value.trim() : field.checked ? "true" : "");

const begins = (wait_s) => (wait_s < 1 ? "immediately" : `in about ${duration(wait_s)}`);

/** Until a time of day, which is today's or tomorrow's on the reader's clock, as a duration. */
function within(clock) {
  if (!clock) return "";
  const [hour, minute] = clock.split(":").map(Number);
  const then = new Date();
  then.setHours(hour, minute, 0, 0);
  if (then <= new Date()) then.setDate(then.getDate() + 1);
  return `${Math.ceil((then - new Date()) / 1000)}s`;
}

/** A probability that bounds tell; beyond the highest one nothing more is known. */
function chance(share, bounds) {
  const highest = Math.max(...Object.keys(bounds).map(Number));
  if (share >= highest) return `over ${percent(highest)}`;
  return share >= 0.01 ? percent(share) : `under ${percent(0.01)}`;
}

/** The result in a sentence. */
export function verdict({ ranking, left_out }) {
  const [first, ...others] = ranking;
  if (!first && left_out.length) return "No site accepts this job.";
  if (!first) return "No site has reported yet.";
  if (first.stale) return "The state of all sites is stale.";
  if (first.predicted_wait_s == null) return "No site has an estimate for this job now.";
  const done = first.predicted_response_s == null ? "" : `, done in about ${duration(first.predicted_response_s)}`;
  const sooner = others.filter(({ predicted_wait_s: wait, stale }) => !stale && wait != null && wait < first.predicted_wait_s);
  const told = `starts ${begins(first.predicted_wait_s)}${done}.`;
  if (!sooner.length) return `${first.site} soonest: ${told}`;
  const least = sooner.reduce((a, b) => (b.predicted_wait_s < a.predicted_wait_s ? b : a));
  const other = `${least.site} starts sooner, ${begins(least.predicted_wait_s)}, but is done later.`;
  return `${first.site} completes it first: ${told} ${other}`;
}

/** The job as the service understood it. */
function understood({ cpus, gpus, gpu_type: type, walltime, unlimited, memory, queue, qos, partition, ...more }) {
  const cards = gpus || type ? ` and ${plural(gpus || 1, "GPU")}${type ? ` of type ${type}` : ""}` : "";
  const words = `${plural(cpus, "CPU")}${cards}${unlimited ? " without a time limit" : walltime == null ? " without a walltime" : ` for ${duration(walltime)}`}`;
  const { nodes, tasks, exclusive, reservation, constraint, account, user } = more;
  const further = [
    nodes ? plural(nodes, "node") : "", tasks ? plural(tasks, "task") : "", exclusive ? "whole nodes" : "",
    memory ? `${size(memory)} of memory` : "", queue ? `queue ${queue}` : "", partition ? `partition ${partition}` : "",
    qos ? `QOS ${qos}` : "", reservation ? `reservation ${reservation}` : "",
    constraint ? `nodes with ${constraint}` : "", account ? `account ${account}` : "",
    user ? `user ${user}` : "",
  ];
  return h("p", { class: "hint understood" }, `Request: ${[words, ...further.filter(Boolean)].join(", ")}.`);
}

function result({ job, ranking, left_out: leftOut, reference_run_s: referenceRun }) {
  const parts = job ? [understood(job)] : [];
  if (ranking.length) parts.push(...ranked(ranking, referenceRun));
  if (leftOut.length) parts.push(leftOutList(leftOut));
  return parts;
}

function ranked(ranking, referenceRun) {
  const quantiles = SHOWN.filter((q) => ranking.some(({ bounds }) => bounds && q in bounds));
  const scale = new Scale(Math.max(0, ...ranking.flatMap(longest)));
  const columns = [
    [h("span", { class: "unseen" }, "Place"), "place"],
    ["Site", "site"],
    [[h("span", { class: "named" }, "Wait, log scale"), axis(scale)], "drawn"],
    ["Starts", "start"],
    ...quantiles.map((q) => [`${probability(q)} within`, "figure"]),
    ["Run time", "figure"],
    ["Done", "figure"],
    ["Recent mean error", "figure"],
  ];
  const shared = sharedBy(ranking);
  const rows = ranking.map((site, place) => siteRow(site, place, quantiles, scale, shared));
  const made = table("Sites by predicted completion of the job", columns, rows, "ranking stacked");
  const lines = [...made.tBodies[0].rows];
  let place = -1;
  const places = new Map(lines.map((line) => [line, line.className === "about" ? place : (place += 1)]));
  const placeOf = (line) => places.get(line);
  lines.filter((line) => placeOf(line) >= FIRST).forEach((line) => (line.hidden = true));
  const legend = [
    h("span", {}, h("span", { class: "key dot" }), "expected start"),
    h("span", {}, h("span", { class: "key part" }), "paler is less likely; it ends at the largest bound"),
  ];
  const run = [" Assumed run time: ", seconds(referenceRun), " at a site of speed 1."];
  return [
    made,
    ...[...shared].map((one) => h("p", { class: "hint" }, `All ${ranking.length} sites: ${one}`)),
    ...everything(lines.filter((line) => line.hidden), rows.length),
    h("p", { class: "hint legend", "aria-hidden": "true" }, legend),
    h("p", { class: "hint" }, `As of ${localClock()}.`, referenceRun == null ? null : run,
      " “Recent mean error”: of the site’s predictions in the last one or two weeks."),
  ];
}

/** All waits that a site's drawing shows. */
const longest = ({ predicted_wait_s: wait, bounds }) => [wait ?? 0, ...Object.values(bounds ?? {})];

/** A bound that is shown: one before the expected start would contradict it. */
const bound = ({ predicted_wait_s: wait, bounds }, q) => (bounds?.[q] >= (wait ?? 0) ? bounds[q] : null);

function siteRow(site, place, quantiles, scale, shared) {
  const { predicted_wait_s: wait, predicted_run_s: run, predicted_response_s: response, bounds, recent } = site;
  return explainedRow([
    cell(String(place + 1), { kind: "place" }),
    cell(h("a", { class: "title", href: sitePage(site.site) }, name(site.site)), { kind: "site", head: true }),
    cell(band(scale, wait, bounds), { kind: "drawn" }),
    cell(start(wait), { kind: "start", label: "Starts" }),
    ...quantiles.map((q) => cell(seconds(bound(site, q)), { kind: "figure", label: `${probability(q)} within` })),
    cell(seconds(run), { kind: "figure", label: "Run time" }),
    cell(response == null ? "–" : ["in ", seconds(response)], { kind: "figure", label: "Done" }),
    cell(seconds(recent?.jobs ? recent.mean_error_s : null), { kind: "figure", label: "Recent mean error" }),
  ], about(site, shared));
}

function start(wait) {
  if (wait == null) return "no estimate";
  return wait < 1 ? h("data", { value: wait }, "immediately") : ["in ", seconds(wait)];
}

/** Why it starts then, in a sentence. */
function because({ predicted_wait_s: wait, reason, why }) {
  if (why) return [sentence(why.text)];
  return reason ? [sentence(wait == null ? reason : `by ${reason}`)] : [];
}

/** Why its estimate is less sure than others, in sentences. */
function doubts({ degraded, low_confidence, source, stale }) {
  const told = source === "grid" ? ["Grid estimate: no worker answered in time."] : [];
  if (low_confidence) told.push(sentence(`ranked last, low confidence: ${low_confidence}`));
  else if (degraded && !stale) told.push(sentence(`reduced accuracy: ${degraded}`));
  return told;
}

/** The sentences that hold for each of several sites, which are shown once. */
export function sharedBy(ranking) {
  const [first, ...others] = ranking.map((site) => [...because(site), ...doubts(site)]);
  return new Set(others.length ? first.filter((one) => others.every((told) => told.includes(one))) : []);
}

/** What else to know of a ranked site, in sentences; `shared` ones are told of all. */
function about(site, shared) {
  const { live, site_cpus: cpus, speed, why, ...age } = site;
  const { p_best: best, p_start: inTime, bounds } = age;
  const own = (sentences) => sentences.filter((one) => !shared.has(one));
  const told = [];
  if (inTime != null) told.push(`Probability of a start in time: ${chance(inTime, bounds)}.`);
  if (age.stale) told.push(sentence(`stale, so ranked last: ${age.stale}`));
  told.push(...own(because(site)));
  if (why?.instead.length) told.push(`Sooner: ${why.instead.map(instead).join("; ")}.`);
  if (best != null && best < 1) told.push(`Probability of being the best site: ${probability(best.toFixed(2))}.`);
  const state = [];
  if (live) state.push(`${count(live.free_cpus)} of ${plural(cpus, "CPU")} free`);
  if (live?.gpus) state.push(`${count(live.free_gpus)} of ${plural(live.gpus, "GPU")} free`);
  if (live) state.push(`${plural(live.queued_jobs, "job")} queued`);
  if (speed != null && speed !== 1) state.push(`speed ${speed}`);
  if (age.as_of) state.push(`as of ${clockText(age.as_of)}${age.stale ? "" : behind(age)}`);
  const facts = state.length ? [sentence(state.join(", "))] : [];
  facts.push(...own(doubts(site)));
  return [told.join(" "), facts.join(" ")].filter(Boolean);
}

/** "request 2h (by 40m)". */
function instead({ cpus, walltime, queue, sooner_s: sooner }) {
  const other = walltime != null ? `request ${duration(walltime)}` : cpus != null ? `request ${plural(cpus, "CPU")}` : `queue ${queue}`;
  return `${other} (by ${duration(sooner)})`;
}

function everything(hidden, sites) {
  if (!hidden.length) return [];
  const button = h("button", { type: "button", class: "plain" }, `Show all ${sites} sites`);
  button.addEventListener("click", () => {
    hidden.forEach((line) => (line.hidden = false));
    hidden[0].tabIndex = -1;
    hidden[0].focus();
    button.remove();
  });
  return [button];
}

function leftOutList(leftOut) {
  const place = (site, partition) => [name(site), partition ? [", partition ", name(partition)] : null].flat();
  const items = leftOut.map(({ site, partition, reason }) =>
    h("li", {}, h("b", {}, ...place(site, partition)), `: ${reason}`));
  const list = h("ul", {}, items);
  const sites = leftOut.filter(({ partition }) => !partition).length;
  const partitions = leftOut.length - sites;
  const counted = [sites ? plural(sites, "site") : "", partitions ? plural(partitions, "partition") : ""];
  const title = `Left out: ${counted.filter(Boolean).join(", ")}`;
  if (leftOut.length > FIRST) return h("details", { class: "left-out" }, h("summary", {}, title), list);
  return h("div", { class: "left-out" }, h("p", {}, title), list);
}
