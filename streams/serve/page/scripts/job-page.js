// One job that queues or runs: when it starts, how sure that is, why not yet, and how that has changed meanwhile.

import { explained, get } from "./api.js";
import { open, refused, say } from "./door.js";
import { cell, table, update } from "./table.js";
import { clockText, clockTime, duration, fromNow, h, name, plural, probability, sitePage } from "./text.js";

const asked = new URLSearchParams(location.search);
const [site, job] = [asked.get("site") ?? "", asked.get("name") ?? ""];
const said = document.getElementById("job-said");
const place = document.getElementById("job-now");
const told = [];

document.getElementById("job-title").textContent = job ? `Job ${job}` : "No job is named";
document.title = job ? `Job ${job} – queuecast` : "queuecast";

async function refresh() {
  if (!site || !job) return;
  try {
    const found = await get(["sites", site, "jobs", job]);
    say(said, `${found.text[0].toUpperCase()}${found.text.slice(1)}.`);
    remember(found);
    update(place, h("div", { id: "job-now" }, ...contents(found)));
  } catch (error) {
    say(said, explained(error, site), true);
    refused(error);
  }
}

/** Keep what was told while this page is open, where it is another than before. */
function remember({ as_of: at, made_at: made, expected_start: start, starts_by: by }) {
  const latest = Object.entries(by ?? {}).at(-1)?.[1] ?? null;
  if (told.length && told[0].start === start && told[0].latest === latest) return;
  told.unshift({ at: at ?? made, start, latest });
}

function contents({ live, as_of: at, made_at: made, expected_start: start, starts_by: by, ahead_jobs: ahead, stale }) {
  const now = at ?? made;
  const bounds = Object.entries(by ?? {}).filter(([q]) => q > 0.5).map(([q, time]) =>
    [`With ${probability(q)} by`, [clockTime(time)]]);
  const facts = [
    ["Site", [h("a", { href: sitePage(site) }, name(site))]],
    live ? ["Submitted", [clockTime(live.submit), `, ${duration((live.start ?? now) - live.submit)} in the queue`]] : null,
    live?.eligible == null ? null :
      ["Eligible", [clockTime(live.eligible), `, ${duration(live.eligible - live.submit)} after its submission`]],
    live?.start != null ? ["Started", [clockTime(live.start)]] : null,
    start == null ? null : ["Expected", [clockTime(start), `, ${fromNow(start - now)}`]],
    ...bounds,
    live && start != null ? ["Ahead of it", [plural(ahead, "job")]] : null,
    live ? ["Asked for", [plural(live.cpus, "CPU"), live.walltime == null ? "" : ` for ${duration(live.walltime)}`]] : null,
    live?.queue == null ? null : ["Queue", [name(live.queue)]],
    ["As of", [clockTime(now)]],
  ];
  return [
    h("dl", { class: "facts" }, facts.filter(Boolean).map(([term, value]) =>
      h("div", {}, h("dt", {}, term), h("dd", {}, ...value)))),
    ...(live?.why ? [h("p", {}, `${live.why[0].toUpperCase()}${live.why.slice(1)}.`)] : []),
    ...(stale ? [h("p", { class: "wrong" }, `Stale: ${stale}.`)] : []),
    ...changes(),
  ];
}

function changes() {
  if (told.length < 2) return [];
  const rows = told.map(({ at, start, latest }) => [
    cell(clockTime(at), { head: true }),
    cell(start == null ? "–" : clockText(start)),
    cell(latest == null ? "–" : clockText(latest)),
  ]);
  return [table("As it was told since this page was opened", [["Told"], ["Expected"], ["At the latest"]], rows, "blocks")];
}

open(refresh, refresh);
