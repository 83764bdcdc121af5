"""Pages in a real browser with answers that are easy to misread, without a broker."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from models.records import AnyAnswer, JobAnswer, JobsAnswer, OrderFit, SiteAnswer, WaitAnswer
from streams.client.pending_questions import WorkerCompiling
from streams.serve.sessions import LINK_S, signed
from streams.settings.sections import ServeToken
from tests.support.browser import Browser, browsing
from tests.support.compiled import fake_compilation
from tests.support.fake_client import USER, FakeClient, engine, engines
from tests.support.web import AlteringClient, serving


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def client() -> AlteringClient:
    return AlteringClient(engines())


@pytest.fixture(scope="module")
def url(client: AlteringClient) -> Iterator[str]:
    with serving(client) as found:
        yield found


def with_bounds(bounds: dict[str, float], start: float) -> Any:
    """Return a function that sets the expected start and the upper bounds of jobs, in seconds from now."""

    def alter(answer: AnyAnswer) -> AnyAnswer:
        now = answer.made_at
        if isinstance(answer, JobAnswer):
            by = {q: now + left_s for q, left_s in bounds.items()}
            return msgspec.structs.replace(answer, expected_start=now + start, starts_by=by, estimates=[])
        if isinstance(answer, JobsAnswer):
            jobs = [
                msgspec.structs.replace(
                    job,
                    expected_start=now + start,
                    bounds={q: now + left - job.submit for q, left in bounds.items()},
                    eligible=msgspec.UNSET,
                )
                for job in answer.jobs
                if job.start is None
            ]
            return msgspec.structs.replace(answer, jobs=jobs)
        return answer

    return alter


QUEUED = next(job.id for job in engine("alder", 1).context.state.first_queued(1))


@pytest.mark.parametrize(
    ("bounds", "start", "shown"),
    [
        ({"0.5": 600.0, "0.9": 7200.0, "0.95": 9000.0}, 3600.0, ["With 90 % by", "With 95 % by"]),
        ({"0.5": -60.0, "0.9": 1800.0, "0.95": 9000.0}, 3600.0, ["With 95 % by"]),
        ({"0.5": -600.0, "0.9": -60.0, "0.95": -30.0}, 3600.0, ["At the latest"]),
    ],
)
def test_job_page_hides_impossible_upper_bounds(
    browser: Browser, client: AlteringClient, url: str, bounds: dict[str, float], start: float, shown: list[str]
) -> None:
    client.alter = with_bounds(bounds, start)  # type: ignore[method-assign]
    browser.open(f"{url}job?site=alder&name={QUEUED}")
    browser.until(lambda: browser.all("#job-now dt"))
    terms = [term.replace("\u00a0", " ") for term in browser.texts("#job-now dt")]
    assert [term for term in terms if term.startswith(("With", "At the latest"))] == shown
    assert browser.texts(".trail li") == ["Sites", "alder", f"Job {QUEUED}"]
    browser.open(f"{url}jobs?user={USER}")
    browser.until(lambda: browser.all(".jobs tbody tr"))
    cells = browser.texts(".jobs tbody tr:first-child td[data-label='At the latest']")
    assert ("later than its bounds" in cells[0]) == (bounds["0.9"] < start)
    assert browser.complaints() == []


def test_pages_show_tasks_of_an_array(browser: Browser, client: AlteringClient, url: str) -> None:
    def alter(answer: AnyAnswer) -> AnyAnswer:
        tasks = {"tasks_remaining": 1200, "tasks_running": 8}
        if isinstance(answer, JobsAnswer):
            jobs = [msgspec.structs.replace(job, **tasks) for job in answer.jobs]
            return msgspec.structs.replace(answer, jobs=jobs)
        if not isinstance(answer, JobAnswer) or answer.live is None:
            return answer
        return msgspec.structs.replace(answer, live=msgspec.structs.replace(answer.live, **tasks))

    client.alter = alter  # type: ignore[method-assign]
    browser.open(f"{url}job?site=alder&name={QUEUED}")
    browser.until(lambda: "1,200 tasks pending, 8 running" in browser.texts("#job-now dd"))
    browser.open(f"{url}jobs?user={USER}")
    browser.until(lambda: "1,200 tasks pending, 8 running" in browser.texts(".jobs tbody th .line"))
    assert browser.complaints() == browser.barriers() == []


def test_job_list_shows_shared_reason_one_time(browser: Browser, client: AlteringClient, url: str) -> None:
    def alter(answer: AnyAnswer) -> AnyAnswer:
        if not isinstance(answer, JobsAnswer):
            return answer
        jobs = [msgspec.structs.replace(job, why="the machine is full") for job in answer.jobs if job.start is None]
        return msgspec.structs.replace(answer, jobs=jobs)

    client.alter = alter  # type: ignore[method-assign]
    browser.open(f"{url}jobs?user={USER}")
    browser.until(lambda: browser.all(".jobs tr.about"))
    for table in (f"#job-list .site-jobs:nth-child({place})" for place in (1, 2)):
        [message] = browser.texts(f"{table} tr.about")
        jobs = len(browser.all(f"{table} tbody tr:not(.about)"))
        assert message == ("The machine is full." if jobs == 1 else f"These {jobs} jobs: The machine is full.")


def test_site_page_lists_features_by_correlation(browser: Browser, client: AlteringClient, url: str) -> None:
    found = {"user_queued_jobs": 0.61, "cpus": 0.4, "running_elapsed": 0.3, "user_running_ert": 0.25} | {
        f"f{number}": 0.2 for number in range(9)
    }

    def alter(answer: AnyAnswer) -> AnyAnswer:
        return msgspec.structs.replace(answer, features=found) if isinstance(answer, SiteAnswer) else answer

    client.alter = alter  # type: ignore[method-assign]
    browser.open(f"{url}site?name=alder")
    browser.until(lambda: browser.all("table.features tbody tr"))
    browser.run("document.querySelector('table.features').closest('details').open = true")
    names = browser.texts("table.features tbody th")
    assert names[:4] == ["User’s queued jobs", "CPUs", "Running elapsed time", "User’s running estimated run time"]
    assert len(names) == 8
    assert browser.texts("table.features tbody td")[0] == "0.61"
    assert browser.complaints() == browser.barriers() == []


def test_summary_states_why_the_soonest_site_ranks_second(browser: Browser, client: AlteringClient, url: str) -> None:
    def alter(answer: AnyAnswer) -> AnyAnswer:
        if not isinstance(answer, WaitAnswer):
            return answer
        wait_s, unverified = (60.0, "unknown queue") if answer.site == "alder" else (7200.0, msgspec.UNSET)
        times = {"predicted_wait_s": wait_s, "predicted_run_s": 600.0, "cautious_wait_s": wait_s, "bounds": None}
        return msgspec.structs.replace(answer, unverified=unverified, low_confidence=msgspec.UNSET, **times)

    client.alter = alter  # type: ignore[method-assign]
    browser.open(f"{url}?cpus=4&walltime=1h")
    browser.until(lambda: "ranks first" in browser.text("main"))
    assert "but it may lack a requested resource." in browser.text("main")
    assert "done later" not in browser.text("main")


def test_site_page_states_the_fit_of_the_order(browser: Browser, client: AlteringClient, url: str) -> None:
    fit = OrderFit(order="learned", share=0.931, pairs=900, kinds={"up to 1 h": 0.95, "over 12 h": 0.8})

    def alter(answer: AnyAnswer) -> AnyAnswer:
        return msgspec.structs.replace(answer, order_fit=fit) if isinstance(answer, SiteAnswer) else answer

    client.alter = alter  # type: ignore[method-assign]
    browser.open(f"{url}site?name=alder")
    browser.until(lambda: browser.all(".order-fit"))
    text = browser.text(".order-fit").replace("\xa0", " ")
    assert text.startswith("The learned order explains 93 % of recent starts (95 % up to 1 h, 80 % over 12 h).")
    assert browser.complaints() == browser.barriers() == []


def test_mistyped_site_page_suggests_similar_site(browser: Browser, client: AlteringClient, url: str) -> None:
    client.alter = lambda answer: answer  # type: ignore[method-assign]
    for page in ("site?name=aldr", "site?name=adler", "job?site=aldr&name=1"):
        browser.open(f"{url}{page}")
        browser.until(lambda: browser.all("#site-now a, #job-now a"))
        message = browser.text("main .status")
        assert message == "There is no site with this name."
        choices = ["Did you mean alder?", "Sites: alder, birch.", "All sites and their queues"]
        assert browser.texts("#site-now p, #job-now p") == choices
        assert browser.barriers() == []


ITEMS = {
    "": "Ask",
    "jobs": "My jobs",
    "job?site=alder&name=1": "My jobs",
    "site?name=alder": "Sites",
    "status": "Status",
    "http": "",
}


@pytest.mark.parametrize(("page", "item"), ITEMS.items())
def test_navigation_marks_current_page(browser: Browser, url: str, page: str, item: str) -> None:
    browser.open(f"{url}{page}", width=390, dark=True)
    browser.until(lambda: browser.all("header nav a"))
    assert "".join(browser.texts("header nav a[aria-current]")) == item
    assert browser.overflow() <= 0 and browser.barriers() == []


def test_charts_of_a_row_are_aligned(browser: Browser, client: AlteringClient, url: str) -> None:
    def alter(answer: AnyAnswer) -> AnyAnswer:
        if not isinstance(answer, SiteAnswer) or not answer.trends:
            return answer
        days = [msgspec.structs.replace(answer.trends.days[0], begin=day * 86_400.0) for day in range(3)]
        return msgspec.structs.replace(answer, trends=msgspec.structs.replace(answer.trends, days=days, weeks=days))

    client.alter = alter  # type: ignore[method-assign]
    browser.open(f"{url}site?name=alder", width=1400)
    browser.until(lambda: len(browser.all(".charts .canvas canvas")) >= 2)
    script = "return [...document.querySelectorAll('.canvas')].slice(0, 2).map((one) => one.getBoundingClientRect())"
    first, second = browser.run(script)
    assert first["top"] == second["top"] and first["left"] < second["left"]
    assert "predicted (median)" in browser.text("#by-day .legend")
    assert browser.complaints() == []


def test_status_without_a_site_counts_no_workers(browser: Browser, url: str) -> None:
    with serving(FakeClient()) as empty:
        browser.open(f"{empty}status")
        browser.until(lambda: browser.text("#status-summary"))
        assert browser.text("#status-summary") == "0 sites, none stale; no message unread."
        assert browser.texts("#status-now .hint")[:1] == ["No site has reported yet."]
        assert "once it has a site" in browser.text("#status-now") and not browser.all("#status-now table")
    with serving(FakeClient(engines(), silent=["alder", "birch"])) as silent:
        browser.open(f"{silent}status")
        browser.until(lambda: browser.text("#status-summary"))
        hints = browser.texts("#status-now .hint")
        assert hints[:2] == ["No worker has answered for any site.", "No worker has answered."]
    browser.open(f"{url}status")
    browser.until(lambda: browser.all("#status-now table"))
    assert "Recent median would be" in browser.texts("#status-now thead th")
    browser.click("#status-now a[href='alerts']")
    browser.until(lambda: browser.all(".prose"))


@pytest.mark.parametrize("width", [390, 900, 1400])
def test_status_page_shows_a_site_name_in_one_line(browser: Browser, url: str, width: int) -> None:
    browser.open(f"{url}status", width=width)
    browser.until(lambda: browser.all("#status-now tbody th a"))
    assert browser.run("return document.querySelector('#status-now tbody th a').getClientRects().length") == 1
    assert browser.overflow() <= 0


def test_pages_show_progress_of_compiling_worker(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    progress = "compiling 137 of 210 kernels, about 2 min left; first start only"
    with fake_compilation(tmp_path, progress), serving(FakeClient()) as empty:
        browser.open(f"{empty}status")
        browser.until(lambda: browser.text("#status-summary"))
        assert browser.text("#status-summary").endswith(f"unread. The worker is not ready: {progress}.")
        browser.open(empty)
        browser.until(lambda: browser.text("#sites-status"))
        assert browser.text("#sites-status").startswith("No site has reported yet.")
        assert browser.text("#sites-status").endswith(f"The worker is not ready: {progress}.")


def test_site_page_states_that_the_worker_compiles(browser: Browser, client: AlteringClient, url: str) -> None:
    def compiling(_: AnyAnswer) -> AnyAnswer:
        raise WorkerCompiling("the worker is not ready: compiling 137 of 210 kernels; first start only")

    client.alter = compiling  # type: ignore[method-assign]
    for page in ("site?name=alder", "job?site=alder&name=1"):
        browser.open(f"{url}{page}")
        browser.until(lambda: browser.text("main .status"))
        expected = "No answer yet: the worker is not ready: compiling 137 of 210 kernels; first start only."
        assert browser.text("main .status") == expected
        assert "may have ended" not in browser.text("main")


def test_job_page_states_the_reason_once(browser: Browser, client: AlteringClient, url: str) -> None:
    why = "held back by a limit or a priority"

    def alter(answer: AnyAnswer) -> AnyAnswer:
        if not isinstance(answer, JobAnswer):
            return answer
        live = msgspec.structs.replace(answer.live, why=f"{why}; other jobs have priority")
        return msgspec.structs.replace(answer, live=live, expected_start=None, text=f"No start can be promised: {why}")

    client.alter = alter  # type: ignore[method-assign]
    browser.open(f"{url}job?site=alder&name={QUEUED}")
    browser.until(lambda: browser.all("#job-now dt"))
    assert browser.text("main").lower().count(why) == 1
    assert "Other jobs have priority." in browser.text("main")


def test_http_page_shows_curl_example(browser: Browser, url: str) -> None:
    browser.open(f"{url}http")
    browser.until(lambda: browser.all("#http-paths h2"))
    assert f'"{url}v1/rank?cpus=64&walltime=4h"' in browser.text("#http-curl")
    assert "Authorization: Bearer" in browser.text("main")
    assert "Request fulfilled" not in browser.run("return document.body.textContent")
    assert browser.barriers() == []


def test_login_link_signs_in_by_button(browser: Browser) -> None:
    token = "ada's own token"
    tokens = {"ada": ServeToken(token=token, rights="own", user=USER)}
    with serving(FakeClient(engines()), tokens=tokens) as url:
        browser.open(f"{url}login?key={signed('link', 'ada', token, time.time() + LINK_S)}")
        assert "Sign in" in browser.text("h1") and browser.barriers() == []
        browser.click("#sign-in button")
        browser.until(lambda: browser.all(".one"))
        browser.until(lambda: browser.text("#leave") == "Sign out")
        browser.click("#leave")
        browser.until(lambda: browser.all("#token:not([hidden])"))
