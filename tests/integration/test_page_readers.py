"""Pages for all readers: any width, dark or light, keyboard only, without a token, without an answer."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from selenium.webdriver.common.keys import Keys

from deploy.local.up import ServeProcess
from models.durations import duration
from tests.support.browser import Browser
from tests.support.deployment import Deploy, Deployment, readiness, until
from tests.support.served import HOSTILE, JOB, ROWS, Served, sites_shown, with_serve

pytestmark = pytest.mark.long

TOKEN = "an-open-sesame"


def test_page_is_usable_by_keyboard_only(browser: Browser, served: Served) -> None:
    browser.open(served.url)
    sites_shown(browser)
    browser.tab_to("[name=cpus]")
    browser.press(Keys.CONTROL + "a" + Keys.NULL, "4")
    browser.tab_to("[name=walltime]")
    browser.press(Keys.CONTROL + "a" + Keys.NULL, "2h", Keys.ESCAPE, Keys.ENTER)
    browser.until(lambda: browser.all(ROWS))
    assert "cpus=4&walltime=2h" in browser.address
    browser.tab_to(".one > summary")
    assert browser.one(".one:first-child").get_attribute("open")
    browser.press(Keys.ENTER)
    assert not browser.one(".one:first-child").get_attribute("open")


PAGES = {
    f"?{urlencode(JOB)}": ROWS,
    f"jobs?{urlencode({'user': HOSTILE})}": ".site-jobs",
    f"site?{urlencode({'name': 'alder'})}": "#by-hour canvas",
    "status": "table",
    f"job?{urlencode({'site': HOSTILE, 'name': '<b>0</b>'})}": "dl",
    "http": ".reference",
    "alerts": "#queuecastdown",
}
"""Addresses of the pages, and a selector that matches when they are loaded."""

CLIPPED = """
const scrolled = (at) => at && (at.classList.contains("wide") || scrolled(at.parentElement));
return [...document.querySelectorAll("main *")].filter((at) =>
  at.checkVisibility() && !scrolled(at) && !at.closest(".unseen, caption, svg, .canvas, thead")
  && at.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
  .map((at) => at.outerHTML.slice(0, 120))
"""
"""Return the elements beyond the right edge of the page."""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 820, 1400])
@pytest.mark.parametrize("page", PAGES, ids=["ask", "jobs", "site", "status", "job", "http", "alerts"])
def test_page_passes_accessibility_checks(browser: Browser, served: Served, page: str, width: int, dark: bool) -> None:
    browser.open(f"{served.url}{page}", width, dark=dark)
    browser.until(lambda: browser.all(PAGES[page]))
    if page.startswith("?"):
        sites_shown(browser)
    browser.run("document.querySelectorAll('details').forEach(details => details.open = true)")
    assert browser.overflow() <= 0
    assert browser.run(CLIPPED) == []
    assert browser.barriers() == []


def test_accessibility_check_reports_barriers(browser: Browser, served: Served) -> None:
    browser.open(served.url)
    sites_shown(browser)
    browser.run(
        "const main = document.querySelector('main');"
        "main.append(document.createElement('input'), document.createElement('h6'));"
        "const pale = document.createElement('p'); pale.textContent = 'pale'; pale.style.color = '#aaa';"
        "main.append(pale);"
        "main.append(document.createElement('img'));"
    )
    found = "\n".join(browser.barriers())
    for problem in ("no label", "a heading 6 follows", "its contrast is", "no alternative text"):
        assert problem in found


def test_page_without_token_shows_token_form(browser: Browser, served: Served, tmp_path: Path) -> None:
    with ServeProcess(tmp_path, with_serve(served.here.settings, token=TOKEN, answer_timeout_seconds=25.0)) as locked:
        browser.open(f"http://{locked.address}/?{urlencode(JOB)}")
        browser.until(lambda: browser.one("#token-value").is_displayed())
        assert browser.text("#token-message") == "This service requires an access token."
        assert browser.all(ROWS) == browser.all(".one") == []
        browser.press("a-wrong-one", Keys.ENTER)
        browser.until(lambda: browser.text("#token-message") == "The service rejected this token.")
        browser.until(lambda: browser.run("return document.activeElement.id") == "token-value")
        browser.press(TOKEN, Keys.ENTER)
        browser.until(lambda: browser.all(ROWS))
        sites_shown(browser)
        assert not browser.one("#token").is_displayed()
        assert TOKEN not in browser.address
        locked.stop()
        browser.click("#ask-form button")
        browser.until(lambda: browser.text("#status").startswith("The service cannot be reached."))
        assert browser.all(ROWS) == []


def test_page_without_site_shows_ingest_hint(browser: Browser, deploy: Deploy, tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "serve", deploy().settings) as empty:
        until(lambda: readiness(empty)[0] == 200)
        browser.open(f"http://{empty.address}/?{urlencode(JOB)}")
        browser.until(lambda: "queuecast ingest" in browser.text("#sites-status"))
        browser.until(lambda: browser.text("#status").startswith("No site has reported yet"))
        assert browser.complaints() == []


def test_page_without_worker_answer_shows_grid_estimate(browser: Browser, served: Served, tmp_path: Path) -> None:
    with ServeProcess(tmp_path, with_serve(served.here.settings, answer_timeout_seconds=5.0)) as impatient:
        browser.open(f"http://{impatient.address}/")
        sites_shown(browser)
        with killed(served.here):
            browser.click("#ask-form button")
            browser.until(lambda: browser.all(ROWS))
            ranking = browser.text("#ranking")
            assert ranking.count("Grid estimate") == 1 and "sites: Grid estimate: no worker answered" in ranking
            browser.run("document.dispatchEvent(new Event('visibilitychange'))")
            browser.until(lambda: "No worker answers for alder." in browser.text(".one:nth-child(2) .body"))
            assert len(browser.all(".one .facts")) == 4  # earlier facts stay visible


@contextmanager
def killed(here: Deployment) -> Iterator[None]:
    """Kill the worker; restart it for the next test."""
    here.worker.kill()
    try:
        yield
    finally:
        here.worker.start()


def test_page_formats_durations_as_python_code(browser: Browser, served: Served) -> None:
    numbers = [0.0, 0.4, 0.5, 59.4, 59.5, 61.0, 3599.4, 3599.5, 5400.0, 86_399.0, 90_000.0, 8.64e6, 8.7e6, -0.4, -90.0]
    numbers += [1.37**power for power in range(60)]
    browser.open(served.url)
    script = "return import(new URL('static/text.js', location)).then(m => [...arguments[0], null].map(m.duration))"
    assert browser.run(script, numbers) == [*map(duration, numbers), "–"]


def test_page_sentence_times_use_browser_time_zone(browser: Browser, served: Served) -> None:
    script = "return import(new URL('static/text.js', location)).then(m => m.sentence(arguments[0]))"
    reason = "stale: its last event came at 2026-01-25 13:30:29 UTC; it is stale after 10m"
    with browser.in_zone("Europe/Paris"):
        browser.open(served.url)
        shown = browser.run(script, reason)
    assert re.fullmatch(r"Stale: its last event came at 25 Jan.*, 14:30 CET; it is stale after 10m\.", shown)
