// A user's jobs that queue or run, wherever they are. The user is in the address, so that it can be kept.

import { explained, get } from "./api.js";
import { open, refused, say } from "./door.js";
import { jobTable } from "./jobs.js";
import { update } from "./table.js";
import { h, localClock, name, plural, sitePage } from "./text.js";

const form = document.getElementById("jobs-form");
const said = document.getElementById("jobs-said");
const place = document.getElementById("job-list");
const field = form.elements.namedItem("user");
let asking = null;

async function ask() {
  const user = field.value.trim();
  if (!user) return;
  asking?.abort();
  const { signal } = (asking = new AbortController());
  if (!place.childElementCount) say(said, "Querying the sites…");
  try {
    const found = await get(["users", user, "jobs"], {}, signal);
    say(said, summary(found));
    const sites = found.sites.filter(({ jobs }) => jobs.length);
    update(place, h("div", { id: "job-list" }, sites.map(ofSite)));
    document.getElementById("jobs-at").textContent = `As of ${localClock()}.`;
  } catch (error) {
    if (signal.aborted) return;
    place.replaceChildren();
    say(said, explained(error), true);
    refused(error);
  }
}

function summary({ user, sites, unanswered }) {
  const jobs = sites.flatMap(({ jobs }) => jobs);
  const running = jobs.filter(({ start }) => start != null).length;
  const more = sites.reduce((sum, { more }) => sum + more, 0);
  const told = jobs.length
    ? `${plural(jobs.length + more, "job")} of ${user}: ${running}${more ? " of those shown" : ""} running, ${jobs.length - running} pending.`
    : `No job of ${user} is pending or running.`;
  return unanswered.length ? `${told} No worker answers for ${unanswered.join(", ")}.` : told;
}

function ofSite({ site, jobs, more, made_at: now }) {
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
  ask();
});

/** Whose jobs these are: as the address says, else of whom the service knows to ask. */
async function recall() {
  const named = new URLSearchParams(location.search).get("user");
  field.value = named ?? ((await get(["me"]).catch(() => null))?.user || field.value);
  ask();
}

window.addEventListener("popstate", () => {
  place.replaceChildren();
  say(said, "");
  recall();
});
open(recall, ask);
