"""Contents of the pages in a real browser, with a real service and worker."""

from urllib.parse import quote, urlencode

import pytest
from selenium.webdriver.common.keys import Keys

from tests.support.browser import Browser
from tests.support.deployment import until
from tests.support.served import HOSTILE, JOB, LATER, LIVE, ROWS, SLASHED, Served, sites_shown

pytestmark = pytest.mark.long


WITHOUT_FIRST = """
    const get = window.fetch;
    window.fetch = async (...request) => {
      const found = await (await get(...request)).json();
      found.estimates?.forEach((one) => { one.at += 600; });
      return Response.json(found);
    };
    document.dispatchEvent(new Event("visibilitychange"));
"""
"""Refresh the page with all estimates 600 s later, so that none is from the submission."""


def shown(browser: Browser, column: str) -> list[float | None]:
    """Return the numbers of a column of the ranking."""
    script = (
        "return [...document.querySelectorAll(arguments[0])].map(cell => cell.querySelector('data')?.value ?? null)"
    )
    return [value and float(value) for value in browser.run(script, f"{ROWS} [data-label='{column}']")]


def test_page_ranking_equals_service_response(browser: Browser, served: Served) -> None:
    browser.open(served.url)
    browser.fill({"[name=cpus]": 16, "[name=walltime]": "4h"})
    browser.click("#ask-form button")
    browser.until(lambda: browser.all(ROWS))
    answer = served.get("rank", **JOB)
    ranking = answer["ranking"]
    assert browser.texts(f"{ROWS} .title") == [site["site"] for site in ranking]
    assert {site["site"] for site in ranking} == {"alder", "birch", SLASHED}
    assert shown(browser, "Starts") == [site["predicted_wait_s"] for site in ranking]
    assert shown(browser, "Run time") == [site["predicted_run_s"] for site in ranking]
    assert shown(browser, "Done") == [site["predicted_response_s"] for site in ranking]
    assert shown(browser, "95\u00a0% within") == [(site["bounds"] or {}).get("0.95") for site in ranking]
    assert browser.text("#status").startswith(ranking[0]["site"])
    assert [out["site"] for out in answer["left_out"]] == browser.texts(".left-out li b") == [HOSTILE]
    assert answer["left_out"][0]["reason"] in browser.text(".left-out li")
    sites_shown(browser)
    assert browser.complaints() == []


def test_page_address_contains_job(browser: Browser, served: Served) -> None:
    browser.open(f"{served.url}?{urlencode({**JOB, 'user': 'ada', 'run': '30m'})}")
    browser.until(lambda: browser.all(ROWS))
    assert browser.one("[name=run]").get_attribute("value") == "30m"
    assert {*shown(browser, "Run time")} == {1800.0}
    browser.fill({"#ask-form [name=cpus]": 2, "[name=run]": ""})
    browser.press(Keys.ENTER)
    browser.until(lambda: "cpus=2&" in browser.address and "run=" not in browser.address)
    browser.until(lambda: {*shown(browser, "Run time")} not in ({1800.0}, set()))
    browser.back()
    browser.until(lambda: {*shown(browser, "Run time")} == {1800.0})
    assert browser.one("#ask-form [name=cpus]").get_attribute("value") == "16"


def test_page_marks_invalid_field_with_message(browser: Browser, served: Served) -> None:
    browser.open(served.url)
    browser.fill({"[name=walltime]": "soon"})
    browser.press(Keys.ENTER)
    browser.until(lambda: browser.all("#status.wrong"))
    assert browser.text("#status").startswith("Walltime: 'soon' is not a valid duration")
    assert browser.one("[aria-invalid=true]").get_attribute("name") == "walltime"


