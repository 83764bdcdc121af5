// The form for a hypothetical job, and the sites ranked by its predicted completion.

import { RequestError, errorText, get } from "./api.js";
import { axis, band, Scale } from "./draw.js";
import { cell, rowWithNotes, table } from "./table.js";
import { count, duration, h, lagText, localClock, name, percent, plural, probability } from "./text.js";
import { clockText, seconds, sentence, sitePage, size } from "./text.js";

const MAX_ROWS = 12;
const BOUNDS = ["0.9", "0.95"];

/** The form and its result. `onError` is called with the error of a failed request. */
export class Ask {
  constructor(onError) {
    this.form = document.getElementById("ask-form");
    this.status = document.getElementById("status");
    this.place = document.getElementById("ranking");
    this.onError = onError;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.saveToAddress();
      this.ask();
    });
    window.addEventListener("popstate", () => this.restore());
    for (const field of this.fields) field.addEventListener("input", () => this.markField(""));
  }

  get fields() {
    return [...this.form.querySelectorAll("input")];
  }

  /** Write the job into the address, so that it can be bookmarked and shared. */
  saveToAddress() {
    const address = new URL(location.href);
    for (const field of this.fields) {
      if (valueOf(field)) address.searchParams.set(field.name, valueOf(field));
      else address.searchParams.delete(field.name);
    }
    if (address.href !== location.href) history.pushState(null, "", address);
  }

  /** Read the job from the address; submit the request if there is one. */
  restore() {
    const params = new URLSearchParams(location.search);
    if (!params.has("cpus")) return this.clear();
    for (const field of this.fields) {
      if (field.type === "checkbox") field.checked = params.get(field.name) === "true";
      else field.value = params.get(field.name) ?? "";
    }
    const further = this.fields.some((field) => field.closest("details") && params.has(field.name));
    if (further) document.getElementById("more").open = true;
    return this.form.checkValidity() ? this.ask() : undefined;
  }

  clear() {
    this.request?.abort();
    this.showStatus("");
    this.place.replaceChildren();
  }

  showStatus(text, wrong = false) {
    this.status.textContent = text;
    this.status.classList.toggle("wrong", wrong);
  }

  /** Mark the field that `detail` names as invalid, and show the error with its label; unmark all others. */
  markField(detail) {
    const wrong = this.fields.find(({ name }) => detail.startsWith(`${name}: `));
    if (wrong) this.showStatus(`${wrong.labels[0].firstChild.data.trim()}${detail.slice(wrong.name.length)}`, true);
    for (const field of this.fields) field.setAttribute("aria-invalid", field === wrong);
    if (wrong?.closest("details")) wrong.closest("details").open = true;
    wrong?.focus();
  }

  async ask() {
    this.request?.abort();
    const { signal } = (this.request = new AbortController());
    this.showStatus("Querying the sites…");
    this.place.setAttribute("aria-busy", "true");
    try {
      const job = Object.fromEntries(this.fields.map((field) => [field.name, valueOf(field)]));
      const params = { ...job, why: "true", start_within: durationUntil(job.start_within) };
      const answer = await get(["rank"], params, signal);
      this.showStatus(summary(answer));
      this.place.replaceChildren(...result(answer));
    } catch (error) {
      if (signal.aborted) return;
      this.showError(error);
    } finally {
      if (!signal.aborted) this.place.removeAttribute("aria-busy");
    }
  }

  showError(error) {
    this.place.replaceChildren();
    this.showStatus(errorText(error), true);
    if (error instanceof RequestError && error.status === 400) this.markField(error.detail);
    this.onError(error);
  }
}

/** Return the value of a field; empty if it is blank or unchecked. */
const valueOf = (field) => (field.type !== "checkbox" ? field.value.trim() : field.checked ? "true" : "");

const startText = (wait_s) => (wait_s < 1 ? "immediately" : `in about ${duration(wait_s)}`);

/** Return the duration until the next occurrence of a local time of day. */
function durationUntil(clock) {
  if (!clock) return "";
  const [hour, minute] = clock.split(":").map(Number);
  const then = new Date();
  then.setHours(hour, minute, 0, 0);
  if (then <= new Date()) then.setDate(then.getDate() + 1);
  return `${Math.ceil((then - new Date()) / 1000)}s`;
}

