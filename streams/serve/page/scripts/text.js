// Formats of numbers and times, and elements whose text is never parsed as markup.

const NBSP = "\u00a0";

/**
 * Format a duration (seconds) in at most two units: "19s", "2h10m", "3d4h"; "–" for null.
 * `models/durations.py` describes the rounding. It has the same format, and so has the widget for Open OnDemand.
 */
export function duration(seconds) {
  if (seconds == null) return "–";
  const whole = Math.floor(Math.abs(seconds) + 0.5);
  const step = whole >= 8640000 ? 86400 : whole >= 86400 ? 3600 : whole >= 600 ? 60 : 1;
  let left = Math.floor((whole + Math.floor(step / 2)) / step) * step;
  let text = "";
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]]) {
    if (left >= size) text += Math.floor(left / size) + unit;
    left %= size;
  }
  return text ? (seconds < 0 ? "-" : "") + text : "0s";
}

const unit = (number, name) => `${number}${NBSP}${name}`;

/** Format a time relative to now: "in 2h10m", "now", "12m ago". */
export function fromNow(seconds) {
  if (Math.abs(seconds) < 0.5) return "now";
  return seconds > 0 ? `in ${duration(seconds)}` : `${duration(-seconds)} ago`;
}

export const count = (number) => number.toLocaleString("en");
export const plural = (number, one, many = `${one}s`) => `${count(number)}${NBSP}${number === 1 ? one : many}`;
/** Format the tasks of a job array that is queued as one row: "1,200 tasks pending, 8 running". */
export const tasksText = ({ tasks_remaining: pending, tasks_running: running }) =>
  `${plural(pending, "task")} pending${running == null ? "" : `, ${count(running)} running`}`;
/** Format the consumer lag of a site; empty without a lag. */
export const lagText = ({ lag_messages: messages, lag_s: lag }) =>
  messages ? `, ${plural(messages, "message")} unread, ${duration(lag)} behind` : "";

/** Format a number of bytes: "64 GiB". */
export function size(bytes) {
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), 4);
  return unit(Number((bytes / 1024 ** power).toPrecision(4)), ["B", "KiB", "MiB", "GiB", "TiB"][power]);
}

export const percent = (share) => (share == null ? "–" : `${Math.round(share * 100)}${NBSP}%`);

/** Format the probability of a bound: "90 %" for "0.9". */
export const probability = (text) => `${Number((Number(text) * 100).toFixed(4))}${NBSP}%`;

// Times of day are in the local time zone, and name it. Daily and weekly statistics are in UTC.
const utc = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", dateStyle: "medium", timeStyle: "short" });
const day = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", day: "numeric", month: "short" });
const clock = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
});

const local = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
const thisYear = new Intl.DateTimeFormat("en-GB", local);
const anyYear = new Intl.DateTimeFormat("en-GB", { ...local, year: "numeric" });

/** Format a time (Unix seconds) in the local time zone: "6 Feb, 14:03 CET"; with the year if it is another one. */
export function clockText(time) {
  const date = new Date(time * 1000);
  return (date.getFullYear() === new Date().getFullYear() ? thisYear : anyYear).format(date);
}

/** Return the same as an element whose title is the time in UTC. */
export const clockTime = (time) =>
  h("time", { datetime: new Date(time * 1000).toISOString(), title: utcText(time) }, clockText(time));

const stamps = /(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC/g;

/** Format a message of the service as a sentence: with a capital, a period, and local times. */
export const sentence = (text) => `${text[0].toUpperCase()}${inLocalTime(text.slice(1))}.`;
export const inLocalTime = (text) => text.replace(stamps, (_, day, time) => clockText(Date.parse(`${day}T${time}Z`) / 1000));
export const utcText = (time) => `${utc.format(time * 1000)} UTC`;
export const days = (begin, end) => day.formatRange(begin * 1000, end * 1000);
export const dayOf = (time) => day.format(time * 1000);
export const localClock = () => clock.format(new Date());

/** Return a sentence about a worker that compiles at its first start; empty if `progress` is. */
export const workerProgress = (progress) => (progress ? `The worker is not ready: ${progress}.` : "");

/** Return the address of the page of a site. */
export const sitePage = (site) => `site?${new URLSearchParams({ name: site })}`;

/** Return the address of the page of a job. */
export const jobPage = (site, job) => `job?${new URLSearchParams({ site, name: job })}`;

/** Create an element; strings among the children become text, null is left out. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Create an SVG element likewise. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value != null) element.setAttribute(name, value);
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

/** Return an element with the machine-readable value of a formatted number. */
export const datum = (value, words) => (value == null ? h("span", {}, "–") : h("data", { value }, words));
export const seconds = (value) => datum(value, duration(value));
export const number = (value) => datum(value, value == null ? "" : count(value));

/** Return a name of a site, job or user, isolated from the direction of the surrounding text. */
export const name = (text) => h("bdi", {}, text);
