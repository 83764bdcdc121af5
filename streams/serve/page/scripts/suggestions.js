// Suggestions for the name of a site that does not exist.

import { RequestError, get } from "./api.js";
import { h, name, sitePage } from "./text.js";

const MAX_SITES = 30;

/** Return the optimal string alignment distance of two texts: Levenshtein's, with two swapped letters as one change. */
export function distance(a, b) {
  let [previous, row] = [[], Array.from({ length: b.length + 1 }, (_, place) => place)];
  for (let at = 1; at <= a.length; at += 1) {
    const next = [at];
    for (let to = 1; to <= b.length; to += 1) {
      const swapped = at > 1 && to > 1 && a[at - 1] === b[to - 2] && a[at - 2] === b[to - 1];
      const replaced = row[to - 1] + (a[at - 1] === b[to - 1] ? 0 : 1);
      next.push(Math.min(row[to] + 1, next[to - 1] + 1, replaced, swapped ? previous[to - 2] + 1 : Infinity));
    }
    [previous, row] = [row, next];
  }
  return row.at(-1);
}

/** Return the site with the most similar name; null if none is similar enough. */
export function closestSite(wrong, sites) {
  const near = sites.map((site) => [distance(wrong.toLowerCase(), site.toLowerCase()), site]).sort(([a], [b]) => a - b);
  return near.length && near[0][0] <= Math.max(1, wrong.length / 3) ? near[0][1] : null;
}

const link = (site) => h("a", { href: sitePage(site) }, name(site));

/** Return a message and links to existing sites, if the error is that of an unknown site; null for other errors. */
export async function suggestSites(error, wrong) {
  if (!(error instanceof RequestError) || error.status !== 404) return null;
  const sites = (await get(["sites"]).catch(() => ({ sites: [] }))).sites.map(({ site }) => site);
  if (sites.includes(wrong)) return null;
  const near = closestSite(wrong, sites);
  const links = sites.slice(0, MAX_SITES).flatMap((site, place) => [place ? ", " : "", link(site)]);
  const choices = [
    near ? h("p", {}, "Did you mean ", link(near), "?") : null,
    sites.length ? h("p", { class: "hint" }, "Sites: ", links, sites.length > MAX_SITES ? ", …" : ".") : null,
    h("p", {}, h("a", { href: "./#sites" }, "All sites and their queues")),
  ];
  return { text: "There is no site with this name.", choices: choices.filter(Boolean) };
}
