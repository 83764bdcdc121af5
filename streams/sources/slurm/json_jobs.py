"""Rows from Slurm's JSON: `squeue --json`, slurmrestd's `jobs`, `sacct --json`, from release 21.08 to 26.05.

A job of the accounting has other fields than one of the queue. Over the releases a number became an object with a flag
that it is set, and a state a list of words. One decoder accepts each shape, so the release need not be stated.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from streams.errors import UNDECODABLE
from streams.sources.contract import OnSkipped, SkippedPart
from streams.sources.logs.fields import by_name
from streams.sources.slurm import any_release, attempt_fields
from streams.sources.slurm.attempt_rows import JobRow


class _Document(msgspec.Struct, gc=False):
    jobs: list[msgspec.Raw]
    last_update: any_release.Number = None
    errors: list[msgspec.Raw] = []


_PLACES = {
    field: tuple(place.split("."))
    for field, place in by_name(
        "job_state:state.current submit_time:time.submission eligible_time:time.eligible start_time:time.start"
        " end_time:time.end elapsed:time.elapsed time_limit:time.limit array_job_id:array.job_id"
        " array_task_id:array.task_id array_task_string:array.task het_job_id:het.job_id required_cpus:required.CPUs"
        " state_reason:state.reason user_name:user group_name:group node_count:allocation_nodes features:constraints"
        " job_id restart_cnt cluster account partition qos name nodes priority hold sluid"
        " original_sluid"
    ).items()
}
"""Paths of the fields of `AttemptFields` in a job."""

_PARTS = {place[0] for place in _PLACES.values()} | {"reservation", "tres"}
AccountingJob = msgspec.defstruct("AccountingJob", [(name, Any, None) for name in sorted(_PARTS)], gc=False)
"""The fields of a job that are read, unconverted."""


def row_of_accounting(job: Any) -> JobRow | str:
    """Return the row of a job in the format of sacct and slurmdbd, or the name of the wrong field.

    Raises:
        ValidationError: it is not such a job.
    """
    attempt = msgspec.convert(
        {field: _inside(job, place) for field, place in _PLACES.items()}, attempt_fields.AttemptFields, strict=False
    )
    attempt.nodes = attempt.nodes or ""
    reservation = _inside(job, ("reservation", "name"))
    attempt.resv_name = reservation if isinstance(reservation, str) else None
    requested, allocated = (_inside(job, ("tres", what)) for what in ("requested", "allocated"))
    attempt.tres_req_str, attempt.tres_alloc_str = any_release.text_of(requested), any_release.text_of(allocated)
    return attempt_fields.row_of(attempt)


def _inside(job: Any, place: tuple[str, ...]) -> Any:
    found = getattr(job, place[0])
    for name in place[1:]:
        found = found.get(name) if isinstance(found, dict) else None
    return found


class JobsDocument(msgspec.Struct):
    """The jobs of a document, and the scheduler's time of it if it is stated."""

    rows: list[JobRow]
    last_update: float | None = None


class BrokenOffError(ValueError):
    """A document that is no whole JSON."""


def read_jobs(data: bytes, on_skipped: OnSkipped, source: str) -> JobsDocument:
    """Parse the rows of a document; the kind of each job is detected from its fields.

    Args:
        data: the document.
        on_skipped: receives each skipped job; its "line" is the number of the job in the document.
        source: the file or call, for messages.

    Raises:
        BrokenOffError: the JSON is incomplete.
        ValueError: it is not such a document, or it contains only errors of Slurm.
    """
    try:
        document = _DOCUMENT.decode(data)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except UNDECODABLE as error:
        raise BrokenOffError(str(error)) from None
    if document.errors and not document.jobs:
        raise ValueError(bytes(document.errors[0]).decode("utf-8", "replace"))
    rows = list(rows_of(map(bytes, document.jobs), on_skipped, source))
    return JobsDocument(rows, any_release.json_time(document.last_update))


_DOCUMENT = msgspec.json.Decoder(_Document)
_QUEUE_JOB = msgspec.json.Decoder(attempt_fields.AttemptFields, strict=False)
_ACCOUNTING_JOB = msgspec.json.Decoder(AccountingJob)


