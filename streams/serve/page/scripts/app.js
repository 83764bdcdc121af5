// The first page: a question to all sites, and how they are.

import { open, refused } from "./door.js";
import { Ask } from "./rank.js";
import { Sites } from "./sites.js";

const ask = new Ask(refused);
const sites = new Sites(refused);

open(() => {
  ask.recall();
  sites.refresh();
}, () => sites.refresh());
