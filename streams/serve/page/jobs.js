// A user's jobs that queue or run, wherever they are.

import { explained, get } from "./api.js";
import { cell, table, wide } from "./table.js";
import { duration, fromNow, h, name, number, plural, probability, seconds } from "./text.js";

/** Job tables' columns; `now` is the site's time (Unix seconds). */
const COLUMNS = [
  ["Job"], ["Waited", "figure"], ["Expected"], ["At the latest"], ["CPUs", "figure"], ["Walltime", "figure"], ["Queue"],
];

/** A table of live jobs. The bound is the greatest that goes with the prediction. */
export function jobTable(caption, jobs, now) {
  return wide(caption, table(caption, COLUMNS, jobs.map((job) => jobRow(job, now)), "jobs"));
}

function jobRow(job, now) {
  return [
    cell([name(job.job), job.attempt ? ` (attempt ${job.attempt})` : null], { head: true }),
    cell(job.phase === "held" ? "held" : seconds((job.start ?? now) - job.submit), { kind: "figure" }),
    cell([expected(job, now), ...reasons(job)]),
    cell(atLatest(job, now)),
    cell(number(job.cpus), { kind: "figure" }),
    cell(seconds(job.walltime), { kind: "figure" }),
    cell(job.queue == null ? "–" : name(job.queue)),
  ];
}

/** Why a job still queues, in a line. */
const reasons = ({ why }) => (why ? [h("span", { class: "line" }, why)] : []);

function expected({ start, predicted_run_s: run, predicted_start, expected_start, reason }, now) {
  const begin = expected_start ?? predicted_start;
  if (start != null) return run == null ? "runs" : h("data", { value: start + run }, due("end", start + run - now));
  if (begin == null) return reason ? `no estimate: ${reason}` : "no estimate";
  return h("data", { value: begin }, due("start", begin - now));
}

const due = (what, left) => (left < -0.5 ? `${what} overdue by ${duration(-left)}` : `${what}s ${fromNow(left)}`);

/** "in 3 h (95 %)": when it will have started, as sure as the greatest bound is. */
function atLatest({ start, submit, bounds }, now) {
  const known = Object.entries(bounds ?? {}).sort(([a], [b]) => a - b).at(-1);
  if (start != null || !known) return "–";
  const [q, bound] = known;
  const left = submit + bound - now;
  return h("data", { value: submit + bound }, `${left < 0 ? "passed " : ""}${fromNow(left)} (${probability(q)})`);
}

/** The form for a user name and the jobs it finds. */
export class Jobs {
  constructor(refused) {
    this.form = document.getElementById("jobs-form");
    this.said = document.getElementById("jobs-said");
    this.place = document.getElementById("job-list");
    this.refused = refused;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask();
    });
  }

  async ask() {
    const user = this.form.elements.namedItem("user").value.trim();
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    this.say("Asking the sites…");
    try {
      const found = await get(["users", user, "jobs"], {}, signal);
      this.say(summary(found));
      this.place.replaceChildren(...found.sites.filter(({ jobs }) => jobs.length).map(ofSite));
    } catch (error) {
      if (signal.aborted) return;
      this.place.replaceChildren();
      this.say(explained(error), true);
      this.refused(error);
    }
  }

  say(text, wrong = false) {
    this.said.textContent = text;
    this.said.classList.toggle("wrong", wrong);
  }
}

function summary({ user, sites, unanswered }) {
  const jobs = sites.flatMap(({ jobs }) => jobs);
  const running = jobs.filter(({ start }) => start != null).length;
  const more = sites.reduce((sum, { more }) => sum + more, 0);
  const told = jobs.length
    ? `${plural(jobs.length + more, "job")} of ${user}: ${running} of those shown run, ${jobs.length - running} wait.`
    : `No job of ${user} waits or runs now.`;
  return unanswered.length ? `${told} No worker answers for ${unanswered.join(", ")}.` : told;
}

function ofSite({ site, jobs, more, made_at: now }) {
  const caption = h("h3", {}, name(site));
  const rest = more ? h("p", { class: "hint" }, `${plural(more, "older job")} left out.`) : null;
  return h("div", { class: "site-jobs" }, caption, jobTable(`Jobs at ${site}`, jobs, now), ...(rest ? [rest] : []));
}
