"""The page, in a real browser, on the real service with a real worker."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
from selenium.webdriver.common.keys import Keys

from deploy.local.stack import LocalStack
from deploy.local.up import ServeProcess
from models.records import AnyEvent, Capacity, Start, Submit
from streams.settings import Settings
from tests.support.browser import Browser, browsing
from tests.support.deployment import Deploy, Deployment, interleaved, readiness, settings_on, simulated, until

TOKEN = "an-open-sesame"
HOSTILE = "<img src=x onerror=\"document.title='had'\">"
JOB = {"cpus": 16, "walltime": "4h"}
ROWS = "#ranking tbody tr"
LIVE = ("queued_jobs", "running_jobs", "free_cpus")


def hostile_site() -> list[AnyEvent]:
    """A site whose every name is markup, with a job that runs and two that queue."""
    made: list[AnyEvent] = [Capacity(site=HOSTILE, time=0.0, cpus=8)]
    made += [
        Submit(site=HOSTILE, time=10.0 + n, job=f"<b>{n}</b>", user=HOSTILE, queue="<i>q</i>", cpus=8, walltime=3600.0)
        for n in range(3)
    ]
    return [*made, Start(site=HOSTILE, time=20.0, job="<b>0</b>")]


ALDER, BIRCH = simulated("alder", 200), simulated("birch", 200, seed=2, policy="fcfs")
FIRST = interleaved(ALDER[: len(ALDER) * 2 // 3], BIRCH[: len(BIRCH) * 2 // 3])
LATER = ALDER[len(ALDER) * 2 // 3 :][:40]


def with_serve(settings: Settings, **serve: Any) -> Settings:
    """The settings with others in the section `serve`."""
    return msgspec.structs.replace(settings, serve=msgspec.structs.replace(settings.serve, **serve))


class Served:
    """A deployment and the HTTP service on it."""

    def __init__(self, here: Deployment, directory: Path) -> None:
        self.here = here
        self.process = ServeProcess(directory, with_serve(here.settings, answer_seconds=25.0))

    @property
    def url(self) -> str:
        return f"http://{self.process.address}/"

    def get(self, path: str, **parameters: object) -> Any:
        """The service's own answer."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        query = f"?{urlencode(parameters)}" if parameters else ""
        with opener.open(f"{self.url}v1/{path}{query}", timeout=120) as answer:
            return json.load(answer)

    def settled(self, site: str, time: float) -> bool:
        """Whether the worker and the standing estimates know the site's events up to this time."""
        with suppress(OSError):
            stands = {known["site"]: known["live"] for known in self.get("sites")["sites"]}
            knows = self.get(f"sites/{quote(site, safe='')}")
            return bool(stands.get(site) == knows["live"] and knows["made_at"] == time)
        return False


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="module")
def served(browser: Browser, local_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Three sites with queued and running jobs, one of them with hostile names."""
    stack, directory = local_stack, tmp_path_factory.mktemp("page")
    fresh = {"seconds": 0.5, "share": 0.5, "change": 0.0}
    settings = settings_on(stack.kafka.bootstrap, stack.redis.url, {}, {"history": 150}, estimates=fresh)
    here = Deployment(settings, directory / "worker")
    served = Served(here, directory / "serve")
    try:
        here.worker.start()
        here.send(interleaved(FIRST, hostile_site()))
        served.process.start()
        last = {event.site: event.time for event in (*FIRST, *hostile_site())}
        until(lambda: all(served.settled(site, time) for site, time in last.items()))
        yield served
    finally:
        served.process.kill()
        here.close()


def sites_shown(browser: Browser) -> None:
    """Wait until every site has been asked, too."""
    browser.until(lambda: len(browser.all(".one .facts")) == len(browser.all(".one")) == 3)


def shown(browser: Browser, column: str) -> list[float | None]:
    """The ranking's numbers in a column."""
    script = (
        "return [...document.querySelectorAll(arguments[0])].map(cell => cell.querySelector('data')?.value ?? null)"
    )
    return [value and float(value) for value in browser.run(script, f"{ROWS} [data-label='{column}']")]


def test_the_ranking_is_the_services(browser: Browser, served: Served) -> None:
    browser.open(served.url)
    browser.fill({"[name=cpus]": 16, "[name=walltime]": "4h"})
    browser.click("#ask-form button")
    browser.until(lambda: browser.all(ROWS))
    said = served.get("rank", **JOB)
    ranking = said["ranking"]
    assert browser.texts(f"{ROWS} .title") == [site["site"] for site in ranking]
    assert {site["site"] for site in ranking} == {"alder", "birch"}
    assert shown(browser, "Starts") == [site["predicted_wait_s"] for site in ranking]
    assert shown(browser, "Runs for") == [site["predicted_run_s"] for site in ranking]
    assert shown(browser, "Done") == [site["predicted_response_s"] for site in ranking]
    assert shown(browser, "95\u00a0% within") == [(site["bounds"] or {}).get("0.95") for site in ranking]
    assert browser.text("#said").startswith(ranking[0]["site"])
    assert [out["site"] for out in said["left_out"]] == browser.texts(".left-out li b") == [HOSTILE]
    assert said["left_out"][0]["reason"] in browser.text(".left-out li")
    sites_shown(browser)
    assert browser.complaints() == []


def test_the_address_holds_the_job(browser: Browser, served: Served) -> None:
    browser.open(f"{served.url}?{urlencode({**JOB, 'user': 'ada', 'run': '30m'})}")
    browser.until(lambda: browser.all(ROWS))
    assert browser.one("[name=run]").get_attribute("value") == "30m"
    assert {*shown(browser, "Runs for")} == {1800.0}
    browser.fill({"#ask-form [name=cpus]": 2, "[name=run]": ""})
    browser.press(Keys.ENTER)
    browser.until(lambda: "cpus=2&" in browser.address and "run=" not in browser.address)
    browser.until(lambda: {*shown(browser, "Runs for")} not in ({1800.0}, set()))
    browser.back()
    browser.until(lambda: {*shown(browser, "Runs for")} == {1800.0})
    assert browser.one("#ask-form [name=cpus]").get_attribute("value") == "16"


def test_what_is_wrong_with_the_job_is_said_where_it_is(browser: Browser, served: Served) -> None:
    browser.open(served.url)
    browser.fill({"[name=walltime]": "soon"})
    browser.press(Keys.ENTER)
    browser.until(lambda: browser.all("#said.wrong"))
    assert browser.text("#said").startswith("Walltime: 'soon' is no duration")
    assert browser.one("[aria-invalid=true]").get_attribute("name") == "walltime"


def test_the_sites_are_as_the_service_says(browser: Browser, served: Served) -> None:
    browser.open(served.url)
    sites_shown(browser)
    sites = served.get("sites")["sites"]
    assert browser.texts(".one h3") == [site["site"] for site in sites]
    assert browser.numbers(".one .now data") == [site["live"][key] for site in sites for key in LIVE]
    browser.run("document.querySelectorAll('details').forEach(details => details.open = true)")
    for number, site in enumerate(sites, 1):
        at = f".one:nth-child({number})"
        told = served.get(f"sites/{quote(site['site'], safe='')}")
        assert browser.texts(f"{at} .jobs tbody th") == [job["job"] for job in told["queued"]]
        weeks = [week for week in reversed(told["weeks"]) if any(known["jobs"] for known in week["methods"])]
        assert browser.numbers(f"{at} .weeks td:nth-child(2) data") == [week["methods"][0]["jobs"] for week in weeks]
        for column, method in enumerate((told["method"], "zero", "median"), 3):
            errors = [known["mean_error_s"] for week in weeks for known in week["methods"] if known["method"] == method]
            assert browser.numbers(f"{at} .weeks td:nth-child({column}) data") == errors
        outcomes = served.get(f"sites/{quote(site['site'], safe='')}/outcomes")["outcomes"]
        assert set(browser.texts(f"{at} .outcomes tbody th bdi")) == {outcome["job"] for outcome in outcomes}
    assert browser.texts(".one .weeks tbody tr") and browser.all(".scatter .point")
    assert browser.complaints() == []


def test_what_comes_later_is_shown_without_disturbing_who_reads(browser: Browser, served: Served) -> None:
    browser.open(served.url, height=600)
    sites_shown(browser)
    browser.run("window.held = document.querySelector('.one:nth-child(2) h4 ~ .numbers > summary')")
    browser.run("held.focus(); held.scrollIntoView({behavior: 'instant', block: 'center'})")
    before, place = browser.numbers(".one .now data"), browser.run("return held.getBoundingClientRect().top")
    served.here.send(LATER)
    until(lambda: served.settled("alder", LATER[-1].time))
    browser.run("document.dispatchEvent(new Event('visibilitychange'))")
    lives = [site["live"][key] for site in served.get("sites")["sites"] for key in LIVE]
    assert lives != before
    browser.until(lambda: browser.numbers(".one .now data") == lives)
    browser.until(
        lambda: (
            browser.texts(".one:nth-child(2) .jobs tbody th")
            == [job["job"] for job in served.get("sites/alder")["queued"]]
        )
    )
    assert browser.run("return document.activeElement === held")
    assert browser.run("return held.getBoundingClientRect().top") == pytest.approx(place, abs=1.0)


def test_a_users_jobs(browser: Browser, served: Served) -> None:
    browser.open(served.url)
    browser.fill({"#jobs-form input": HOSTILE})
    browser.press(Keys.ENTER)
    browser.until(lambda: browser.all(".site-jobs"))
    assert browser.texts(".site-jobs h3") == [HOSTILE]
    assert browser.texts(".site-jobs tbody th") == ["<b>0</b>", "<b>1</b>", "<b>2</b>"]
    assert browser.text("#jobs-said").startswith(f"3 jobs of {HOSTILE}: 1 ")
    browser.fill({"#jobs-form input": "nobody"})
    browser.press(Keys.ENTER)
    browser.until(lambda: browser.text("#jobs-said") == "No job of nobody waits or runs now.")
    assert browser.complaints() == []


def test_names_are_text_whatever_they_are(browser: Browser, served: Served) -> None:
    browser.open(f"{served.url}?cpus=1&walltime=1h&user={quote(HOSTILE)}")
    sites_shown(browser)
    browser.until(lambda: len(browser.all(ROWS)) == 3)
    assert HOSTILE in browser.texts(".one h3")
    assert HOSTILE in browser.texts(f"{ROWS} .title")
    assert browser.run("return document.title") == "queuecast"
    assert [image.get_attribute("alt") for image in browser.all("img")] == [""]
    assert browser.all("main b img, main i") == []


def test_keys_are_enough(browser: Browser, served: Served) -> None:
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
    browser.tab_to("#jobs-form input")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 820, 1280])
