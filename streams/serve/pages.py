"""HTML pages: a common frame around each page's content, and the scripts, styles and images they load."""

import re
from collections.abc import Mapping
from html import escape
from mimetypes import guess_type
from pathlib import Path
from string import Template
from typing import Any

import msgspec
from litestar import MediaType, Request, Response, get
from litestar.datastructures import State
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from markdown_it import MarkdownIt

FILES = Path(__file__).parent / "page"
RUNBOOK = Path(__file__).parents[2] / "deploy" / "prometheus" / "RUNBOOK.md"

CHARTS = ('<link rel="stylesheet" href="static/uPlot.min.css">', '<script src="static/uPlot.iife.min.js"></script>')
"""Scripts and styles of pages with charts."""


class Page(msgspec.Struct, frozen=True):
    """The content of a page: its file, title and script, and further elements of its head.

    `skip` is the text of the link that skips the navigation for keyboard users; `item` is the address of the page's
    item in the navigation.
    """

    file: str
    title: str
    script: str
    head: tuple[str, ...] = ()
    skip: str = "Skip to the content"
    item: str | None = None

    def rendered(self) -> bytes:
        """Return the page in its frame."""
        head = (*self.head, f'<script type="module" src="static/{self.script}"></script>')
        content = (FILES / self.file).read_text(encoding="utf-8").rstrip("\n")
        return framed(self.title, content, self.skip, "\n  ".join(head), self.item).encode()


def framed(title: str, content: str, skip: str = "Skip to the content", head: str = "", item: str | None = None) -> str:
    """Wrap the content in the frame of all pages; `item` is the address of its item in the navigation."""
    frame = Template((FILES / "frame.html").read_text(encoding="utf-8"))
    page = frame.substitute(title=title, head=head, skip=skip, content=content)
    return page if item is None else page.replace(f'<a href="{item}">', f'<a href="{item}" aria-current="page">', 1)


PAGES = {
    "/": Page("ask.html", "queuecast", "app.js", skip="Skip to the question", item="./#ask"),
    "/jobs": Page("jobs.html", "My jobs – queuecast", "jobs-page.js", item="jobs"),
    "/job": Page("job.html", "A job – queuecast", "job-page.js", head=CHARTS, item="jobs"),
    "/site": Page("site.html", "A site – queuecast", "site-page.js", head=CHARTS, item="./#sites"),
    "/status": Page("status.html", "Status – queuecast", "status-page.js", item="status"),
    "/http": Page("http.html", "HTTP interface – queuecast", "http-page.js"),
}
"""The pages by their paths."""

ALERTS = "/alerts"  # the path of one more, which the alerts' `runbook_url` names


def rendered_pages() -> dict[str, bytes]:
    """Return the pages as they are sent, by path."""
    return {path: page.rendered() for path, page in PAGES.items()} | {ALERTS: _runbook()}


def _runbook() -> bytes:
    """Render each alert's explanation as a folded section that its anchor opens; links to the repository become plain
    text.
    """
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", RUNBOOK.read_text(encoding="utf-8"))
    head, *alerts = re.split(r"<h2>(\w+)</h2>", MarkdownIt().render(re.sub(r"\n(?=\*\*)", "\n\n", text)))
    folded = (
        f'<details><summary><h2>{name}</h2></summary><div id="{name.lower()}">{text}</div></details>'
        for name, text in zip(alerts[::2], alerts[1::2], strict=True)
    )
    content = f'    <section class="prose">{head}{"".join(folded)}</section>'
    return framed("When an alert comes – queuecast", content, "Skip to the alerts").encode()


def problem_page(path: str, status: int, detail: str) -> bytes:
    """Render an error as a page for browsers."""
    title = "There is no such page" if status == 404 else "That did not work"
    text = escape("The pages are named above." if status == 404 else detail)
    content = f'    <section id="problem"><h1>{title}</h1>\n      <p>{text}</p></section>'
    up = "../" * (path.count("/") - 1) or "./"
    return re.sub(r'(href|src)="(?!#)(?:\./)?', rf'\1="{up}', framed(f"{title} – queuecast", content)).encode()


def static_files() -> dict[str, bytes]:
    """Return the scripts, styles and images by their unique names."""
    return {file.name: file.read_bytes() for file in FILES.rglob("*.*") if file.suffix != ".html"}


@get([*PAGES, ALERTS], include_in_schema=False, media_type=MediaType.HTML)
async def page(state: State, request: Request[Any, Any, State]) -> bytes:
    """A page."""
    pages: Mapping[str, bytes] = state.pages
    return pages[request.scope["path_template"]]


@get("/static/{name:str}", include_in_schema=False)
async def static(name: FromPath[str], state: State) -> Response[bytes]:
    """A script, a style or an image of the pages."""
    files: Mapping[str, bytes] = state.static_files
    if name not in files:
        raise NotFoundException(detail="there is no such file")
    return Response(files[name], media_type=guess_type(name)[0] or "application/octet-stream")
