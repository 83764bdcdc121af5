// Numbers and times as words, and elements whose text never is markup.

const NBSP = "\u00a0";
const MINUTE = 60, HOUR = 3600, DAY = 86400;

/** A duration (seconds) with its two greatest units: "19 s", "2 h 10 min", "3 d 4 h"; "–" where there is none. */
export function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (Math.round(seconds) < MINUTE) return unit(Math.round(seconds), "s");
  const minutes = Math.round(seconds / MINUTE);
  if (minutes < 60) return unit(minutes, "min");
  if (minutes < 24 * 60) return two(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(seconds / HOUR);
  if (hours < 100 * 24) return two(Math.floor(hours / 24), "d", hours % 24, "h");
  return unit(count(Math.round(seconds / DAY)), "d");
}

const unit = (number, name) => `${number}${NBSP}${name}`;
const two = (great, greatName, small, smallName) =>
  small ? `${unit(great, greatName)} ${unit(small, smallName)}` : unit(great, greatName);

/** "in 2 h 10 min", "now", "12 min ago". */
export function fromNow(seconds) {
  if (Math.abs(seconds) < 0.5) return "now";
  return seconds > 0 ? `in ${duration(seconds)}` : `${duration(-seconds)} ago`;
}

export const count = (number) => number.toLocaleString("en");
export const plural = (number, one, many = `${one}s`) => `${count(number)}${NBSP}${number === 1 ? one : many}`;
/** How many events of a site are not read yet; nothing where all are. */
export const behind = ({ lag_events: events, lag_s: lag }) =>
  events ? `, ${plural(events, "event")} unread, ${duration(lag)} behind` : "";

/** Bytes of memory: "64 GiB". */
export function size(bytes) {
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), 4);
  return unit(Number((bytes / 1024 ** power).toPrecision(4)), ["B", "KiB", "MiB", "GiB", "TiB"][power]);
}

export const percent = (share) => (share == null ? "–" : `${Math.round(share * 100)}${NBSP}%`);

/** A probability as it is written in records: "90 %" of "0.9". */
export const probability = (text) => `${Number((Number(text) * 100).toFixed(4))}${NBSP}%`;

const moment = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", dateStyle: "medium", timeStyle: "short" });
const day = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", day: "numeric", month: "short" });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

/** A site's time (Unix seconds): "6 Feb 1996, 14:03 UTC". */
export const siteTime = (time) => `${moment.format(time * 1000)} UTC`;
export const days = (begin, end) => day.formatRange(begin * 1000, end * 1000);
export const localClock = () => clock.format(new Date());

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