/** Format a probability derived from bounds; it is not known above the highest bound. */
function probabilityText(share, bounds) {
  const highest = Math.max(...Object.keys(bounds).map(Number));
  if (share >= highest) return `over ${percent(highest)}`;
  return share >= 0.01 ? percent(share) : `under ${percent(0.01)}`;
}

/** Return the result in one or two sentences. */
export function summary({ ranking, left_out }) {
  const [first, ...others] = ranking;
  if (!first && left_out.length) return "No site accepts this job.";
  if (!first) return "No site has reported yet.";
  if (first.stale) return "The state of all sites is stale.";
  if (first.predicted_wait_s == null) return "No site has an estimate for this job now.";
  const done = first.predicted_response_s == null ? "" : `, done in about ${duration(first.predicted_response_s)}`;
  const sooner = others.filter(({ predicted_wait_s: wait, stale }) => !stale && wait != null && wait < first.predicted_wait_s);
  const start = `starts ${startText(first.predicted_wait_s)}${done}.`;
  if (!sooner.length) return `${first.site} soonest: ${start}`;
  const least = sooner.reduce((a, b) => (b.predicted_wait_s < a.predicted_wait_s ? b : a));
  const soonest = startText(least.predicted_wait_s);
  const later = least.predicted_response_s > first.predicted_response_s; // not without response times
  if (!later) {
    const doubt = least.unverified ? "it may lack a requested resource" : "its estimate is less certain";
    return `${first.site} ranks first: ${start} ${least.site} may start sooner, ${soonest}, but ${doubt}.`;
  }
  const other = `${least.site} starts sooner, ${soonest}, but is done later.`;
  return `${first.site} completes it first: ${start} ${other}`;
}

/** Return the request as the service parsed it. */
function requestLine({ cpus, gpus, gpu_type: type, walltime, unlimited, memory, queue, qos, partition, ...more }) {
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
  return h("p", { class: "hint request" }, `Request: ${[words, ...further.filter(Boolean)].join(", ")}.`);
}

function result({ job, ranking, left_out: leftOut, reference_run_s: referenceRun }) {
  const parts = job ? [requestLine(job)] : [];
  if (ranking.length) parts.push(...ranked(ranking, referenceRun));
  if (leftOut.length) parts.push(leftOutList(leftOut));
  return parts;
}

function ranked(ranking, referenceRun) {
  const quantiles = BOUNDS.filter((q) => ranking.some(({ bounds }) => bounds && q in bounds));
  const scale = new Scale(Math.max(0, ...ranking.flatMap(drawnWaits)));
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
  const rankingTable = table("Sites by predicted completion of the job", columns, rows, "ranking stacked");
  const lines = [...rankingTable.tBodies[0].rows];
  let place = -1;
  const places = new Map(lines.map((line) => [line, line.className === "about" ? place : (place += 1)]));
  const placeOf = (line) => places.get(line);
  lines.filter((line) => placeOf(line) >= MAX_ROWS).forEach((line) => (line.hidden = true));
  const legend = [
    h("span", {}, h("span", { class: "key dot" }), "expected start"),
    h("span", {}, h("span", { class: "key part" }), "paler is less likely; it ends at the largest bound"),
  ];
  const run = [" Assumed run time: ", seconds(referenceRun), " at a site of speed 1."];
  return [
    rankingTable,
    ...[...shared].map((one) => h("p", { class: "hint" }, `${ranking.length === 2 ? "Both" : `All ${ranking.length}`} sites: ${one}`)),
    ...showAllButton(lines.filter((line) => line.hidden), rows.length),
    h("p", { class: "hint legend", "aria-hidden": "true" }, legend),
    h("p", { class: "hint" }, `As of ${localClock()}.`, referenceRun == null ? null : run,
      " “Recent mean error”: of the site’s predictions in the last one or two weeks."),
  ];
}

/** Return all waits in the drawing of a site. */
const drawnWaits = ({ predicted_wait_s: wait, bounds }) => [wait ?? 0, ...Object.values(bounds ?? {})];

/** Return a bound; null if it is before the expected start, which it would contradict. */
const bound = ({ predicted_wait_s: wait, bounds }, q) => (bounds?.[q] >= (wait ?? 0) ? bounds[q] : null);

