"""Methods that are stored and taken back, as an engine does it."""

from typing import Any, TypeVar

from models.method import Method

M = TypeVar("M", bound=Method)


def kept_by(method: Method) -> tuple[bytes, dict[Any, bytes]]:
    """All that a method would have stored but for its rows."""
    per_job = method.per_job
    return method.save(), {} if per_job is None else {key: per_job.encoded(key) for key in per_job}


def taken_back(method: Method, other: M) -> M:
    """Give the other one what a method has stored."""
    saved, per_job = kept_by(method)
    for key, value in per_job.items():
        assert other.per_job is not None
        other.per_job.restore(key, value)
    if method.rows is not None and other.rows is not None:
        other.rows.restore(method.rows.numbered, method.rows.count, method.rows.oldest)
    other.load(saved)
    return other
