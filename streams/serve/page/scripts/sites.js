// The list of sites. An opened site shows its longest pending jobs and the accuracy of its predictions.

import { errorText, get } from "./api.js";
import { bar } from "./draw.js";
import { contents } from "./site.js";
import { update } from "./table.js";
import { clockTime, h, localClock, name, number, plural, sentence, sitePage, workerProgress } from "./text.js";

const MIN_SITES_TO_FIND = 12;

/** The list of sites. `onError` is called with the error of a failed request. */
export class Sites {
  constructor(onError) {
    this.status = document.getElementById("sites-status");
    this.list = document.getElementById("site-list");
    this.find = document.getElementById("find");
    this.queues = document.getElementById("queues");
    this.views = new Map();
    this.onError = onError;
    document.getElementById("find-site").addEventListener("input", () => this.filter());
  }

  /** Update the list and all opened sites. Calls during an update are ignored. */
  async refresh() {
    if (this.busy) return;
    this.busy = true;
    try {
      this.show(await get(["sites"]));
      await Promise.all([...this.views.values()].filter(({ root }) => root.open).map((view) => view.load()));
    } catch (error) {
      this.showStatus(errorText(error), true);
      this.onError(error);
    } finally {
      this.busy = false;
    }
  }

  showStatus(text, wrong = false) {
    this.status.textContent = text;
    this.status.classList.toggle("wrong", wrong);
  }

  show({ sites, compiling }) {
    for (const [site, { root }] of this.views) {
      if (!sites.some((entry) => entry.site === site)) {
        root.remove();
        this.views.delete(site);
      }
    }
    for (const entry of sites) this.view(entry.site).summarize(entry);
    this.find.hidden = sites.length < MIN_SITES_TO_FIND;
    const queues = new Set(sites.flatMap(({ queues }) => queues ?? []).filter((queue) => queue != null));
    update(this.queues, h("datalist", { id: "queues" }, [...queues].map((value) => h("option", { value }))));
    const found = sites.length ? `${plural(sites.length, "site")}, as of ${localClock()}.`
      : "No site has reported yet. Send its scheduler’s events, or a trace’s with “queuecast ingest TRACE”.";
    this.showStatus([found, workerProgress(compiling)].filter(Boolean).join(" "));
    this.filter();
  }

  view(site) {
    if (!this.views.has(site)) {
      const view = new View(site, this.onError);
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

/** One site: a summary line, and details that are loaded when it is opened. */
class View {
  constructor(site, onError) {
    this.site = site;
    this.onError = onError;
    this.line = h("summary", {});
    this.body = h("div", { class: "body" }, h("p", { class: "hint" }, "Querying the site…"));
    this.root = h("details", { class: "one" }, this.line, this.body);
    this.root.addEventListener("toggle", () => this.root.open && this.load());
  }

  /** Update the summary line from the site's entry in the list; the answer of an opened site is newer. */
  summarize(entry) {
    this.entry = entry;
    this.showLine();
  }

  showLine() {
    const { live, cpus } = this.root.open && this.hasAnswer ? this.answer : this.entry;
    const { stale, silent_since: silent } = this.entry;
    update(this.line, h("summary", {},
      h("h3", {}, name(this.site)),
      h("span", { class: "use" }, bar(cpus ? 1 - live.free_cpus / cpus : 0, "used")),
      h("span", { class: "now" },
        h("span", { class: "queued" }, h("b", {}, number(live.queued_jobs)), " queued"),
        h("span", { class: "running" }, h("b", {}, number(live.running_jobs)), " running"),
        h("span", { class: "free" }, h("b", {}, number(live.free_cpus)), ` of ${plural(cpus, "CPU")} free`),
        live.gpus ? h("span", { class: "free" }, `${live.free_gpus} of ${plural(live.gpus, "GPU")} free`) : null),
      stale ? h("span", { class: "silent" }, sentence(`stale: ${stale}`)) : null,
      silent && !stale ? h("span", { class: "silent" }, "No worker answers since ", clockTime(silent)) : null));
  }

  async load() {
    if (this.loading) return;
    this.loading = true;
    const [site, outcomes] = await Promise.allSettled([
      get(["sites", this.site]),
      get(["sites", this.site, "outcomes"]),
    ]);
    this.loading = false;
    for (const { reason } of [site, outcomes]) if (reason) this.onError(reason);
    this.hasAnswer = Boolean(site.value);
    if (site.value) this.answer = site.value;
    if (outcomes.value) this.outcomes = outcomes.value.outcomes;
    const error = site.reason ?? outcomes.reason;
    const parts = [
      h("p", { class: "wrong", hidden: error ? null : "" }, error ? errorText(error, this.site) : ""),
      h("p", {}, h("a", { href: sitePage(this.site) }, "The page of ", name(this.site)), ": history and details."),
      ...contents(this.site, this.answer, this.outcomes, "h4"),
    ];
    update(this.body, h("div", { class: "body" }, ...parts));
    this.showLine();
  }
}

