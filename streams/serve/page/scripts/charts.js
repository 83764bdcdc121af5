// Charts over time, drawn by uPlot (vendor/). They are hidden from screen readers: a table contains the same numbers.

import { h } from "./text.js";

const HEIGHT = 220;
const DAYS = [1, 2, 7, 14, 28].map((days) => days * 86_400);
const HOURS = [60, 300, 900, 1800, ...[1, 2, 3, 6, 12, 24].map((hours) => hours * 3600)];
const SHORT_S = 3 * 86_400;
/** Steps between the ticks of an axis of durations. */
export const DURATIONS = [60, 300, 600, 1800, ...[1, 2, 3, 6, 12, 24, 48, 120, 240].map((hours) => hours * 3600)];
const DATE = { day: "numeric", month: "short" };
const CLOCK = { hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
const charts = new Map();
const { uPlot } = window;

const cssColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * Draw `series` over `times` (Unix seconds) in the element `place`, and replace its earlier chart.
 *
 * Each series has a name, a color (a variable of the style sheet) and values, and can be dashed or drawn as steps.
 * `format` formats a value of the y axis, whose ticks are one of `tickSteps` apart. `day` selects UTC dates; `min` and
 * `max` limit the y axis.
 */
export function chart(place, { times, series, format, tickSteps, day = false, min = 0, max = null }) {
  const { width } = place.getBoundingClientRect();
  charts.get(place)?.plot.destroy();
  const reading = h("p", { class: "reading", "aria-hidden": "true" });
  const canvas = h("div", { class: "canvas", "aria-hidden": "true" });
  const key = h("p", { class: "hint legend", "aria-hidden": "true" }, series.map(({ name, color, dashed }) => {
    const line = h("span", { class: dashed ? "key line-key dashed" : "key line-key" });
    line.style.borderColor = `var(${color})`;
    return h("span", {}, line, name);
  }));
  place.replaceChildren(key, canvas, reading);
  const zone = day ? { timeZone: "UTC" } : {};
  const fullDate = new Intl.DateTimeFormat("en-GB", { ...DATE, ...zone, year: "numeric", ...(day ? {} : CLOCK) });
  const shortDate = new Intl.DateTimeFormat("en-GB", { ...DATE, ...zone });
  const hour = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
  const hourly = !day && times.at(-1) - times[0] < SHORT_S;
  const tickText = (at) => {
    const text = hour.format(at * 1000);
    return hourly && text !== "00:00" ? text : shortDate.format(at * 1000);
  };
  const grid = { stroke: cssColor("--line"), width: 1 };
  const axis = { stroke: cssColor("--soft"), grid, ticks: { show: false }, font: "12px system-ui" };
  const range = (_, low, high) => [Math.min(min, low ?? min), max ?? Math.max((high ?? 0) * 1.08, 1)];
  const plot = new uPlot({
    width: Math.max(width, 200), height: HEIGHT, legend: { show: false },
    tzDate: (at) => (day ? uPlot.tzDate(new Date(at * 1000), "Etc/UTC") : new Date(at * 1000)),
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: { x: { time: true }, y: { range } },
    axes: [
      { ...axis, size: 32, space: 56, gap: 10, incrs: hourly ? HOURS : DAYS, values: (_, at) => at.map(tickText) },
      { ...axis, size: 74, space: 34, ...(tickSteps ? { incrs: tickSteps } : {}), values: (_, at) => at.map(format) },
    ],
    series: [{}, ...series.map(({ color, dashed, steps }) => ({
      stroke: cssColor(color), width: 2, dash: dashed ? [6, 5] : undefined,
      points: { show: times.length < 40 && !dashed, size: 5, fill: cssColor(color) },
      paths: steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
    }))],
    hooks: { setCursor: [({ cursor: { idx } }) => {
      if (idx == null) return (reading.textContent = "");
      const values = series.map(({ name, values }) => `${name} ${values[idx] == null ? "–" : format(values[idx])}`);
      reading.textContent = `${fullDate.format(times[idx] * 1000)}${day ? " (UTC)" : ""}: ${values.join(", ")}`;
    }] },
  }, [times, ...series.map(({ values }) => values)], canvas);
  charts.set(place, { plot, redraw: () => chart(place, { times, series, format, tickSteps, day, min, max }) });
  resizes.observe(place);
}

const resizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const plot = charts.get(target)?.plot;
    const resized = plot && contentRect.width && Math.abs(plot.width - contentRect.width) > 1;
    if (resized) plot.setSize({ width: contentRect.width, height: HEIGHT });
  }
});
const dark = window.matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => [...charts.values()].forEach(({ redraw }) => redraw()));
