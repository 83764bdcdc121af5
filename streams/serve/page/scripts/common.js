// What every page has: the question for the token, and the round of refreshes.

import "./saving.js";
import { Refused, enter, get, leave } from "./api.js";

const REFRESH_MS = 20_000;

const door = document.getElementById("token");
const key = document.getElementById("token-value");
const why = document.getElementById("token-why");

/** The service lets in nobody whom it does not know: ask for the token, once for all questions that were refused. */
export function refused(error) {
  if (!(error instanceof Refused) || error.status !== 401 || !door.hidden) return;
  door.hidden = false;
  askAgain("This service requires an access token.");
}

function askAgain(reason) {
  why.textContent = reason;
  key.value = "";
  key.focus();
}

/** Do `begin` now and whenever a token was given; `refresh` again and again, while it is wanted and looked at. */
export function open(begin, refresh) {
  door.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (await enter(key.value).catch(() => false)) {
      door.hidden = true;
      begin();
      offerToLeave();
    } else {
      askAgain("The service rejected this token.");
    }
  });
  const live = document.getElementById("live");
  const again = () => live.checked && door.hidden && !document.hidden && refresh();
  setInterval(again, REFRESH_MS);
  live.addEventListener("change", again);
  document.addEventListener("visibilitychange", again);
  begin();
  offerToLeave();
}

/** Who has a session may end it. */
async function offerToLeave() {
  const out = document.getElementById("leave");
  out.hidden = !(await get(["me"]).catch(() => null))?.session;
  out.onclick = async () => {
    await leave();
    location.reload();
  };
}

/** Say something in a live region; what stands there already is not said again. */
export function say(place, text, wrong = false) {
  if (place.textContent !== text) place.textContent = text;
  place.classList.toggle("wrong", wrong);
}
