// The first page: the form that ranks sites for a job, and the list of sites.

import { openPage, requireToken } from "./common.js";
import { Ask } from "./rank.js";
import { Sites } from "./sites.js";

const ask = new Ask(requireToken);
const sites = new Sites(requireToken);

openPage(() => {
  ask.restore();
  sites.refresh();
}, () => sites.refresh());