def rows_of(jobs: Iterable[bytes], on_skipped: OnSkipped, source: str) -> Iterator[JobRow]:
    """Yield the rows of jobs, one by one; the parameters are those of `read_jobs`.

    A truncated document is accepted for files only: in a poll of the queue, missing jobs would count as ended.
    """
    for number, raw in enumerate(jobs, 1):
        try:
            row = _row(raw)
        except UNDECODABLE as error:
            on_skipped(SkippedPart(source, number, None, " ".join(str(error).split())[:200], "a job as JSON"))
            continue
        if isinstance(row, str):
            on_skipped(
                SkippedPart(
                    source,
                    number,
                    "state" if row == "job_state" else row,
                    "missing or invalid",
                    attempt_fields.EXPECTED[row],
                )
            )
        else:
            yield row


def _row(raw: bytes) -> JobRow | str:
    try:
        return _row_of_text(raw)
    except UnicodeDecodeError:  # a name that is no UTF-8 must not cost the job
        return _row_of_text(raw.decode("utf-8", "replace").encode())


def _row_of_text(raw: bytes) -> JobRow | str:
    if b'"job_state"' not in raw:
        return row_of_accounting(_ACCOUNTING_JOB.decode(raw))
    job = _QUEUE_JOB.decode(raw)
    if job.array_job_id is not None and not job.array_task_string and "PENDING" in any_release.words_of(job.job_state):
        array, task = any_release.number_of(job.array_job_id), any_release.number_of(job.array_task_id)
        if task is not None and array == any_release.number_of(
            job.job_id
        ):  # the last task of an array is what is left of its row
            job.array_task_string = f"{int(task)}"
    return attempt_fields.row_of(job, queue=True)


MAX_BYTES = 16 << 20  # what stands before, between and after the jobs, and a job itself, are not longer
_JOBS = re.compile(r'"jobs"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*+")
_decode = json.JSONDecoder(strict=False).raw_decode


class JobsInTurn:
    """Yield each complete job of a document that arrives in parts, as JSON.

    `jobs` is the number yielded; `end` (bytes) and `lines` are the complete part; `is_whole` is True if the document
    ends there.
    """

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = iter(parts)
        self._text, self._place = "", 0  # a character is a byte, whatever it is: JSON's own are ASCII
        self._before, self._lines_before = 0, 0
        self.jobs = 0
        self.is_whole = False

    @property
    def end(self) -> int:
        """See above."""
        return self._before + self._place

    @property
    def lines(self) -> int:
        """See above."""
        return self._lines_before + self._text.count("\n", 0, self._place)

    def __iter__(self) -> Iterator[bytes]:
        while (started := _JOBS.search(self._text)) is None:
            if not self._grow():
                self._place = len(self._text)
                return
        self._place = started.end()
        while (job := self._next()) is not None:
            self.jobs += 1
            yield job
        self.is_whole = self._ends()

    def _next(self) -> bytes | None:
        """Return the next job; None if no further one is complete."""
        while True:
            found = _BETWEEN.match(self._text, self._place)
            assert found is not None  # nothing matches too
            self._place = found.end()
            if self._place < len(self._text) or not self._grow():
                break
        while self._text.startswith("{", self._place):
            try:
                _, end = _decode(self._text, self._place)
            except (ValueError, RecursionError):
                if self._grow():
                    continue
                return None
            begin, self._place = self._place, end
            return self._text[begin:end].encode("latin-1")
        return None

    def _ends(self) -> bool:
        """Check if the text after the jobs is the end of a document."""
        while self._grow():
            pass
        try:
            msgspec.json.decode(f'{{"jobs":[{self._text[self._place :]}'.encode("latin-1"))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return True

    def _grow(self) -> bool:
        """Read on, unless there is nothing more, or too much that nothing was found in."""
        if len(self._text) - self._place > MAX_BYTES or (part := next(self._parts, None)) is None:
            return False
        self._before, self._lines_before = self.end, self.lines
        self._text, self._place = self._text[self._place :] + part.decode("latin-1"), 0
        return True
