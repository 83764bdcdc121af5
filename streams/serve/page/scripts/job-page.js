// One job that queues or runs: when it starts, how sure that is, why not yet, and how that has changed meanwhile.

import { explained, get } from "./api.js";
import { holding } from "./bounds.js";
import { chart, DURATIONS } from "./charts.js";
import { open, refused, say } from "./door.js";
import { cell, table, update } from "./table.js";
import { clockTime, duration, fromNow, h, name, plural, probability, sentence, sitePage } from "./text.js";
import { insteadOf } from "./unknown.js";

const asked = new URLSearchParams(location.search);
const [site, job] = [asked.get("site") ?? "", asked.get("name") ?? ""];
const said = document.getElementById("job-said");
const place = document.getElementById("job-now");
const drawn = document.getElementById("job-drawn");
const told = [];

document.getElementById("job-title").textContent = job ? `Job ${job}` : "No job selected";
document.title = job ? `Job ${job} – queuecast` : "queuecast";
document.getElementById("trail-site").replaceChildren(h("a", { href: sitePage(site) }, name(site)));
document.getElementById("trail-job").textContent = job ? `Job ${job}` : "";

async function refresh() {
  if (!site || !job) return;
  try {
    const found = await get(["sites", site, "jobs", job]);
    say(said, sentence(found.text));
    remember(found);
    update(place, h("div", { id: "job-now" }, ...contents(found)));
    const [rows, { live, as_of: at, made_at: made }] = [estimates(found.estimates), found];
    changes(rows, live?.submit);
    draw(rows, live?.eligible ?? live?.submit ?? rows[0]?.at, live?.start ?? at ?? made);
  } catch (error) {
    const instead = await insteadOf(error, site);
    say(said, instead?.text ?? explained(error, site), true);
    const over = h("p", {}, "It may have ended: see ",
      h("a", { href: sitePage(site) }, "the last predictions of ", name(site)), ".");
    update(place, h("div", { id: "job-now" }, ...(instead?.choices ?? [over])));
    refused(error);
  }
}

/** Keep what was told while this page is open, where it is another than before. */
function remember({ live, as_of: at, made_at: made, expected_start: start, starts_by: by }) {
  if (live?.start != null) return;
  const latest = atLatest(by, start, at ?? made);
  if (told.length && told[0].start === start && told[0].latest === latest) return;
  told.unshift({ at: at ?? made, start, latest });
}

/** The bound of 0.9, else the greatest, that an estimate of `start` told at `at`; null where none held then. */
function atLatest(by, start, at) {
  const told = holding(by, start, at);
  return (told.find(([q]) => q === "0.9") ?? told.at(-1))?.[1] ?? null;
}

function contents(found) {
  const { live, expected_start: start, starts_by: by, ahead_jobs: ahead, stale } = found;
  const now = found.as_of ?? found.made_at;
  const bounds = holding(by, start, now).map(([q, time]) => [`With ${probability(q)} by`, [clockTime(time)]]);
  const passed = live && live.start == null && start != null && !bounds.length && Object.keys(by ?? {}).length;
  const facts = [
    ["Site", [h("a", { href: sitePage(site) }, name(site))]],
    live ? ["Submitted", [clockTime(live.submit), `, ${duration((live.start ?? now) - live.submit)} in the queue`]] : null,
    live?.eligible == null ? null :
      ["Eligible", [clockTime(live.eligible), `, ${duration(live.eligible - live.submit)} after its submission`]],
    live?.start != null ? ["Started", [clockTime(live.start)]] : null,
    start == null ? null : ["Expected", [clockTime(start), `, ${fromNow(start - now)}`]],
    ...bounds,
    passed ? ["At the latest", ["no bound: the wait exceeds all earlier bounds"]] : null,
    live && start != null ? ["Jobs ahead", [plural(ahead, "job")]] : null,
    live ? ["Request", [plural(live.cpus, "CPU"), live.walltime == null ? "" : ` for ${duration(live.walltime)}`]] : null,
    live?.queue == null ? null : ["Queue", [name(live.queue)]],
    ["As of", [clockTime(now)]],
  ];
  return [
    h("dl", { class: "facts" }, facts.filter(Boolean).map(([term, value]) =>
      h("div", {}, h("dt", {}, term), h("dd", {}, ...value)))),
    ...(live?.why ? [h("p", {}, sentence(live.why))] : []),
    ...(stale ? [h("p", { class: "wrong" }, sentence(`stale: ${stale}`))] : []),
  ];
}

/** Its estimates over time: those that went out, and those of now as this page was told; the first one first. */
function estimates(sent) {
  return [...sent.map(({ at, start, starts_by: by }) => ({ at, start, latest: atLatest(by, start, at) })), ...told.toReversed()];
}

function changes(rows, submit) {
  const cells = rows.toReversed().map(({ at, start, latest }) => [
    cell([at === submit ? "At its submission, " : null, clockTime(at)], { head: true }),
    cell(start == null ? "–" : clockTime(start)),
    cell(latest == null ? "–" : clockTime(latest)),
  ]);
  const columns = [["Estimated at"], ["Expected"], ["At the latest (90 %)"]];
  const place = h("div", { id: "job-told" });
  if (rows.length > 1) place.append(table("Estimates over time", columns, cells, "jobs blocks"));
  update(document.getElementById("job-told"), place);
}

/** The same drawn, up to the time `now`, by when it has waited since `ready`. */
function draw(rows, ready, now) {
  const times = rows.map(({ at }) => at);
  const last = rows.at(-1);
  if (last && now > last.at) {
    rows = [...rows, last];
    times.push(now);
  }
  drawn.hidden = times.length < 2;
  if (drawn.hidden) return;
  const since = (time) => (time == null ? null : Math.max(time - ready, 0));
  chart(drawn.querySelector(".chart"), { times, words: duration, apart: DURATIONS, series: [
    { name: "expected wait", color: "--tint", values: rows.map(({ start }) => since(start)), steps: true },
    { name: "at the latest (90 %)", color: "--rule", values: rows.map(({ latest }) => since(latest)), steps: true, dashed: true },
    { name: "waited so far", color: "--other", values: times.map(since) },
  ] });
}

open(refresh, refresh);
