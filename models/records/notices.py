"""What people and programs are told of jobs that queue."""

from typing import Literal

import msgspec

from models.records.fields import VERSION, Version


class Notice(msgspec.Struct, kw_only=True, frozen=True):
    """Something about a queued job that whoever waits for it should know.

    `about_to_start`: it is expected to start soon. `slipped`: it is expected to start, or has not started, after the
    time that was told before as the latest (with a probability of 0.9). `sooner`: what was left to wait has halved.

    A notice comes at least once; repeats have the same `id`. `name` is that of the process that tells it. Times are
    Unix seconds: `at` is the site's, `expected_start` and `latest` are what is expected now, `expected_before` is what
    was told before, `estimated_at` is when the estimate was made. `undelivered` says why the webhook did not take it.
    """

    v: Version = VERSION
    id: str
    name: str
    kind: Literal["about_to_start", "slipped", "sooner"]
    site: str
    job: str
    attempt: int
    user: str | None = None
    at: float
    expected_start: float
    latest: float | None
    expected_before: float
    estimated_at: float
    text: str
    undelivered: str | None = None
