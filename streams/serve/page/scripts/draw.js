// Drawings in SVG. They are hidden from screen readers: the page contains the same numbers as text.

import { s, duration } from "./text.js";

const TICKS = [0, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 28 * 86400, 365 * 86400];
const MIN_LONGEST_S = 600;

/** Logarithmic scale of waits from 0 to the longest: shares of the width, by log(1 + seconds / 60). */
export class Scale {
  constructor(longest) {
    this.longest = Math.max(longest, MIN_LONGEST_S);
  }
  at(seconds) {
    return Math.log1p(Math.min(Math.max(seconds, 0), this.longest) / 60) / Math.log1p(this.longest / 60);
  }
  inverse(share) {
    return 60 * Math.expm1(share * Math.log1p(this.longest / 60));
  }
  ticks(minGap = 0.12) {
    const kept = [];
    for (const seconds of TICKS.filter((tick) => tick <= this.longest)) {
      const share = this.at(seconds);
      if (!kept.length || share - kept.at(-1).share >= minGap) kept.push({ seconds, share, label: duration(seconds) });
    }
    return kept;
  }
}

const percent = (share) => `${(share * 100).toFixed(2)}%`;
const picture = (attributes, ...children) =>
  s("svg", { "aria-hidden": "true", focusable: "false", ...attributes }, ...children);

/** Draw the labels of the ticks of a scale. */
export function axis(scale) {
  return picture(
    { class: "axis" },
    scale.ticks().map(({ seconds, share, label }) => {
      const anchor = share > 0.94 ? "end" : share < 0.06 ? "start" : "middle";
      return s("text", { x: percent(share), y: 12, "text-anchor": anchor }, seconds ? label : "now");
    }),
  );
}

/** Draw the wait at a site: a band between its bounds, paler where less likely, and a dot at the expected wait. */
export function band(scale, waitS, bounds) {
  const points = Object.entries(bounds ?? {}).map(([q, at]) => [Number(q), scale.at(at)]).sort(([a], [b]) => a - b);
  const parts = points.slice(1).map(([q, end], place) => {
    const [before, begin] = points[place];
    const faint = (2 * Math.abs((q + before) / 2 - 0.5)) ** 1.5;
    return s("rect", {
      class: "part", x: percent(begin), width: percent(Math.max(end - begin, 0)), y: 7, height: 14,
      "fill-opacity": (0.6 - 0.45 * faint).toFixed(2),
    });
  });
  return picture(
    { class: "band" },
    scale.ticks().map(({ share }) => verticalLine("grid", share, 0, 28)),
    parts,
    points.slice(-1).map(([, end]) => verticalLine("last", end, 5, 23)),
    waitS == null ? null : s("circle", { class: "dot", cx: percent(scale.at(waitS)), cy: 14, r: 5.5 }),
  );
}

const verticalLine = (kind, share, y1, y2) =>
  s("line", { class: kind, x1: percent(share), x2: percent(share), y1, y2 });

/** Draw a bar whose length is a share of the whole. */
export function bar(share, kind) {
  const length = Math.min(Math.max(share, 0), 1);
  return picture({ class: `bar ${kind}` }, s("rect", { class: "all", width: "100%", height: "100%", rx: 2 }),
    s("rect", { class: "some", width: percent(length), height: "100%", rx: 2 }));
}

/** Return whether two waits differ by a factor of 2 at most; waits below a minute count as a minute. */
export const withinTwice = (a, b) => Math.max(a, b, 60) <= 2 * Math.max(Math.min(a, b), 60);

const SIDE = 300, LEFT = 64, TOP = 24;

/** Draw predicted (x) and actual (y) waits; each point is `[predicted, actual, cancelled]`, waits in seconds. */
export function scatter(points) {
  const scale = new Scale(Math.max(0, ...points.flatMap(([predicted, actual]) => [predicted, actual])));
  const x = (seconds) => LEFT + SIDE * scale.at(seconds);
  const y = (seconds) => TOP + SIDE * (1 - scale.at(seconds));
  const steps = Array.from({ length: 49 }, (_, place) => scale.inverse(place / 48));
  const above = steps.map((at) => [at, 2 * Math.max(at, 60)]);
  const below = [[0, 0], [120, 0], ...steps.filter((at) => at > 120).map((at) => [at, at / 2])];
  const corners = [...above, ...below.toReversed()].map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`);
  return picture(
    { class: "scatter", viewBox: `0 0 ${LEFT + SIDE + 14} ${TOP + SIDE + 46}` },
    s("polygon", { class: "twice", points: corners.join(" ") }),
    scale.ticks(0.1).flatMap(({ seconds, label }) => [
      s("line", { class: "grid", x1: x(seconds), x2: x(seconds), y1: TOP, y2: TOP + SIDE }),
      s("line", { class: "grid", x1: LEFT, x2: LEFT + SIDE, y1: y(seconds), y2: y(seconds) }),
      s("text", { x: x(seconds), y: TOP + SIDE + 18, "text-anchor": "middle" }, label),
      s("text", { x: LEFT - 7, y: y(seconds) + 4, "text-anchor": "end" }, label),
    ]),
    s("line", { class: "exact", x1: x(0), y1: y(0), x2: x(scale.longest), y2: y(scale.longest) }),
    points.map(([predicted, actual, cancelled]) =>
      s("circle", { class: cancelled ? "point cancelled" : "point", cx: x(predicted), cy: y(actual), r: 4 })),
    s("text", { class: "name", x: LEFT + SIDE, y: TOP + SIDE + 38, "text-anchor": "end" }, "predicted wait →"),
    s("text", { class: "name", x: LEFT, y: TOP - 10 }, "↑ actual wait"),
  );
}