def test_page_sites_equal_service_response(browser: Browser, served: Served) -> None:
    browser.open(served.url)
    sites_shown(browser)
    sites = served.get("sites")["sites"]
    assert browser.texts(".one h3") == [site["site"] for site in sites]
    assert browser.numbers(".one .now data") == [site["live"][key] for site in sites for key in LIVE]
    browser.run("document.querySelectorAll('details').forEach(details => details.open = true)")
    for number, site in enumerate(sites, 1):
        at = f".one:nth-child({number})"
        details = served.get(f"sites/{quote(site['site'], safe='')}")
        assert browser.texts(f"{at} .jobs tbody th") == [job["job"] for job in details["queued"]]
        weeks = [week for week in reversed(details["weeks"]) if any(known["jobs"] for known in week["methods"])]
        assert browser.numbers(f"{at} .weeks td:nth-child(2) data") == [week["methods"][0]["jobs"] for week in weeks]
        for column, method in enumerate((details["method"], "zero", "median"), 3):
            errors = [known["mean_error_s"] for week in weeks for known in week["methods"] if known["method"] == method]
            assert browser.numbers(f"{at} .weeks td:nth-child({column}) data") == errors
        outcomes = served.get(f"sites/{quote(site['site'], safe='')}/outcomes")["outcomes"]
        assert set(browser.texts(f"{at} .outcomes tbody th bdi")) == {outcome["job"] for outcome in outcomes}
    assert browser.texts(".one .weeks tbody tr") and browser.all(".scatter .point")
    assert browser.complaints() == []


def test_page_refresh_keeps_focus_and_position(browser: Browser, served: Served) -> None:
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


def test_jobs_page_address_contains_user(browser: Browser, served: Served) -> None:
    browser.open(f"{served.url}jobs")
    browser.fill({"#jobs-form input": HOSTILE})
    browser.press(Keys.ENTER)
    browser.until(lambda: browser.all(".site-jobs"))
    address = browser.address
    assert address.endswith(f"/jobs?{urlencode({'user': HOSTILE})}")
    browser.fill({"#jobs-form input": "nobody"})
    browser.press(Keys.ENTER)
    browser.until(lambda: browser.text("#jobs-status") == "No job of nobody is pending or running.")
    browser.back()
    browser.until(lambda: browser.all(".site-jobs"))
    browser.open(address)
    browser.until(lambda: browser.all(".site-jobs"))
    assert browser.texts(".site-jobs h2") == [HOSTILE]
    assert browser.texts(".site-jobs tbody th") == ["<b>0</b>", "<b>1</b>", "<b>2</b>"]
    assert browser.text("#jobs-status").startswith(f"3 jobs of {HOSTILE}: 1 ")
    assert browser.texts(".site-jobs time") and all(clock.endswith("UTC") for clock in browser.texts(".site-jobs time"))
    assert browser.text("#jobs-at").startswith("As of ")
    assert browser.complaints() == []


def test_jobs_page_shows_no_bound_for_blocked_job(browser: Browser, served: Served) -> None:
    browser.open(f"{served.url}jobs?user=ada")
    browser.until(lambda: browser.all(".site-jobs"))
    assert browser.texts("[data-label=Expected]") == ["no bound: blocked"]
    assert browser.text("tr.about") == "Held back by a limit or a priority."


def test_site_page_equals_service_response(browser: Browser, served: Served) -> None:
    browser.open(served.url)
    sites_shown(browser)
    browser.run("document.querySelector('.one:nth-child(4) .body a').click()")
    browser.until(lambda: browser.all("#site-now .facts"))
    assert browser.address.endswith(f"/site?{urlencode({'name': SLASHED})}")
    assert browser.text("h1") == SLASHED and browser.run("return document.title") == f"{SLASHED} – queuecast"
    assert browser.text("#site-at").startswith("As of ")
    assert browser.text("#site-status") == ""  # a live region: screen readers would read a clock at each refresh
    past = served.get(f"sites/{quote(SLASHED, safe='')}/trends")
    browser.until(lambda: browser.all("#by-hour canvas"))
    rows = browser.run(
        "return [...document.querySelectorAll('#by-hour tbody tr')].map(row => row.cells[2].textContent)"
    )
    assert rows == [str(hour["running_jobs"]) for hour in reversed(past["hours"])]
    assert "of 8 GPUs" in browser.text(".facts")
    assert browser.complaints() == []


def test_job_page_lists_estimates_over_time(browser: Browser, served: Served) -> None:
    browser.open(f"{served.url}job?{urlencode({'site': SLASHED, 'name': 'held'})}")
    browser.until(lambda: browser.all("#job-estimates table"))
    estimates = served.get(f"sites/{quote(SLASHED, safe='')}/jobs/held")["estimates"]
    assert len(browser.texts("#job-estimates tbody tr")) == len(estimates) + 1  # the present estimate is one more
    assert browser.texts("#job-estimates tbody th")[-1].startswith("At its submission, 1 Jan 1970")
    assert browser.all("#job-chart canvas") and browser.complaints() == []
    browser.run(WITHOUT_FIRST)
    browser.until(lambda: browser.texts("#job-estimates tbody th")[-1].startswith("1 Jan 1970"))
    browser.open(f"{served.url}job?{urlencode({'site': SLASHED, 'name': 'gone'})}")
    browser.until(lambda: browser.all("#job-status.wrong"))
    assert browser.one("#job-now a").get_attribute("href").endswith(f"site?{urlencode({'name': SLASHED})}")


