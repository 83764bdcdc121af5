// The sites: their queues now, the jobs that have waited longest, and how good the predictions were.

import { explained, get } from "./api.js";
import { bar } from "./draw.js";
import { contents } from "./site.js";
import { update } from "./table.js";
import { clockTime, h, localClock, name, number, plural, sentence, sitePage } from "./text.js";

const FIND_FROM = 12;

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
    for (const [site, { root }] of this.views) {
      if (!sites.some((known) => known.site === site)) {
        root.remove();
        this.views.delete(site);
      }
    }
    for (const known of sites) this.view(known.site).summarize(known);
    this.find.hidden = sites.length < FIND_FROM;
    const queues = new Set(sites.flatMap(({ queues }) => queues ?? []).filter((queue) => queue != null));
    update(this.queues, h("datalist", { id: "queues" }, [...queues].map((value) => h("option", { value }))));
    this.say(sites.length ? `${plural(sites.length, "site")}, as of ${localClock()}.`
      : "No site has reported yet. Send its scheduler’s events, or a trace’s with “queuecast ingest TRACE”.");
    this.filter();
  }

  view(site) {
    if (!this.views.has(site)) {
      const view = new View(site, this.refused);
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
    const { stale, silent_since: silent } = this.stands;
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
    for (const { reason } of [site, outcomes]) if (reason) this.refused(reason);
    this.answered = Boolean(site.value);
    if (site.value) this.known = site.value;
    if (outcomes.value) this.outcomes = outcomes.value.outcomes;
    const refusal = site.reason ?? outcomes.reason;
    const parts = [
      h("p", { class: "wrong", hidden: refusal ? null : "" }, refusal ? explained(refusal, this.site) : ""),
      h("p", {}, h("a", { href: sitePage(this.site) }, "The page of ", name(this.site)), ": history and details."),
      ...contents(this.site, this.known, this.outcomes, "h4"),
    ];
    update(this.body, h("div", { class: "body" }, ...parts));
    this.head();
  }
}

