"""Tests of the documentation site: the build, the links, and the generated reference."""

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import typer

import queuecast
from deploy.cli import app
from streams.broker.schema import RECORDS, schema
from streams.settings import SECTIONS
from tests.site.metrics import metrics_by_process
from tests.site.pages import READMES, ROOT, included, linked_files, with_site_links
from tests.site.picture import TEXT, picture
from tests.site.reference import REFERENCE, commands, metrics, python, records, settings
from tests.support.dashboards import FILES, panel_queries


def test_commands_page_lists_all_commands_and_options() -> None:
    page = commands()
    for name, command in typer.main.get_group(app).commands.items():
        assert f"## queuecast {name}" in page
        for option in [param.opts[0] for param in command.params if param.opts[0].startswith("--")]:
            assert f"`{option}" in page, (name, option)


def test_settings_page_lists_all_settings() -> None:
    page = settings()
    for name, section in SECTIONS.items():
        assert f"## {name}\n" in page
        for field in msgspec.structs.fields(section):
            assert f"QUEUECAST_{name}_{field.name}`".upper() in page


def test_settings_page_shows_no_default_secret() -> None:
    assert re.findall(r"`(?:token|password)` \| `(.+?)`", settings()) == ["none"] * 3


def test_records_page_lists_all_records_with_valid_links() -> None:
    page = records()
    heads = set(re.findall(r"^## (\w+)$", page, re.MULTILINE))
    assert heads == set(schema()["$defs"]) - set(RECORDS)
    assert {name for name, _ in re.findall(r"\[(\w+)\]\(#(\w+)\)", page)} <= heads


def test_metrics_page_lists_all_metrics_of_the_dashboards() -> None:
    page = metrics()
    exprs = [query.expr for file in FILES for query in panel_queries(file, window="1d", __rate_interval="1m")]
    named = {name for expr in exprs for name in re.findall(r"(?<!:)\bqueuecast_\w+", expr)}
    bases = {re.sub(r"_(sum|count|bucket)$", "", name) for name in named}
    assert not {base for base in bases if f"`{base}`" not in page}


def test_metrics_page_lists_the_labels() -> None:
    found = {one.name: one.labels for of in metrics_by_process().values() for one in of}
    assert found["queuecast_bound_covered_jobs_total"] == ("site", "method", "jobs", "bound")
    assert found["queuecast_partition_free_gpus"] == ("site", "partition")
    assert found["queuecast_answer_bound_scored_jobs_total"] == ("site", "kind", "bound")
    assert found["queuecast_http_dropped_connections_total"] == ("why",)
    assert found["queuecast_notify_dropped_total"] == ("reason",)
    assert found["queuecast_notify_waiting"] == ()
    assert found["queuecast_source_skipped_total"] == ("source", "site", "reason")


def test_python_page_lists_all_public_names_and_methods() -> None:
    page = python()
    for name in queuecast.__all__:
        assert f"\n## {name}\n" in page
    for client in (queuecast.Client, queuecast.AsyncClient, queuecast.HttpClient):
        for method in (name for name in vars(client) if not name.startswith("_")):
            assert f"\n### {client.__name__}.{method}\n" in page
    assert "- `start_within`: " in page and "**fields: Unpack[JobFields]" in page


def test_links_of_a_readme_point_to_pages_of_the_site() -> None:
    def changed(text: str) -> str:
        return with_site_links(text, "deploy/README.md", "howto/deploy.md")

    assert changed("[a](../models/README.md#speed)") == "[a](../reference/methods.md#speed)"
    assert changed("[a](../docs/howto/run.md)") == "[a](run.md)"
    assert changed("[a](compose/compose.yaml)") == "[a](../files/deploy/compose/compose.yaml)"
    assert changed("[a folder](systemd)") == "a folder"
    assert changed("[a](#here) [b](https://x.org/#y)") == "[a](#here) [b](https://x.org/#y)"
    assert changed("```\n[a](systemd)\n```") == "```\n[a](systemd)\n```"
    assert "deploy/compose/compose.yaml" in linked_files()


def test_relative_links_have_a_target() -> None:
    made = {f"docs/{place}" for place in (*REFERENCE, *included())}
    for path in [*READMES, *(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md"))]:
        text = re.sub(r"```.*?```", "", (ROOT / path).read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)", text):
            target = Path(os.path.normpath(Path(path).parent / link))
            assert "://" in link or target.as_posix() in made or (ROOT / target).exists(), f"{path}: {link}"


def test_failure_modes_page_names_existing_tests() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/explanation/failure-modes.md").read_text())
    assert len(named) > 20
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


def test_build_has_no_dead_link_and_loads_no_remote_file(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    quiet = {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | quiet, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    pages = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("*.html")}
    wanted = {place.replace(".md", ".html") for place in (*REFERENCE, *included())}
    assert wanted <= set(pages)
    loaded = r'<(?:script|img|iframe)[^>]* src="(https?:[^"]+)|<link[^>]* rel="stylesheet"[^>]* href="(https?:[^"]+)'
    assert not [(name, found) for name, text in pages.items() for found in re.findall(loaded, text)]


def test_picture_matches_its_text() -> None:
    text = TEXT.read_text(encoding="utf-8")
    assert TEXT.with_suffix(".svg").read_text(encoding="utf-8") == picture(text), "python -m tests.site.picture"
    with pytest.raises(ValueError, match="neither a box nor an arrow between boxes: kafka -> nowhere"):
        picture(f"{text}kafka -> nowhere: nothing\n")
