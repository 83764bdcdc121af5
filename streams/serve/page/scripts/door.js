// What every page has: the question for the token, and the round of refreshes.

import { Refused, token } from "./api.js";

const REFRESH_MS = 20_000;

const door = document.getElementById("token");
const key = document.getElementById("token-value");

/** The service lets nobody in without its token: ask for it, once for all questions that were refused. */
export function refused(error) {
  if (!(error instanceof Refused) || error.status !== 401 || error.key !== token.get() || !door.hidden) return;
  token.forget();
  door.hidden = false;
  document.getElementById("token-why").textContent = error.key
    ? "The service did not take this token." : "This service lets in only those who have its token.";
  key.value = "";
  key.focus();
}

/** Do `begin` now and whenever a token was given; `refresh` again and again, while it is wanted and looked at. */
export function open(begin, refresh) {
  door.addEventListener("submit", (event) => {
    event.preventDefault();
    token.set(key.value);
    door.hidden = true;
    begin();
  });
  const live = document.getElementById("live");
  const again = () => live.checked && door.hidden && !document.hidden && refresh();
  setInterval(again, REFRESH_MS);
  live.addEventListener("change", again);
  document.addEventListener("visibilitychange", again);
  begin();
}

/** Say something in a live region; what stands there already is not said again. */
export function say(place, text, wrong = false) {
  if (place.textContent !== text) place.textContent = text;
  place.classList.toggle("wrong", wrong);
}
