// One site's page: what the list tells of it, and how it has been over time.

import { explained, get } from "./api.js";
import { chart } from "./charts.js";
import { open, refused, say } from "./door.js";
import { contents } from "./site.js";
import { cell, table, update, wide } from "./table.js";
import { clockTime, datum, dayOf, days, duration, h, localClock, number, percent, seconds } from "./text.js";

const site = new URLSearchParams(location.search).get("name") ?? "";
const said = document.getElementById("site-said");
const place = document.getElementById("site-now");
const LAST_DAY_S = 6 * 86_400;
const DURATIONS = [60, 300, 600, 1800, ...[1, 2, 3, 6, 12, 24, 48, 120, 240].map((hours) => hours * 3600)];
let known = null, outcomes = null;

document.getElementById("site-title").textContent = site || "No site is named";
document.title = site ? `${site} – queuecast` : "queuecast";

async function refresh() {
  if (!site) return;
  const asked = [get(["sites", site]), get(["sites", site, "outcomes"]), get(["sites", site, "past"])];
  const [now, left, past] = await Promise.allSettled(asked);
  for (const { reason } of [now, left, past]) if (reason) refused(reason);
  known = now.value ?? known;
  outcomes = left.value?.outcomes ?? outcomes;
  const refusal = now.reason ?? left.reason;
  say(said, refusal ? explained(refusal, site) : "", Boolean(refusal));
  if (!refusal) document.getElementById("site-at").textContent = `As of ${localClock()}.`;
  block("now-title").hidden = !known && !outcomes;
  update(place, h("div", { id: "site-now" }, ...contents(site, known, outcomes, "h3")));
  if (past.value) draw(past.value);
}

const block = (id) => document.getElementById(id);

function fill(id, used, caption, columns, rows) {
  const figure = block(id);
  figure.hidden = !used;
  if (!used) return null;
  update(figure.querySelector("details div"), h("div", {}, wide(caption, table(caption, columns, rows))));
  return figure.querySelector(".chart");
}

function draw({ hours, days: kept, weeks }) {
  queue(hours);
  const ofDay = ({ begin }) => dayOf(begin);
  const ofWeek = ({ begin }) => days(begin, begin + LAST_DAY_S);
  waits("by-day", kept, "Mean waits by the day", "Day (UTC)", ofDay);
  waits("by-week", weeks, "Mean waits by the week", "Week (UTC)", ofWeek);
  coverage(weeks.filter(({ bounded }) => bounded), ofWeek);
}

function queue(hours) {
  const columns = [["Hour"], ["Queued", "figure"], ["Running", "figure"]];
  const place = fill("by-hour", hours.length > 1, "Jobs by the hour", columns, hours.toReversed().map((hour) => [
    cell(clockTime(hour.time), { head: true }),
    cell(number(hour.queued_jobs), { kind: "figure" }),
    cell(number(hour.running_jobs), { kind: "figure" }),
  ]));
  if (!place) return;
  chart(place, {
    times: hours.map(({ time }) => time),
    series: [
      { name: "queued", color: "--tint", values: hours.map((hour) => hour.queued_jobs), steps: true },
      { name: "running", color: "--other", values: hours.map((hour) => hour.running_jobs), steps: true },
    ],
    words: (jobs) => (Number.isInteger(jobs) ? `${jobs.toLocaleString("en")} jobs` : ""),
  });
}

/** Mean waits by a length of time, as predicted at submission and as they were. */
function waits(id, kept, caption, first, named) {
  const means = kept.filter(({ jobs }) => jobs);
  const columns = [[first], ...["Jobs", "Predicted", "Actual", "Off by"].map((heading) => [heading, "figure"])];
  const place = fill(id, means.length > 1, caption, columns, means.toReversed().map((sums) => [
    cell(named(sums), { head: true }),
    cell(number(sums.jobs), { kind: "figure" }),
    ...[sums.predicted_s, sums.waited_s, sums.error_s].map((sum) => cell(seconds(sum / sums.jobs), { kind: "figure" })),
  ]));
  if (!place) return;
  chart(place, {
    times: means.map(({ begin }) => begin),
    series: [
      { name: "predicted", color: "--tint", values: means.map((sums) => sums.predicted_s / sums.jobs) },
      { name: "actual", color: "--other", values: means.map((sums) => sums.waited_s / sums.jobs) },
    ],
    words: duration,
    apart: DURATIONS,
    day: true,
  });
}

function coverage(weeks, named) {
  const shares = weeks.map(({ held, bounded }) => held / bounded);
  const columns = [["Week (UTC)"], ["Jobs with a bound", "figure"], ["In 90 % bound", "figure"]];
  const place = fill("bounds", weeks.length > 1, "Coverage by the week", columns, weeks.map((week, at) => [
    cell(named(week), { head: true }),
    cell(number(week.bounded), { kind: "figure" }),
    cell(datum(shares[at], percent(shares[at])), { kind: "figure" }),
  ]).toReversed());
  if (!place) return;
  chart(place, {
    times: weeks.map(({ begin }) => begin),
    series: [
      { name: "in the 90 % bound", color: "--tint", values: shares },
      { name: "promised", color: "--rule", values: weeks.map(() => 0.9), dashed: true },
    ],
    words: percent,
    day: true,
    least: Math.min(0.7, ...shares),
    most: 1,
  });
}

open(refresh, refresh);
