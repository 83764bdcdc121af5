// One site's page: what the list tells of it, and how it has been over time.

import { explained, get } from "./api.js";
import { chart, DURATIONS } from "./charts.js";
import { open, refused, say } from "./door.js";
import { contents } from "./site.js";
import { cell, table, update, wide } from "./table.js";
import { insteadOf } from "./unknown.js";
import { clockTime, count, datum, dayOf, days, duration, h, localClock, percent } from "./text.js";

const site = new URLSearchParams(location.search).get("name") ?? "";
const said = document.getElementById("site-said");
const place = document.getElementById("site-now");
const LAST_DAY_S = 6 * 86_400;
let known = null, outcomes = null;

document.getElementById("site-title").textContent = site || "No site selected";
document.title = site ? `${site} – queuecast` : "queuecast";
document.getElementById("trail-site").textContent = site;

async function refresh() {
  if (!site) return;
  const asked = [get(["sites", site]), get(["sites", site, "outcomes"]), get(["sites", site, "trends"])];
  const [now, left, trends] = await Promise.allSettled(asked);
  for (const { reason } of [now, left, trends]) if (reason) refused(reason);
  known = now.value ?? known;
  outcomes = left.value?.outcomes ?? outcomes;
  const refusal = now.reason ?? left.reason;
  const instead = known || outcomes || !now.reason ? null : await insteadOf(now.reason, site);
  say(said, instead?.text ?? (refusal ? explained(refusal, site) : ""), Boolean(refusal));
  if (!refusal) document.getElementById("site-at").textContent = `As of ${localClock()}.`;
  block("now-title").hidden = !known && !outcomes;
  const told = instead?.choices ?? contents(site, known, outcomes, "h3");
  update(place, h("div", { id: "site-now" }, ...told));
  if (trends.value) draw(trends.value);
}

const block = (id) => document.getElementById(id);

const capital = (text) => text[0].toUpperCase() + text.slice(1);

/**
 * Draw `series` over `times`, and write them below as a table; `named` says a time there, below the heading `first`.
 * What is only written has no color, and its own `words`.
 */
function figure(id, caption, first, named, times, series, how) {
  const place = block(id);
  place.hidden = times.length < 2;
  if (place.hidden) return;
  const columns = [[first], ...series.map(({ name }) => [capital(name), "figure"])];
  const rows = times.map((time, at) => [
    cell(named(time), { head: true }),
    ...series.map(({ values, words }) => cell(datum(values[at], (words ?? how.words)(values[at])), { kind: "figure" })),
  ]);
  const written = table(caption, columns, rows.toReversed());
  update(place.querySelector("details div"), h("div", {}, wide(caption, written)));
  chart(place.querySelector(".chart"), { times, series: series.filter(({ color }) => color), ...how });
}

function draw({ hours, days: kept, weeks }) {
  const jobs = (name) => hours.map((hour) => hour[name]);
  figure("by-hour", "Jobs by the hour", "Hour", clockTime, hours.map(({ time }) => time), [
    { name: "queued", color: "--tint", values: jobs("queued_jobs"), steps: true, words: count },
    { name: "running", color: "--other", values: jobs("running_jobs"), steps: true, words: count },
  ], { words: (number) => (Number.isInteger(number) ? `${count(number)} jobs` : "") });
  waits("by-day", "Median waits by the day", "Day (UTC)", dayOf, kept);
  waits("by-week", "Median waits by the week", "Week (UTC)", weekOf, weeks);
  coverage(weeks.filter(({ bounded }) => bounded));
}

const weekOf = (begin) => days(begin, begin + LAST_DAY_S);

/**
 * Median waits by a length of time, as predicted at submission and as they were. A prediction is a median, so that the
 * means of both would differ even where it is exact.
 */
function waits(id, caption, first, named, kept) {
  const told = kept.filter(({ jobs }) => jobs);
  const of = (name) => told.map((period) => period[name] ?? null);
  figure(id, caption, first, named, of("begin"), [
    { name: "jobs", values: of("jobs"), words: count },
    { name: "predicted (median)", color: "--tint", values: of("predicted_median_s") },
    { name: "actual (median)", color: "--other", values: of("waited_median_s") },
    { name: "mean error", values: told.map(({ error_s: error, jobs }) => error / jobs) },
  ], { words: duration, apart: DURATIONS, day: true });
}

function coverage(weeks) {
  const shares = weeks.map(({ covered, bounded }) => covered / bounded);
  figure("bounds", "Coverage by the week", "Week (UTC)", weekOf, weeks.map(({ begin }) => begin), [
    { name: "jobs with a bound", values: weeks.map(({ bounded }) => bounded), words: count },
    { name: "in the 90 % bound", color: "--tint", values: shares },
    { name: "promised", color: "--rule", values: weeks.map(() => 0.9), dashed: true },
  ], { words: percent, day: true, least: Math.min(0.7, ...shares), most: 1 });
}

open(refresh, refresh);
