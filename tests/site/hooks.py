"""Hooks of mkdocs for the build of the site."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tests.site.pages import DOCS, ROOT, included, linked_files, with_site_links
from tests.site.reference import REFERENCE

WORKER = "assets/worker.js"
"""Script for the search without a web server; the theme would load a remote one."""

ELSEWHERE = re.compile(r'src="https://[^"]*/iframe-worker/shim"')


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Replace the remote script of a page."""
    return ELSEWHERE.sub(f'src="{"../" * page.url.count("/")}{WORKER}"', output)


def on_post_template(output_content: str, **_: Any) -> str:
    """Replace the remote script of a template, such as 404.html."""
    return ELSEWHERE.sub(f'src="{WORKER}"', output_content)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the READMEs, the generated reference, and the linked files of the repository."""
    pages = included() | {place: make() for place, make in REFERENCE.items()}
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    files.append(File.generated(config, WORKER, abs_src_path=str(Path(__file__).with_name("worker.js"))))
    for path in linked_files():
        files.append(File.generated(config, f"files/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Change links that leave `docs` into links of the site; those of the READMEs are changed already."""
    if page.file.generated_by:
        return markdown
    return with_site_links(markdown, f"{DOCS}/{page.file.src_uri}", page.file.src_uri)
