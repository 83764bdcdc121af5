// Numbers and times as words, and elements whose text never is markup.

const NBSP = "\u00a0";

/**
 * A duration (seconds) in at most two units, as people type it: "19s", "2h10m", "3d4h"; "–" where there is none.
 * `models/durations.py` says how it is rounded and writes the same; so does Open OnDemand's widget.
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

/** "in 2h10m", "now", "12m ago". */
export function fromNow(seconds) {
  if (Math.abs(seconds) < 0.5) return "now";
  return seconds > 0 ? `in ${duration(seconds)}` : `${duration(-seconds)} ago`;
}

export const count = (number) => number.toLocaleString("en");
export const plural = (number, one, many = `${one}s`) => `${count(number)}${NBSP}${number === 1 ? one : many}`;
/** How many events of a site are not read yet; nothing where all are. */
export const behind = ({ lag_messages: messages, lag_s: lag }) =>
  messages ? `, ${plural(messages, "message")} unread, ${duration(lag)} behind` : "";

/** Bytes of memory: "64 GiB". */
export function size(bytes) {
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), 4);
  return unit(Number((bytes / 1024 ** power).toPrecision(4)), ["B", "KiB", "MiB", "GiB", "TiB"][power]);
}

export const percent = (share) => (share == null ? "–" : `${Math.round(share * 100)}${NBSP}%`);

/** A probability as it is written in records: "90 %" of "0.9". */
export const probability = (text) => `${Number((Number(text) * 100).toFixed(4))}${NBSP}%`;

// One rule: a time of day is on the reader's clock, with its zone; a day that is counted as a whole is UTC's.
const utc = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", dateStyle: "medium", timeStyle: "short" });
const day = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", day: "numeric", month: "short" });
const clock = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
});

const local = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
const thisYear = new Intl.DateTimeFormat("en-GB", local);
const anyYear = new Intl.DateTimeFormat("en-GB", { ...local, year: "numeric" });

/** A time (Unix seconds) on the reader's clock, with its zone: "6 Feb, 14:03 CET"; with the year where it is another. */
export function clockText(time) {
  const date = new Date(time * 1000);
  return (date.getFullYear() === new Date().getFullYear() ? thisYear : anyYear).format(date);
}

/** The same as an element; its title says the time in UTC. */
export const clockTime = (time) =>
  h("time", { datetime: new Date(time * 1000).toISOString(), title: utcText(time) }, clockText(time));

const stamps = /(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC/g;

/** What the service says as a sentence: it begins with a capital, and its times are on the reader's clock. */
export const sentence = (text) => `${text[0].toUpperCase()}${onClock(text.slice(1))}.`;
export const onClock = (text) => text.replace(stamps, (_, day, time) => clockText(Date.parse(`${day}T${time}Z`) / 1000));
export const utcText = (time) => `${utc.format(time * 1000)} UTC`;
export const days = (begin, end) => day.formatRange(begin * 1000, end * 1000);
export const dayOf = (time) => day.format(time * 1000);
export const localClock = () => clock.format(new Date());

/** Where a site's own page is. */
export const sitePage = (site) => `site?${new URLSearchParams({ name: site })}`;

/** Where a job's is. */
export const jobPage = (site, job) => `job?${new URLSearchParams({ site, name: job })}`;

/** An element; strings among the children become text, null nothing. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value != null) element.setAttribute(name, value);
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

/** A number that is shown as words and still can be read by a machine. */
export const datum = (value, words) => (value == null ? h("span", {}, "–") : h("data", { value }, words));
export const seconds = (value) => datum(value, duration(value));
export const number = (value) => datum(value, value == null ? "" : count(value));

/** A name that was given elsewhere, whichever way it is written. */
export const name = (text) => h("bdi", {}, text);
