// The page: a question to all sites, how they are, and a user's jobs.

import { Refused, token } from "./api.js";
import { Jobs } from "./jobs.js";
import { Ask } from "./rank.js";
import { Sites } from "./sites.js";

const REFRESH_MS = 20_000;

const door = document.getElementById("token");
const key = document.getElementById("token-value");

/** The service lets nobody in without its token: ask for it, once for all questions that were refused. */
function refused(error) {
  if (!(error instanceof Refused) || error.status !== 401 || error.key !== token.get() || !door.hidden) return;
  token.forget();
  door.hidden = false;
  document.getElementById("token-why").textContent = error.key
    ? "The service did not take this token." : "This service lets in only those who have its token.";
  key.value = "";
  key.focus();
}

const ask = new Ask(refused);
const sites = new Sites(refused);
const jobs = new Jobs(refused);

door.addEventListener("submit", (event) => {
  event.preventDefault();
  token.set(key.value);
  door.hidden = true;
  begin();
});

function begin() {
  ask.recall();
  sites.refresh();
  if (document.querySelector("#jobs-form input").value) jobs.ask();
}

const live = document.getElementById("live");
const refresh = () => live.checked && door.hidden && !document.hidden && sites.refresh();
setInterval(refresh, REFRESH_MS);
live.addEventListener("change", refresh);
document.addEventListener("visibilitychange", refresh);

begin();