def test_page_tables_can_be_saved_as_csv(browser: Browser, served: Served) -> None:
    browser.open(f"{served.url}site?name=alder")
    browser.until(lambda: browser.all("#by-hour canvas"))
    browser.run("URL.createObjectURL = (made) => { made.text().then((text) => (window.saved = text)); return '#'; }")
    browser.run("document.getElementById('saving').open = true")
    browser.until(lambda: browser.all("#saving button"))
    assert {*browser.texts("#saving a")} == {"v1/sites/alder", "v1/sites/alder/outcomes", "v1/sites/alder/trends"}
    assert browser.texts("#saving button")[0] == "Jobs by the hour.csv"
    browser.run("document.querySelector('#saving button').click()")
    browser.until(lambda: browser.run("return window.saved"))
    heading, *rows = browser.run("return window.saved").splitlines()
    past = served.get("sites/alder/trends")
    hours, days = past["hours"], past["days"]
    assert len(days) > 1
    medians = ("predicted_median_s", "waited_median_s")
    shown = [value for day in reversed(days) for value in (*map(day.get, medians), day["error_s"] / day["jobs"])]
    script = "return [...document.querySelectorAll('#by-day td:not(:nth-child(2)) data')].map(cell => +cell.value)"
    assert browser.run(script) == pytest.approx(shown)
    assert heading == '"Hour","Queued","Running"'
    assert [row.split(",")[1] for row in rows] == [f'"{hour["queued_jobs"]}"' for hour in reversed(hours)]


def test_page_shows_the_openapi_document_of_the_service(browser: Browser, served: Served) -> None:
    browser.open(f"{served.url}http#Ranking")
    browser.until(lambda: browser.all("#Ranking[open]"))
    assert "GET /v1/rank" in browser.texts("#http-paths h2")
    assert "left_out" in browser.texts("#Ranking tbody th")
    assert browser.complaints() == []


def test_status_page_lists_sites_and_workers(browser: Browser, served: Served) -> None:
    browser.open(f"{served.url}status")
    browser.until(lambda: len(browser.all("table")) >= 2)
    assert browser.text("#status-summary").startswith("4 sites, ")
    status = served.get("status")
    assert browser.texts(".chapter:nth-child(1) tbody th") == [site["site"] for site in status["sites"]]
    assert browser.texts(".chapter:nth-child(2) tbody th") == [worker["name"] for worker in status["workers"]]
    assert status["workers"][0]["checkpoint"] is not None
    assert browser.complaints() == []


def test_page_escapes_hostile_names(browser: Browser, served: Served) -> None:
    browser.open(f"{served.url}?cpus=1&walltime=1h&user={quote(HOSTILE)}")
    sites_shown(browser)
    browser.until(lambda: len(browser.all(ROWS)) == 4)
    assert HOSTILE in browser.texts(".one h3")
    assert HOSTILE in browser.texts(f"{ROWS} .title")
    assert browser.run("return document.title") == "queuecast"
    assert [image.get_attribute("alt") for image in browser.all("img")] == [""]
    assert browser.all("main b img, main i") == []


def test_page_form_sends_further_job_requirements(browser: Browser, served: Served) -> None:
    options = {"partition": "gpu", "tasks": "2", "exclusive": "true", "reservation": "none", "constraint": "ib|hdr"}
    browser.open(f"{served.url}?{urlencode({**JOB, **options})}")
    browser.until(lambda: browser.all("#ranking .request"))
    assert browser.one("[name=exclusive]").is_selected() and browser.one("#more").get_attribute("open")
    understood = browser.text(".request")
    for words in ("2 tasks", "whole nodes", "partition gpu", "reservation none", "nodes with ib|hdr"):
        assert words in understood
    browser.click("[name=exclusive]")
    browser.click("#ask-form button")
    browser.until(lambda: "exclusive" not in browser.address and "whole nodes" not in browser.text(".request"))
