"""Dashboard widget of Open OnDemand in a real browser, with a service that answers, fails or hangs."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import pytest

from tests.support.answering import Answer, HttpRequest, answering
from tests.support.browser import Browser, browsing

PARTIAL = Path(__file__).parents[2] / "deploy" / "ondemand" / "_queuecast.html.erb"
HOSTILE = "<img src=x onerror=\"document.title='had'\">"
NOW = 1_000_000.0


def rendered(**values: str) -> str:
    """Return the partial as rendered by Rails: expressions replaced, statements removed."""

    def value(found: re.Match[str]) -> str:
        name = re.search(r"html_escape\(queuecast_(\w+)\)", found[1])
        return escape(values[name[1]]) if name else ""

    text = re.sub(r"<%#.*?-%>|<%(?!=).*?-%>", "", PARTIAL.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"<%=(.*?)%>", value, text)


def job(name: str, **more: Any) -> dict[str, Any]:
    usual = {"job": name, "phase": "queued", "queue": "batch", "predicted_start": None, "expected_start": None}
    return usual | {"why": None} | more


JOBS = [
    job("1", phase="running"),
    job("2", expected_start=NOW + 2400, why="12 jobs ahead of it"),
    job("3", predicted_start=NOW - 5, queue=None),
    job("4", phase="held"),
    job("5"),
    job(HOSTILE, queue=HOSTILE, expected_start=NOW + 200_000),
]


class Portal:
    """Serve the page at `/`, and the service's answer below `/queuecast`."""

    def __init__(self) -> None:
        self.answer: Any = {"user": "ada", "sites": [{"site": "alder", "made_at": NOW, "jobs": JOBS}], "unanswered": []}
        self.status = 200
        self.requests: list[str] = []
        self.url = ""

    def reply(self, request: HttpRequest) -> Answer | None:
        if request.path == "/":
            page = rendered(url="/queuecast", user="ada & co", seconds="1")
            page = f"<!doctype html><meta charset=utf-8><title>ok</title>{page}"
            return Answer(page.encode(), headers={"Content-Type": "text/html"})
        if not request.path.startswith("/queuecast"):
            return Answer()
        self.requests.append(request.path)
        if self.answer is None:
            return None
        return Answer(json.dumps(self.answer).encode(), self.status, {"Content-Type": "application/json"})

    @contextmanager
    def running(self) -> Iterator["Portal"]:
        with answering(self.reply) as url:
            self.url = f"{url}/"
            yield self


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def portal() -> Iterator[Portal]:
    with Portal().running() as found:
        yield found


def test_ondemand_widget_lists_queued_jobs_of_user(browser: Browser, portal: Portal) -> None:
    browser.open(portal.url)
    browser.until(lambda: browser.all("#queuecast li"))
    assert browser.texts("#queuecast li") == [
        "2 (batch) starts in about 40m: 12 jobs ahead of it",
        "3 starts within a minute",
        "4 (batch) is held",
        f"{HOSTILE} ({HOSTILE}) starts in about 2d8h",
    ]
    assert portal.requests == ["/queuecast/v1/users/ada%20%26%20co/jobs"]
    assert browser.run("return document.title") == "ok" and browser.all("#queuecast img") == []


@pytest.mark.parametrize("answer", [{"sites": []}, "no json that it knows", {"detail": "the token is missing"}])
@pytest.mark.parametrize("status", [200, 401, 503])
def test_ondemand_widget_without_jobs_is_hidden(browser: Browser, portal: Portal, answer: object, status: int) -> None:
    portal.answer, portal.status = answer, status
    browser.open(portal.url)
    browser.until(lambda: portal.requests)
    assert browser.run("return document.getElementById('queuecast').hidden")


def test_ondemand_widget_with_hanging_service_times_out(browser: Browser, portal: Portal) -> None:
    portal.answer = None
    began = time.monotonic()
    browser.open(portal.url)
    assert time.monotonic() - began < 20  # the page does not wait for the service
    failed = "return document.getElementById('queuecast').dataset.failed"
    browser.until(lambda: browser.run(failed) == "TimeoutError")
    assert browser.run("return document.getElementById('queuecast').hidden")


def test_ondemand_widget_formats_durations_as_page() -> None:
    written = re.compile(r"function duration\(.*?\n *\}\n(?= *(?:\n|const))", re.DOTALL)
    page = (PARTIAL.parents[2] / "streams/serve/page/scripts/text.js").read_text(encoding="utf-8")
    (here,), (there,) = (written.findall(text) for text in (PARTIAL.read_text(encoding="utf-8"), page))
    assert here.split() == there.split()
