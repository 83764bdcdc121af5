// One site's page: what the list tells of it, and how it has been over time.

import { explained, get } from "./api.js";
import { chart } from "./charts.js";
import { open, refused, say } from "./door.js";
import { contents } from "./site.js";
import { cell, table, update, wide } from "./table.js";
import { clockTime, dayOf, days, duration, h, localClock, number, percent, seconds } from "./text.js";

const site = new URLSearchParams(location.search).get("name") ?? "";
const said = document.getElementById("site-said");
const place = document.getElementById("site-now");
const SHARES = ["0.9", "0.95"];
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
  if (known) coverage(known);
}

const block = (id) => document.getElementById(id);

function fill(id, used, caption, columns, rows) {
  const figure = block(id);
  figure.hidden = !used;
  if (!used) return null;
  update(figure.querySelector("details div"), h("div", {}, wide(caption, table(caption, columns, rows))));
  return figure.querySelector(".chart");
}

function draw({ hours, days: kept }) {
  const count = [["Hour"], ["Queued", "figure"], ["Running", "figure"]];
  const queue = fill("by-hour", hours.length > 1, "Jobs by the hour", count, hours.toReversed().map((hour) => [
    cell(clockTime(hour.time), { head: true }),
    cell(number(hour.queued_jobs), { kind: "figure" }),
    cell(number(hour.running_jobs), { kind: "figure" }),
  ]));
  if (queue) {
    chart(queue, {
      times: hours.map(({ time }) => time),
      series: [
        { name: "queued", color: "--tint", values: hours.map((hour) => hour.queued_jobs), steps: true },
        { name: "running", color: "--other", values: hours.map((hour) => hour.running_jobs), steps: true },
      ],
      words: (jobs) => (Number.isInteger(jobs) ? `${jobs.toLocaleString("en")} jobs` : ""),
    });
  }
  const means = kept.filter(({ jobs }) => jobs);
  const names = ["Jobs", "Predicted", "Actual", "Off by"];
  const columns = [["Day (UTC)"], ...names.map((heading) => [heading, "figure"])];
  const waits = fill("by-day", means.length > 1, "Mean waits by the day", columns, means.toReversed().map((day) => [
    cell(dayOf(day.begin), { head: true }),
    cell(number(day.jobs), { kind: "figure" }),
    ...[day.predicted_s, day.waited_s, day.error_s].map((sum) => cell(seconds(sum / day.jobs), { kind: "figure" })),
  ]));
  if (waits) {
    chart(waits, {
      times: means.map(({ begin }) => begin),
      series: [
        { name: "predicted", color: "--tint", values: means.map((day) => day.predicted_s / day.jobs) },
        { name: "actual", color: "--other", values: means.map((day) => day.waited_s / day.jobs) },
      ],
      words: duration,
      apart: DURATIONS,
      day: true,
    });
  }
}

function coverage({ weeks, method }) {
  const measured = weeks
    .map(({ begin, end, methods }) => ({ begin, end, own: methods.find((one) => one.method === method) }))
    .filter(({ own }) => own?.jobs && SHARES.some((q) => q in own.coverage));
  const columns = [["Week"], ["Jobs", "figure"], ["In 90 % bound", "figure"], ["In 95 % bound", "figure"]];
  const rows = measured.toReversed().map((week) => [
    cell(days(week.begin, week.end), { head: true }),
    cell(number(week.own.jobs), { kind: "figure" }),
    ...SHARES.map((q) => cell(percent(week.own.coverage[q]), { kind: "figure" })),
  ]);
  const shares = fill("by-week", measured.length > 1, "Coverage by the week", columns, rows);
  if (!shares) return;
  chart(shares, {
    times: measured.map(({ begin }) => begin),
    series: [
      { name: "in the 90 % bound", color: "--tint", values: measured.map(({ own }) => own.coverage["0.9"] ?? null) },
      { name: "90 %", color: "--tint", values: measured.map(() => 0.9), dashed: true },
      { name: "in the 95 % bound", color: "--other", values: measured.map(({ own }) => own.coverage["0.95"] ?? null) },
      { name: "95 %", color: "--other", values: measured.map(() => 0.95), dashed: true },
    ],
    words: percent,
    day: true,
    least: Math.min(0.7, ...measured.flatMap(({ own }) => SHARES.map((q) => own.coverage[q] ?? 1))),
    most: 1,
  });
}

open(refresh, refresh);
