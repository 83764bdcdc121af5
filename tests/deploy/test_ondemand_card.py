"""The line on the card of a session of Open OnDemand, by Ruby itself, on a service that answers, fails or hangs."""

import os
import shutil
import subprocess
import time
from html import escape

import pytest

from tests.deploy.test_ondemand_widget import PARTIAL, Portal

CARD = PARTIAL.with_name("_expected_time.html.erb")
RENDER = """
require "erb"
Info, Session = Struct.new(:dispatch_time), Struct.new(:queued?, :cluster_id, :job_id, :info)
session = Session.new(ARGV[1] == "queued", "ro ss/ä", "4711", Info.new(ARGV[2] && ARGV[2].to_i))
puts ERB.new(File.read(ARGV[0], encoding: "utf-8"), trim_mode: "-").result_with_hash(session: session)
"""
TEXT = "starts in about 12m, 90 % within 40m; 3 jobs ahead <b>"


def card(service: str, *session: str) -> str:
    """What stands on the card; `session` is its phase, and when Slurm expects it (Unix seconds)."""
    ruby = shutil.which("ruby")
    if ruby is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("ruby is not installed")
    environment = os.environ | {"QUEUECAST_SERVICE": service, "QUEUECAST_TOKEN": "t", "TZ": "UTC", "LANG": "C.UTF-8"}
    command = [ruby, "-e", RENDER, str(CARD), *session]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def place(portal: Portal) -> str:
    return f"{portal.url}queuecast"


def test_a_session_that_queues_says_when_it_starts() -> None:
    with Portal().running() as portal:
        portal.answer = {"text": TEXT}
        assert card(place(portal), "queued") == f"<p><strong>Queue:</strong> {escape(TEXT)}</p>"
        assert portal.asked == ["/queuecast/v1/sites/ro%20ss%2F%C3%A4/jobs/4711"]
        assert card(place(portal), "running") == "" and len(portal.asked) == 1


@pytest.mark.parametrize(("answer", "status"), [({"detail": "no such job"}, 404), ("no object", 200), ([], 503)])
def test_without_an_answer_it_says_what_slurm_expects(answer: object, status: int) -> None:
    with Portal().running() as portal:
        portal.answer, portal.status = answer, status
        assert card(place(portal), "queued") == ""
        assert "expected to start at 1996-06-26 21:06 UTC" in card(place(portal), "queued", "835823160")


def test_a_service_that_hangs_or_is_away_is_given_up() -> None:
    with Portal().running() as portal:
        portal.answer = None
        began = time.monotonic()
        assert card(place(portal), "queued") == ""
        assert time.monotonic() - began < 20
    assert card("http://127.0.0.1:1", "queued") == card("no address", "queued") == ""