function siteRow(site, place, quantiles, scale, shared) {
  const { predicted_wait_s: wait, predicted_run_s: run, predicted_response_s: response, bounds, recent } = site;
  return rowWithNotes([
    cell(String(place + 1), { kind: "place" }),
    cell(h("a", { class: "title", href: sitePage(site.site) }, name(site.site)), { kind: "site", head: true }),
    cell(band(scale, wait, bounds), { kind: "drawn" }),
    cell(start(wait), { kind: "start", label: "Starts" }),
    ...quantiles.map((q) => cell(seconds(bound(site, q)), { kind: "figure", label: `${probability(q)} within` })),
    cell(seconds(run), { kind: "figure", label: "Run time" }),
    cell(response == null ? "–" : ["in ", seconds(response)], { kind: "figure", label: "Done" }),
    cell(seconds(recent?.jobs ? recent.mean_error_s : null), { kind: "figure", label: "Recent mean error" }),
  ], notes(site, shared));
}

function start(wait) {
  if (wait == null) return "no estimate";
  return wait < 1 ? h("data", { value: wait }, "immediately") : ["in ", seconds(wait)];
}

/** Return the reason for the wait, in a sentence. */
function reasons({ predicted_wait_s: wait, reason, why }) {
  if (why) return [sentence(why.text)];
  return reason ? [sentence(wait == null ? reason : `by ${reason}`)] : [];
}

/** Return the reasons why the estimate is less accurate, in sentences. */
function caveats({ degraded, low_confidence, source, stale }) {
  const sentences = source === "grid" ? ["Grid estimate: no worker answered in time."] : [];
  if (low_confidence) sentences.push(sentence(`ranked last, low confidence: ${low_confidence}`));
  else if (degraded && !stale) sentences.push(sentence(`reduced accuracy: ${degraded}`));
  return sentences;
}

/** Return the sentences that apply to all of several sites; they are shown once. */
export function sharedBy(ranking) {
  const [first, ...others] = ranking.map((site) => [...reasons(site), ...caveats(site)]);
  return new Set(others.length ? first.filter((one) => others.every((sentences) => sentences.includes(one))) : []);
}

/** Return the notes of a ranked site without the sentences in `shared`. */
function notes(site, shared) {
  const { live, site_cpus: cpus, speed, why, ...age } = site;
  const { p_best: best, p_start: inTime, bounds } = age;
  const own = (sentences) => sentences.filter((one) => !shared.has(one));
  const estimate = [];
  if (inTime != null) estimate.push(`Probability of a start in time: ${probabilityText(inTime, bounds)}.`);
  if (age.stale) estimate.push(sentence(`stale, so ranked last: ${age.stale}`));
  estimate.push(...own(reasons(site)));
  if (why?.instead.length) estimate.push(`Sooner: ${why.instead.map(alternativeText).join("; ")}.`);
  if (best != null && best < 1) estimate.push(`Probability of being the best site: ${probability(best.toFixed(2))}.`);
  const state = [];
  if (live) state.push(`${count(live.free_cpus)} of ${plural(cpus, "CPU")} free`);
  if (live?.gpus) state.push(`${count(live.free_gpus)} of ${plural(live.gpus, "GPU")} free`);
  if (live) state.push(`${plural(live.queued_jobs, "job")} queued`);
  if (speed != null && speed !== 1) state.push(`speed ${speed}`);
  if (age.as_of) state.push(`as of ${clockText(age.as_of)}${age.stale ? "" : lagText(age)}`);
  const facts = state.length ? [sentence(state.join(", "))] : [];
  facts.push(...own(caveats(site)));
  return [estimate.join(" "), facts.join(" ")].filter(Boolean);
}

/** Return "request 2h (by 40m)": the changed request, and how much sooner it starts. */
function alternativeText({ cpus, walltime, queue, sooner_s: sooner }) {
  const other = walltime != null ? `request ${duration(walltime)}` : cpus != null ? `request ${plural(cpus, "CPU")}` : `queue ${queue}`;
  return `${other} (by ${duration(sooner)})`;
}

function showAllButton(hidden, sites) {
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
  if (leftOut.length > MAX_ROWS) return h("details", { class: "left-out" }, h("summary", {}, title), list);
  return h("div", { class: "left-out" }, h("p", {}, title), list);
}