def test_everybody_can_read_it(browser: Browser, served: Served, width: int, dark: bool) -> None:
    browser.open(f"{served.url}?{urlencode(JOB)}", width, dark=dark)
    sites_shown(browser)
    browser.until(lambda: browser.all(ROWS))
    browser.fill({"#jobs-form input": HOSTILE})
    browser.press(Keys.ENTER)
    browser.until(lambda: browser.all(".site-jobs"))
    browser.run("document.querySelectorAll('details').forEach(details => details.open = true)")
    assert browser.overflow() <= 0
    assert browser.barriers() == []


def test_the_accessibility_check_finds_what_is_wrong(browser: Browser, served: Served) -> None:
    browser.open(served.url)
    sites_shown(browser)
    browser.run(
        "const main = document.querySelector('main');"
        "main.append(document.createElement('input'), document.createElement('h5'));"
        "const pale = document.createElement('p'); pale.textContent = 'pale'; pale.style.color = '#aaa';"
        "main.append(pale);"
        "main.append(document.createElement('img'));"
    )
    found = "\n".join(browser.barriers())
    for problem in ("no label", "a heading 5 follows", "its contrast is", "no alternative text"):
        assert problem in found


def test_without_the_token_it_asks_for_it(browser: Browser, served: Served, tmp_path: Path) -> None:
    with ServeProcess(tmp_path, with_serve(served.here.settings, token=TOKEN, answer_seconds=25.0)) as locked:
        browser.open(f"http://{locked.address}/?{urlencode(JOB)}")
        browser.until(lambda: browser.one("#token-value").is_displayed())
        assert browser.text("#token-why") == "This service lets in only those who have its token."
        assert browser.all(ROWS) == browser.all(".one") == []
        browser.press("a-wrong-one", Keys.ENTER)
        browser.until(lambda: browser.text("#token-why") == "The service did not take this token.")
        browser.until(lambda: browser.run("return document.activeElement.id") == "token-value")
        browser.press(TOKEN, Keys.ENTER)
        browser.until(lambda: browser.all(ROWS))
        sites_shown(browser)
        assert not browser.one("#token").is_displayed()
        assert TOKEN not in browser.address
        locked.stop()
        browser.click("#ask-form button")
        browser.until(lambda: browser.text("#said").startswith("The service cannot be reached."))
        assert browser.all(ROWS) == []


