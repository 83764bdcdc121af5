// The page of a site: its current state and accuracy, and charts of its history.

import { errorText, get } from "./api.js";
import { chart, DURATIONS } from "./charts.js";
import { openPage, requireToken, showStatus } from "./common.js";
import { contents } from "./site.js";
import { cell, table, update, wide } from "./table.js";
import { suggestSites } from "./suggestions.js";
import { clockTime, count, datum, dayOf, days, duration, h, localClock, percent } from "./text.js";

const site = new URLSearchParams(location.search).get("name") ?? "";
const status = document.getElementById("site-status");
const place = document.getElementById("site-now");
const LAST_DAY_S = 6 * 86_400;
let answer = null, outcomes = null;

document.getElementById("site-title").textContent = site || "No site selected";
document.title = site ? `${site} – queuecast` : "queuecast";
document.getElementById("trail-site").textContent = site;

async function refresh() {
  if (!site) return;
  const requests = [get(["sites", site]), get(["sites", site, "outcomes"]), get(["sites", site, "trends"])];
  const [now, recent, trends] = await Promise.allSettled(requests);
  for (const { reason } of [now, recent, trends]) if (reason) requireToken(reason);
  answer = now.value ?? answer;
  outcomes = recent.value?.outcomes ?? outcomes;
  const error = now.reason ?? recent.reason;
  const suggestion = answer || outcomes || !now.reason ? null : await suggestSites(now.reason, site);
  showStatus(status, suggestion?.text ?? (error ? errorText(error, site) : ""), Boolean(error));
  if (!error) document.getElementById("site-at").textContent = `As of ${localClock()}.`;
  block("now-title").hidden = !answer && !outcomes;
  const content = suggestion?.choices ?? contents(site, answer, outcomes, "h3");
  update(place, h("div", { id: "site-now" }, ...content));
  if (trends.value) draw(trends.value);
}

const block = (id) => document.getElementById(id);

const capital = (text) => text[0].toUpperCase() + text.slice(1);

/**
 * Draw `series` over `times`, and show them as a table below the chart. `heading` is that of the table's first column,
 * whose times `formatTime` formats. A series without a color is only in the table. A series can have a `format` of its
 * own. `options` are those of `chart`.
 */
function figure(id, caption, heading, formatTime, times, series, options) {
  const place = block(id);
  place.hidden = times.length < 2;
  if (place.hidden) return;
  const columns = [[heading], ...series.map(({ name }) => [capital(name), "figure"])];
  const rows = times.map((time, at) => [
    cell(formatTime(time), { head: true }),
    ...series.map(({ values, format = options.format }) =>
      cell(datum(values[at], format(values[at])), { kind: "figure" })),
  ]);
  const numbers = table(caption, columns, rows.toReversed());
  update(place.querySelector("details div"), h("div", {}, wide(caption, numbers)));
  chart(place.querySelector(".chart"), { times, series: series.filter(({ color }) => color), ...options });
}

function draw({ hours, days: byDay, weeks }) {
  const jobs = (name) => hours.map((hour) => hour[name]);
  figure("by-hour", "Jobs by the hour", "Hour", clockTime, hours.map(({ time }) => time), [
    { name: "queued", color: "--tint", values: jobs("queued_jobs"), steps: true, format: count },
    { name: "running", color: "--other", values: jobs("running_jobs"), steps: true, format: count },
  ], { format: (number) => (Number.isInteger(number) ? `${count(number)} jobs` : "") });
  waits("by-day", "Median waits by the day", "Day (UTC)", dayOf, byDay);
  waits("by-week", "Median waits by the week", "Week (UTC)", weekOf, weeks);
  coverage(weeks.filter(({ bounded }) => bounded));
}

const weekOf = (begin) => days(begin, begin + LAST_DAY_S);

/**
 * Show the median waits of each day or week: predicted at submission, and actual. A prediction is a median, so the
 * means would differ even if it were exact.
 */
function waits(id, caption, heading, formatTime, periods) {
  const scored = periods.filter(({ jobs }) => jobs);
  const of = (name) => scored.map((period) => period[name] ?? null);
  figure(id, caption, heading, formatTime, of("begin"), [
    { name: "jobs", values: of("jobs"), format: count },
    { name: "predicted (median)", color: "--tint", values: of("predicted_median_s") },
    { name: "actual (median)", color: "--other", values: of("waited_median_s") },
    { name: "mean error", values: scored.map(({ error_s: error, jobs }) => error / jobs) },
  ], { format: duration, tickSteps: DURATIONS, day: true });
}

function coverage(weeks) {
  const shares = weeks.map(({ covered, bounded }) => covered / bounded);
  figure("bounds", "Coverage by the week", "Week (UTC)", weekOf, weeks.map(({ begin }) => begin), [
    { name: "jobs with a bound", values: weeks.map(({ bounded }) => bounded), format: count },
    { name: "in the 90 % bound", color: "--tint", values: shares },
    { name: "promised", color: "--rule", values: weeks.map(() => 0.9), dashed: true },
  ], { format: percent, day: true, min: Math.min(0.7, ...shares), max: 1 });
}

openPage(refresh, refresh);
