// What to offer where a site is named that there is not.

import { Refused, get } from "./api.js";
import { h, name, sitePage } from "./text.js";

const MOST = 30;

/** How many letters have to be changed, added or removed to make `a` of `b`. */
export function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, place) => place);
  for (let at = 1; at <= a.length; at += 1) {
    const next = [at];
    for (let to = 1; to <= b.length; to += 1) {
      next.push(Math.min(row[to] + 1, next[to - 1] + 1, row[to - 1] + (a[at - 1] === b[to - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row.at(-1);
}

/** The site that is most like a name, where one is much like it. */
export function likeliest(wrong, sites) {
  const near = sites.map((site) => [distance(wrong.toLowerCase(), site.toLowerCase()), site]).sort(([a], [b]) => a - b);
  return near.length && near[0][0] <= Math.max(1, wrong.length / 3) ? near[0][1] : null;
}

const link = (site) => h("a", { href: sitePage(site) }, name(site));

/** A sentence in the place of a refusal that only repeats the name, and the sites that there are; null for others. */
export async function insteadOf(error, wrong) {
  if (!(error instanceof Refused) || error.status !== 404) return null;
  const sites = (await get(["sites"]).catch(() => ({ sites: [] }))).sites.map(({ site }) => site);
  if (sites.includes(wrong)) return null;
  const near = likeliest(wrong, sites);
  const shown = sites.slice(0, MOST).flatMap((site, place) => [place ? ", " : "", link(site)]);
  const choices = [
    near ? h("p", {}, "Did you mean ", link(near), "?") : null,
    sites.length ? h("p", { class: "hint" }, "Sites: ", shown, sites.length > MOST ? ", …" : ".") : null,
    h("p", {}, h("a", { href: "./#sites" }, "All sites and their queues")),
  ];
  return { text: "There is no site with this name.", choices: choices.filter(Boolean) };
}
