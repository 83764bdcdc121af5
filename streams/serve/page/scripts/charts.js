// Drawings over time, by uPlot (vendor/). For the eye alone: the same numbers stand beside them in a table.

import { h } from "./text.js";

const HEIGHT = 220;
const DAYS = [1, 2, 7, 14, 28].map((days) => days * 86_400);
const HOURS = [60, 300, 900, 1800, ...[1, 2, 3, 6, 12, 24].map((hours) => hours * 3600)];
const SHORT_S = 3 * 86_400;
/** Marks of an axis of durations are one of these apart. */
export const DURATIONS = [60, 300, 600, 1800, ...[1, 2, 3, 6, 12, 24, 48, 120, 240].map((hours) => hours * 3600)];
const DATE = { day: "numeric", month: "short" };
const CLOCK = { hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
const drawn = new Map();
const { uPlot } = window;

const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * Draw `series` over `times` (Unix seconds) in `place`, replacing an earlier drawing. Each of the series has a name,
 * a color (of the style sheet), values, and may be dashed; `words` says a value as it stands at the axis,
 * where marks are one of `apart` apart.
 */
export function chart(place, { times, series, words, apart, day = false, least = 0, most = null }) {
  const { width } = place.getBoundingClientRect();
  drawn.get(place)?.plot.destroy();
  const told = h("p", { class: "reading", "aria-hidden": "true" });
  const canvas = h("div", { class: "canvas", "aria-hidden": "true" });
  const key = h("p", { class: "hint legend", "aria-hidden": "true" }, series.map(({ name, color, dashed }) => {
    const line = h("span", { class: dashed ? "key line-key dashed" : "key line-key" });
    line.style.borderColor = `var(${color})`;
    return h("span", {}, line, name);
  }));
  place.replaceChildren(key, canvas, told);
  const zone = day ? { timeZone: "UTC" } : {};
  const written = new Intl.DateTimeFormat("en-GB", { ...DATE, ...zone, year: "numeric", ...(day ? {} : CLOCK) });
  const short = new Intl.DateTimeFormat("en-GB", { ...DATE, ...zone });
  const hour = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
  const byHours = !day && times.at(-1) - times[0] < SHORT_S;
  const mark = (at) => {
    const text = hour.format(at * 1000);
    return byHours && text !== "00:00" ? text : short.format(at * 1000);
  };
  const grid = { stroke: ink("--line"), width: 1 };
  const axis = { stroke: ink("--soft"), grid, ticks: { show: false }, font: "12px system-ui" };
  const range = (_, low, high) => [Math.min(least, low ?? least), most ?? Math.max((high ?? 0) * 1.08, 1)];
  const plot = new uPlot({
    width: Math.max(width, 200), height: HEIGHT, legend: { show: false },
    tzDate: (at) => (day ? uPlot.tzDate(new Date(at * 1000), "Etc/UTC") : new Date(at * 1000)),
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: { x: { time: true }, y: { range } },
    axes: [
      { ...axis, size: 32, space: 56, gap: 10, incrs: byHours ? HOURS : DAYS, values: (_, ticks) => ticks.map(mark) },
      { ...axis, size: 74, space: 34, ...(apart ? { incrs: apart } : {}), values: (_, ticks) => ticks.map(words) },
    ],
    series: [{}, ...series.map(({ color, dashed, steps }) => ({
      stroke: ink(color), width: 2, dash: dashed ? [6, 5] : undefined,
      points: { show: times.length < 40 && !dashed, size: 5, fill: ink(color) },
      paths: steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
    }))],
    hooks: { setCursor: [({ cursor: { idx } }) => {
      if (idx == null) return (told.textContent = "");
      const values = series.map(({ name, values }) => `${name} ${values[idx] == null ? "–" : words(values[idx])}`);
      told.textContent = `${written.format(times[idx] * 1000)}${day ? " (UTC)" : ""}: ${values.join(", ")}`;
    }] },
  }, [times, ...series.map(({ values }) => values)], canvas);
  drawn.set(place, { plot, again: () => chart(place, { times, series, words, apart, day, least, most }) });
  watch.observe(place);
}

const watch = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const plot = drawn.get(target)?.plot;
    const other = plot && contentRect.width && Math.abs(plot.width - contentRect.width) > 1;
    if (other) plot.setSize({ width: contentRect.width, height: HEIGHT });
  }
});
const dark = window.matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => [...drawn.values()].forEach(({ again }) => again()));
