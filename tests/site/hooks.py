"""What mkdocs calls while it builds the site."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tests.site.pages import DOCS, ROOT, included, linked_files, with_site_links
from tests.site.reference import REFERENCE

WORKER = "assets/worker.js"
"""What lets a page be searched that is read from a disk; the theme would load another script from elsewhere."""

ELSEWHERE = re.compile(r'src="https://[^"]*/iframe-worker/shim"')


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Load no script from elsewhere."""
    return ELSEWHERE.sub(f'src="{"../" * page.url.count("/")}{WORKER}"', output)


def on_post_template(output_content: str, **_: Any) -> str:
    """The same of what is no page, such as 404.html."""
    return ELSEWHERE.sub(f'src="{WORKER}"', output_content)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the READMEs, the reference, and the files of the repository that pages link to."""
    pages = included() | {place: make() for place, make in REFERENCE.items()}
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    files.append(File.generated(config, WORKER, abs_src_path=str(Path(__file__).with_name("worker.js"))))
    for path in linked_files():
        files.append(File.generated(config, f"files/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let links that leave `docs` lead to the pages that stand for their targets; the READMEs' do already."""
    if page.file.generated_by:
        return markdown
    return with_site_links(markdown, f"{DOCS}/{page.file.src_uri}", page.file.src_uri)
