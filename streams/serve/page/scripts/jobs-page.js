// The pending and running jobs of a user at all sites. The address contains the user, so it can be bookmarked.

import { errorText, get } from "./api.js";
import { openPage, requireToken, showStatus } from "./common.js";
import { jobTable } from "./jobs.js";
import { update } from "./table.js";
import { h, localClock, name, plural, sitePage } from "./text.js";

const form = document.getElementById("jobs-form");
const status = document.getElementById("jobs-status");
const place = document.getElementById("job-list");
const field = form.elements.namedItem("user");
let request = null;

async function load() {
  const user = field.value.trim();
  if (!user) return;
  request?.abort();
  const { signal } = (request = new AbortController());
  if (!place.childElementCount) showStatus(status, "Querying the sites…");
  try {
    const answer = await get(["users", user, "jobs"], {}, signal);
    showStatus(status, summary(answer));
    const sites = answer.sites.filter(({ jobs }) => jobs.length);
    update(place, h("div", { id: "job-list" }, sites.map(siteSection)));
    document.getElementById("jobs-at").textContent = `As of ${localClock()}.`;
  } catch (error) {
    if (signal.aborted) return;
    place.replaceChildren();
    showStatus(status, errorText(error), true);
    requireToken(error);
  }
}

function summary({ user, sites, unanswered }) {
  const jobs = sites.flatMap(({ jobs }) => jobs);
  const running = jobs.filter(({ start }) => start != null).length;
  const more = sites.reduce((sum, { more }) => sum + more, 0);
  const text = jobs.length
    ? `${plural(jobs.length + more, "job")} of ${user}: ${running}${more ? " of those shown" : ""} running, ${jobs.length - running} pending.`
    : `No job of ${user} is pending or running.`;
  return unanswered.length ? `${text} No worker answers for ${unanswered.join(", ")}.` : text;
}

function siteSection({ site, jobs, more, made_at: now }) {
  const title = h("h2", {}, h("a", { href: sitePage(site) }, name(site)));
  const rest = more ? h("p", { class: "hint" }, `${plural(more, "older job")} left out.`) : null;
  return h("div", { class: "site-jobs" }, title, jobTable(`Jobs at ${site}`, site, jobs, now), ...(rest ? [rest] : []));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const address = new URL(location.href);
  address.search = new URLSearchParams({ user: field.value.trim() });
  if (address.href !== location.href) history.pushState(null, "", address);
  place.replaceChildren();
  load();
});

/** Show the jobs of the user in the address, or else of the user whom the service has authenticated. */
async function restore() {
  const user = new URLSearchParams(location.search).get("user");
  field.value = user ?? ((await get(["me"]).catch(() => null))?.user || field.value);
  load();
}

window.addEventListener("popstate", () => {
  place.replaceChildren();
  showStatus(status, "");
  restore();
});
openPage(restore, load);
