"""Line on the session card of Open OnDemand, rendered by Ruby, with a service that answers, fails or hangs."""

import os
import shutil
import socket
import subprocess
import threading
import time
from contextlib import suppress
from html import escape

import pytest

from tests.deploy.test_ondemand_widget import PARTIAL, Portal

CARD = PARTIAL.with_name("_expected_time.html.erb")
RENDER = """
require "erb"
Info, Session = Struct.new(:dispatch_time), Struct.new(:queued?, :cluster_id, :job_id, :info)
session = Session.new(ARGV[1] == "queued", "ro ss/\\u00e4", "4711", Info.new(ARGV[2] && ARGV[2].to_i))
card = File.read(ARGV[0], encoding: "utf-8").sub("timeout(0.5)", "timeout(#{ENV["PATIENCE_S"]})")
puts ERB.new(card, trim_mode: "-").result_with_hash(session: session)
"""
TEXT = "starts in about 12m, 90 % within 40m; 3 jobs ahead <b>"


def card(service: str, *session: str, patience_s: float = 60) -> str:
    """Return the text of the card; `session` is its phase and Slurm's expected start (Unix seconds)."""
    ruby = shutil.which("ruby")
    if ruby is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("ruby is not installed")
    environment = os.environ | {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PATIENCE_S": str(patience_s)}
    environment |= {"QUEUECAST_SERVICE": service, "QUEUECAST_SERVE_TOKEN": "t"}
    command = [ruby, "-e", RENDER, str(CARD), *session]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def place(portal: Portal) -> str:
    return f"{portal.url}queuecast"


def test_ondemand_card_of_queued_session_shows_expected_start() -> None:
    with Portal().running() as portal:
        portal.answer = {"text": TEXT}
        assert card(place(portal), "queued") == f"<p><strong>Queue:</strong> {escape(TEXT)}</p>"
        assert portal.requests == ["/queuecast/v1/sites/ro%20ss%2F%C3%A4/jobs/4711"]
        assert card(place(portal), "running") == "" and len(portal.requests) == 1


@pytest.mark.parametrize(("answer", "status"), [({"detail": "no such job"}, 404), ("no object", 200), ([], 503)])
def test_ondemand_card_without_answer_shows_slurm_estimate(answer: object, status: int) -> None:
    with Portal().running() as portal:
        portal.answer, portal.status = answer, status
        assert card(place(portal), "queued") == ""
        assert "expected to start at 1996-06-26 21:06 UTC" in card(place(portal), "queued", "835823160")


def drip(server: socket.socket) -> None:
    """Answer a byte at a time."""
    connection, _ = server.accept()
    with connection, suppress(OSError):
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + b" " * 9000:
            connection.sendall(bytes([byte]))
            time.sleep(0.2)


def test_ondemand_card_without_timely_service_is_empty() -> None:
    with Portal().running() as portal:
        portal.answer = None
        assert card(place(portal), "queued", patience_s=0.5) == ""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=drip, args=[server], daemon=True).start()
        began = time.monotonic()
        assert card(f"http://127.0.0.1:{server.getsockname()[1]}", "queued", patience_s=0.5) == ""
        assert time.monotonic() - began < 60
    assert card("http://127.0.0.1:1", "queued") == card("no address", "queued") == ""
