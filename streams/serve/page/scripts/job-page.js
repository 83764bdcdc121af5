// The page of a pending or running job: its expected start with bounds, why it is pending, and its estimates over time.

import { errorText, get } from "./api.js";
import { currentBounds } from "./bounds.js";
import { chart, DURATIONS } from "./charts.js";
import { openPage, requireToken, showStatus } from "./common.js";
import { cell, table, update } from "./table.js";
import { clockTime, duration, fromNow, h, name, plural, probability, sentence, sitePage, tasksText } from "./text.js";
import { suggestSites } from "./suggestions.js";

const params = new URLSearchParams(location.search);
const [site, job] = [params.get("site") ?? "", params.get("name") ?? ""];
const status = document.getElementById("job-status");
const place = document.getElementById("job-now");
const figure = document.getElementById("job-chart");
const observed = []; // estimates received since this page was opened, the newest first

document.getElementById("job-title").textContent = job ? `Job ${job}` : "No job selected";
document.title = job ? `Job ${job} – queuecast` : "queuecast";
document.getElementById("trail-site").replaceChildren(h("a", { href: sitePage(site) }, name(site)));
document.getElementById("trail-job").textContent = job ? `Job ${job}` : "";

async function refresh() {
  if (!site || !job) return;
  try {
    const answer = await get(["sites", site, "jobs", job]);
    showStatus(status, sentence(answer.text));
    recordEstimate(answer);
    update(place, h("div", { id: "job-now" }, ...contents(answer)));
    const [rows, { live, as_of: at, made_at: made }] = [allEstimates(answer.estimates), answer];
    showTable(rows, live?.submit);
    drawChart(rows, live?.eligible ?? live?.submit ?? rows[0]?.at, live?.start ?? at ?? made);
  } catch (error) {
    const suggestion = await suggestSites(error, site);
    showStatus(status, suggestion?.text ?? errorText(error, site), true);
    const ended = error.status === 404 ? [h("p", {}, "It may have ended: see ",
      h("a", { href: sitePage(site) }, "the last predictions of ", name(site)), ".")] : [];
    update(place, h("div", { id: "job-now" }, ...(suggestion?.choices ?? ended)));
    requireToken(error);
  }
}

/** Record the estimate of an answer for the chart, if it differs from the latest one. */
function recordEstimate({ live, as_of: at, made_at: made, expected_start: start, starts_by: by }) {
  if (live?.start != null) return;
  const latest = atLatest(by, start, at ?? made);
  if (observed.length && observed[0].start === start && observed[0].latest === latest) return;
  observed.unshift({ at: at ?? made, start, latest });
}

/** Return the bound of 0.9, or else the largest one, of an estimate made at `at`; null if none was valid then. */
function atLatest(by, start, at) {
  const bounds = currentBounds(by, start, at);
  return (bounds.find(([q]) => q === "0.9") ?? bounds.at(-1))?.[1] ?? null;
}

function contents(answer) {
  const { live, expected_start: start, starts_by: by, ahead_jobs: ahead, stale } = answer;
  const now = answer.as_of ?? answer.made_at;
  const bounds = currentBounds(by, start, now).map(([q, time]) => [`With ${probability(q)} by`, [clockTime(time)]]);
  const expired = live && live.start == null && start != null && !bounds.length && Object.keys(by ?? {}).length;
  const why = (live?.why ?? "").split("; ").filter((reason) => !answer.text.includes(reason)).join("; ");
  const facts = [
    ["Site", [h("a", { href: sitePage(site) }, name(site))]],
    live ? ["Submitted", [clockTime(live.submit), `, ${duration((live.start ?? now) - live.submit)} in the queue`]] : null,
    live?.eligible == null ? null :
      ["Eligible", [clockTime(live.eligible), `, ${duration(live.eligible - live.submit)} after its submission`]],
    live?.start != null ? ["Started", [clockTime(live.start)]] : null,
    start == null ? null : ["Expected", [clockTime(start), `, ${fromNow(start - now)}`]],
    ...bounds,
    expired ? ["At the latest", ["no bound: the wait exceeds all earlier bounds"]] : null,
    live && start != null ? ["Jobs ahead", [plural(ahead, "job")]] : null,
    live ? ["Request", [plural(live.cpus, "CPU"), live.walltime == null ? "" : ` for ${duration(live.walltime)}`]] : null,
    live?.tasks_remaining == null ? null : ["Array", [tasksText(live)]],
    live?.queue == null ? null : ["Queue", [name(live.queue)]],
    ["As of", [clockTime(now)]],
  ];
  return [
    h("dl", { class: "facts" }, facts.filter(Boolean).map(([term, value]) =>
      h("div", {}, h("dt", {}, term), h("dd", {}, ...value)))),
    ...(why ? [h("p", {}, sentence(why))] : []),
    ...(stale ? [h("p", { class: "wrong" }, sentence(`stale: ${stale}`))] : []),
  ];
}

/** Return the published estimates and then the observed ones, the oldest first. */
function allEstimates(published) {
  const rows = published.map(({ at, start, starts_by: by }) => ({ at, start, latest: atLatest(by, start, at) }));
  return [...rows, ...observed.toReversed()];
}

function showTable(rows, submit) {
  const cells = rows.toReversed().map(({ at, start, latest }) => [
    cell([at === submit ? "At its submission, " : null, clockTime(at)], { head: true }),
    cell(start == null ? "–" : clockTime(start)),
    cell(latest == null ? "–" : clockTime(latest)),
  ]);
  const columns = [["Estimated at"], ["Expected"], ["At the latest (90 %)"]];
  const place = h("div", { id: "job-estimates" });
  if (rows.length > 1) place.append(table("Estimates over time", columns, cells, "jobs blocks"));
  update(document.getElementById("job-estimates"), place);
}

/** Draw the estimates of the wait since `ready` (the eligible time, or the submission) up to `now`. */
function drawChart(rows, ready, now) {
  const times = rows.map(({ at }) => at);
  const last = rows.at(-1);
  if (last && now > last.at) {
    rows = [...rows, last];
    times.push(now);
  }
  figure.hidden = times.length < 2;
  if (figure.hidden) return;
  const since = (time) => (time == null ? null : Math.max(time - ready, 0));
  chart(figure.querySelector(".chart"), { times, format: duration, tickSteps: DURATIONS, series: [
    { name: "expected wait", color: "--tint", values: rows.map(({ start }) => since(start)), steps: true },
    { name: "at the latest (90 %)", color: "--rule", values: rows.map(({ latest }) => since(latest)), steps: true, dashed: true },
    { name: "waited so far", color: "--other", values: times.map(since) },
  ] });
}

openPage(refresh, refresh);
