// Common parts of all pages: the form for the token, periodic refreshes, and the status line.

import "./saving.js";
import { RequestError, get, signIn, signOut } from "./api.js";

const REFRESH_MS = 20_000;

const tokenForm = document.getElementById("token");
const tokenField = document.getElementById("token-value");
const tokenMessage = document.getElementById("token-message");

/** Show the form for the token if a request failed without a valid one; once for all failed requests. */
export function requireToken(error) {
  if (!(error instanceof RequestError) || error.status !== 401 || !tokenForm.hidden) return;
  tokenForm.hidden = false;
  focusTokenField("This service requires an access token.");
}

function focusTokenField(message) {
  tokenMessage.textContent = message;
  tokenField.value = "";
  tokenField.focus();
}

/** Call `load` now and after each sign-in, and `refresh` periodically while the page is visible and kept up to date. */
export function openPage(load, refresh) {
  tokenForm.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (await signIn(tokenField.value).catch(() => false)) {
      tokenForm.hidden = true;
      load();
      showSignOut();
    } else {
      focusTokenField("The service rejected this token.");
    }
  });
  const live = document.getElementById("live");
  const refreshIfShown = () => live.checked && tokenForm.hidden && !document.hidden && refresh();
  setInterval(refreshIfShown, REFRESH_MS);
  live.addEventListener("change", refreshIfShown);
  document.addEventListener("visibilitychange", refreshIfShown);
  load();
  showSignOut();
}

/** Show the button that ends the session, if there is one. */
async function showSignOut() {
  const button = document.getElementById("leave");
  button.hidden = !(await get(["me"]).catch(() => null))?.session;
  button.onclick = async () => {
    await signOut();
    location.reload();
  };
}

/** Set the text of a live region. An unchanged text is not set again, so screen readers do not repeat it. */
export function showStatus(place, text, wrong = false) {
  if (place.textContent !== text) place.textContent = text;
  place.classList.toggle("wrong", wrong);
}
