"""Web pages in their common frame, with scripts, styles and images."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from litestar.testing import TestClient

from streams.serve.pages import FILES, PAGES
from streams.worker.answers import answer_scores
from tests.support.fake_client import TOKEN, FakeClient, app_of

Client = TestClient[Any]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with TestClient(app_of(FakeClient(), token=TOKEN)) as found:
        yield found


class Elements(HTMLParser):
    """Start tags of a page with their attributes, and the text of its title."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.title = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.all and self.all[-1][0] == "title":
            self.title += data.strip()

    def values(self, attribute: str) -> list[str]:
        return [value for _, found in self.all if (value := found.get(attribute)) is not None]


@pytest.mark.parametrize("path", PAGES)
def test_page_has_complete_frame(client: Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    found = Elements(answer.text)
    tags = [tag for tag, _ in found.all]
    for once in ("html", "head", "title", "body", "header", "nav", "main", "h1", "footer"):
        assert tags.count(once) == 1, once
    assert found.title == PAGES[path].title
    ids = found.values("id")
    assert len(ids) == len(set(ids)) and {"main", "token", "token-value"} <= set(ids)
    assert not re.search(r"\$\w", answer.text)


def test_alert_runbook_links_have_anchors_on_alerts_page(client: Client) -> None:
    rules = (FILES.parents[2] / "deploy" / "prometheus" / "alerts.yaml").read_text(encoding="utf-8")
    links = re.findall(r"runbook_url: http://127.0.0.1:6067/(\S+)#(\S+)", rules)
    assert len(links) == rules.count("- alert:") and {path for path, _ in links} == {"alerts"}
    found = Elements(client.get("/alerts").text)
    assert [tag for tag, _ in found.all].count("h1") == 1
    assert {anchor for _, anchor in links} <= set(found.values("id"))
    assert not [link for link in found.values("href") if link.endswith((".md", ".yaml"))]


@pytest.mark.parametrize("path", PAGES)
def test_page_links_and_resources_exist(client: Client, path: str) -> None:
    found = Elements(client.get(path).text)
    for link in {*found.values("src"), *found.values("href")} - {"#main"}:
        assert client.get(f"/{link.removeprefix('./').partition('#')[0]}").status_code == 200, link


def test_static_script_is_served(client: Client) -> None:
    answer = client.get("/static/app.js")
    assert "javascript" in answer.headers["content-type"]
    assert answer.content == (FILES / "scripts" / "app.js").read_bytes()


@pytest.mark.parametrize("kind", ["expected", "what-if", answer_scores.GRID, answer_scores.QUERY])
def test_site_script_has_label_of_each_answer_kind(kind: str) -> None:
    labels = re.search(r"const KINDS = \{\n(.*?)\n\};", (FILES / "scripts" / "site.js").read_text("utf-8"), re.DOTALL)
    assert labels and kind in re.findall(r'^ *"?([\w-]+)"?: "', labels[1], re.MULTILINE)


@pytest.mark.parametrize("path", ["/frame", "/ask", "/index.html", "/page/ask.html"])
def test_unknown_page_returns_404(client: Client, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    "name", ["none.js", "frame.html", "ask.html", "..%2Fpages.py", "%2e%2e/pages.py", "../pages.py", "scripts/app.js"]
)
def test_static_path_of_other_file_returns_404(client: Client, name: str) -> None:
    assert client.get(f"/static/{name}").status_code == 404
