// Looks a page over and returns what is wrong with it for who cannot see it, or sees it badly: a list of sentences.

const wrong = [];
const all = (selector) => [...document.querySelectorAll(selector)];
const report = (element, what) => wrong.push(`${element.outerHTML.slice(0, 120)}: ${what}`);
const shown = (element) => element.checkVisibility({ visibilityProperty: true });

if (!document.documentElement.lang) wrong.push("the page has no language");
if (!document.title) wrong.push("the page has no title");
if (all("main").length !== 1) wrong.push("there is not one main part");
if (all("script[src]").length && !all("[role=status], [aria-live]").length) wrong.push("nothing is announced");

for (const field of all("input, select, textarea")) {
  if (!field.labels?.length && !field.getAttribute("aria-label")) report(field, "no label");
}
for (const control of all("button, a[href], summary")) if (!control.textContent.trim()) report(control, "no name");

const ids = all("[id]").map(({ id }) => id);
for (const id of new Set(ids)) if (ids.indexOf(id) !== ids.lastIndexOf(id)) wrong.push(`two elements are called ${id}`);
for (const attribute of ["aria-labelledby", "aria-describedby", "list", "for"]) {
  for (const element of all(`[${attribute}]`)) {
    const named = element.getAttribute(attribute).split(" ");
    if (!named.every((id) => ids.includes(id))) report(element, `${attribute} names nothing`);
  }
}

const levels = all("h1, h2, h3, h4, h5, h6").filter(shown).map(({ nodeName }) => Number(nodeName[1]));
if (levels.filter((level) => level === 1).length !== 1 || levels[0] !== 1) wrong.push("there is not one first heading");
levels.slice(1).forEach((level, place) => {
  if (level > levels[place] + 1) wrong.push(`a heading ${level} follows one of level ${levels[place]}`);
});

for (const image of all("img")) if (!image.hasAttribute("alt")) report(image, "no alternative text");
for (const drawing of all("svg")) {
  const hidden = drawing.getAttribute("aria-hidden") === "true";
  if (!hidden && !drawing.getAttribute("aria-label")) report(drawing, "neither hidden nor named");
}
for (const table of all("table")) {
  if (!table.caption?.textContent.trim()) report(table, "no caption");
  for (const head of table.querySelectorAll("th")) if (!head.scope) report(head, "no scope");
  for (const head of table.querySelectorAll("th")) if (!head.textContent.trim()) report(head, "no text");
}
for (const element of all("*").filter(shown)) {
  const { overflowX, overflowY } = getComputedStyle(element);
  const across = overflowX === "auto" && element.scrollWidth > element.clientWidth;
  const down = overflowY === "auto" && element.scrollHeight > element.clientHeight;
  if ((across || down) && element.tabIndex < 0) report(element, "cannot be scrolled by keys");
}

const channels = (color) => (color.match(/[\d.]+/g) ?? []).map(Number);
const luminance = (color) => {
  const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = channels(color).slice(0, 3).map((value) => linear(value / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const { backgroundColor } = getComputedStyle(at);
    if ((channels(backgroundColor)[3] ?? 1) > 0) return backgroundColor;
  }
  return "rgb(255, 255, 255)";
};
let texts = 0;
for (const element of all("body *").filter(shown)) {
  if (![...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim())) continue;
  const style = getComputedStyle(element);
  const ink = element instanceof SVGElement ? style.fill : style.color;
  const [dark, light] = [luminance(ink), luminance(ground(element))].sort((a, b) => a - b);
  const ratio = (light + 0.05) / (dark + 0.05);
  texts += 1;
  if (ratio < 4.5) report(element, `its contrast is ${ratio.toFixed(2)}`);
}
if (texts < 10) wrong.push("there is hardly any text");
return wrong;