def test_without_a_site_it_says_what_to_do(browser: Browser, deploy: Deploy, tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "serve", deploy().settings) as empty:
        until(lambda: readiness(empty)[0] == 200)
        browser.open(f"http://{empty.address}/?{urlencode(JOB)}")
        browser.until(lambda: "queuecast feed" in browser.text("#sites-said"))
        browser.until(lambda: browser.text("#said").startswith("No site has reported yet"))
        assert browser.complaints() == []


def test_a_worker_that_is_silent_is_told_of(browser: Browser, served: Served, tmp_path: Path) -> None:
    with ServeProcess(tmp_path, with_serve(served.here.settings, answer_seconds=5.0)) as impatient:
        browser.open(f"http://{impatient.address}/")
        sites_shown(browser)
        with killed(served.here):
            browser.click("#ask-form button")
            browser.until(lambda: browser.all(ROWS))
            assert all("standing estimate" in text for text in browser.texts(f"{ROWS} .site"))
            browser.run("document.dispatchEvent(new Event('visibilitychange'))")
            browser.until(lambda: "No worker answers for alder." in browser.text(".one:nth-child(2) .body"))
            assert len(browser.all(".one .facts")) == 3  # what was known before is still there


@contextmanager
def killed(here: Deployment) -> Iterator[None]:
    """Without the worker; it is started again for the next test."""
    here.worker.kill()
    try:
        yield
    finally:
        here.worker.start()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (3599, "1 h"), (5400, "1 h 30 min"),
        (86_399, "1 d"), (90_000, "1 d 1 h"), (100 * 86_400, "100 d"), (-90, "−2 min"), (None, "–"),
    ],
)  # fmt: skip
def test_durations_in_words(browser: Browser, served: Served, seconds: float | None, words: str) -> None:
    browser.open(served.url)
    found = browser.run(
        "return import(new URL('static/text.js', location)).then(m => m.duration(arguments[0]))", seconds
    )
    assert found.replace("\u00a0", " ") == words
