"""Answers as messages: one that is larger than a message may be is cut, and says by how much."""

from collections.abc import Sequence

import msgspec

from models.records import AnyAnswer, DeadLetter, JobsAnswer, NoAnswer, SiteAnswer
from streams.broker.topics import EVENT_MESSAGE_BYTES

MAX_ANSWER_BYTES = EVENT_MESSAGE_BYTES - (32 << 10)
"""Bytes of the largest answer; what is left of a message is for its key and for Kafka's own fields."""

TOO_LARGE = "too_large"
"""Why an answer is refused that cannot be cut."""

_encode = msgspec.json.Encoder().encode


def encoded(record: AnyAnswer | DeadLetter, most: int = MAX_ANSWER_BYTES) -> bytes:
    """The record as JSON, cut to `most` bytes.

    Of a user's jobs the latest stay, of a queue those that have queued longest; of a site, whose queue goes first, the
    latest weeks and the first queues. `more` counts what was left out.
    """
    value = _encode(record)
    if len(value) <= most or isinstance(record, DeadLetter):
        return value
    value = _encode(_cut(record, len(value) - most))
    if len(value) <= most:
        return value
    detail = f"the answer has {len(value)} bytes; a message takes {most}"
    return _encode(NoAnswer(id=record.id, site=record.site, reason=TOO_LARGE, detail=detail))


def _cut(answer: AnyAnswer, excess: int) -> AnyAnswer:
    """The answer, shorter by at least so many bytes where it has that much to leave out."""
    excess += len(str(1 << 62))  # as `more` may grow
    if isinstance(answer, JobsAnswer):
        left_out, _ = _left_out(answer.jobs, excess)
        return msgspec.structs.replace(answer, jobs=answer.jobs[left_out:], more=answer.more + left_out)
    if not isinstance(answer, SiteAnswer):
        return answer
    jobs, excess = _left_out(answer.queued[::-1], excess)
    weeks, excess = _left_out(answer.weeks, excess)
    queues, _ = _left_out(answer.queues[::-1], excess)
    return msgspec.structs.replace(
        answer,
        queued=answer.queued[: len(answer.queued) - jobs],
        weeks=answer.weeks[weeks:],
        queues=answer.queues[: len(answer.queues) - queues],
        more=answer.more + jobs + weeks + queues,
    )


def _left_out(entries: Sequence[object], excess: int) -> tuple[int, int]:
    """How many entries, from the first, have to go for so many bytes; and the bytes that are still too many."""
    for number, entry in enumerate(entries):
        if excess <= 0:
            return number, excess
        excess -= len(_encode(entry)) + 1
    return len(entries), excess
