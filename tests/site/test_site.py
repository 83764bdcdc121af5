"""The documentation site: it is built, no link is dead, and its reference has all that the code has."""

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
from tests.support.dashboards import FILES, asked


def test_every_command_is_in_the_reference_with_its_options() -> None:
    page = commands()
    for name, command in typer.main.get_group(app).commands.items():
        assert f"## queuecast {name}" in page
        for option in [param.opts[0] for param in command.params if param.opts[0].startswith("--")]:
            assert f"`{option}" in page, (name, option)


def test_every_setting_is_in_the_reference() -> None:
    page = settings()
    for name, section in SECTIONS.items():
        assert f"## {name}\n" in page
        for field in msgspec.structs.fields(section):
            assert f"QUEUECAST_{name}_{field.name}`".upper() in page


def test_no_setting_has_a_secret_by_default() -> None:
    assert re.findall(r"`(?:token|password)` \| `(.+?)`", settings()) == ["none"] * 3


def test_every_record_is_in_the_reference_and_its_links_lead_to_parts_of_the_page() -> None:
    page = records()
    heads = set(re.findall(r"^## (\w+)$", page, re.MULTILINE))
    assert heads == set(schema()["$defs"]) - set(RECORDS)
    assert {name for name, _ in re.findall(r"\[(\w+)\]\(#(\w+)\)", page)} <= heads


def test_every_metric_that_the_dashboards_ask_for_is_in_the_reference() -> None:
    page = metrics()
    exprs = [query.expr for file in FILES for query in asked(file, window="1d", __rate_interval="1m")]
    named = {name for expr in exprs for name in re.findall(r"(?<!:)\bqueuecast_\w+", expr)}
    bases = {re.sub(r"_(sum|count|bucket)$", "", name) for name in named}
    assert not {base for base in bases if f"`{base}`" not in page}


def test_metrics_have_the_labels_that_they_are_made_with() -> None:
    found = {one.name: one.labels for of in metrics_by_process().values() for one in of}
    assert found["queuecast_bound_covered_jobs_total"] == ("site", "method", "jobs", "bound")
    assert found["queuecast_partition_free_gpus"] == ("site", "partition")
    assert found["queuecast_answer_bound_scored_jobs_total"] == ("site", "kind", "bound")
    assert found["queuecast_http_dropped_connections_total"] == ("why",)
    assert found["queuecast_notify_dropped_total"] == ("reason",)
    assert found["queuecast_notify_waiting"] == ()
    assert found["queuecast_source_skipped_total"] == ("source", "site", "reason")


def test_every_public_name_for_programs_is_in_the_reference_with_its_methods() -> None:
    page = python()
    for name in queuecast.__all__:
        assert f"\n## {name}\n" in page
    for client in (queuecast.Client, queuecast.AsyncClient, queuecast.HttpClient):
        for method in (name for name in vars(client) if not name.startswith("_")):
            assert f"\n### {client.__name__}.{method}\n" in page
    assert "- `start_within`: " in page and "**asked: Unpack[JobFields]" in page


def test_links_of_readmes_lead_to_their_pages() -> None:
    def changed(text: str) -> str:
        return with_site_links(text, "deploy/README.md", "howto/deploy.md")

    assert changed("[a](../models/README.md#speed)") == "[a](../reference/methods.md#speed)"
    assert changed("[a](../docs/howto/run.md)") == "[a](run.md)"
    assert changed("[a](compose/compose.yaml)") == "[a](../files/deploy/compose/compose.yaml)"
    assert changed("[a folder](systemd)") == "a folder"
    assert changed("[a](#here) [b](https://x.org/#y)") == "[a](#here) [b](https://x.org/#y)"
    assert changed("```\n[a](systemd)\n```") == "```\n[a](systemd)\n```"
    assert "deploy/compose/compose.yaml" in linked_files()


def test_every_link_within_the_repository_has_its_target() -> None:
    made = {f"docs/{place}" for place in (*REFERENCE, *included())}
    for path in [*READMES, *(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md"))]:
        text = re.sub(r"```.*?```", "", (ROOT / path).read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)", text):
            target = Path(os.path.normpath(Path(path).parent / link))
            assert "://" in link or target.as_posix() in made or (ROOT / target).exists(), f"{path}: {link}"


def test_every_test_that_a_page_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/explanation/failure-modes.md").read_text())
    assert len(named) > 20
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


def test_the_site_is_built_without_a_dead_link_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
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


def test_the_picture_is_what_its_text_says() -> None:
    text = TEXT.read_text(encoding="utf-8")
    assert TEXT.with_suffix(".svg").read_text(encoding="utf-8") == picture(text), "python -m tests.site.picture"
    with pytest.raises(ValueError, match="neither a box nor an arrow between boxes: kafka -> nowhere"):
        picture(f"{text}kafka -> nowhere: nothing\n")
