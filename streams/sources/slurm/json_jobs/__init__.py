"""Rows of what Slurm prints as JSON: `squeue --json`, slurmrestd's `jobs`, `sacct --json`, from release 21.08 to 26.05.

A job of the queue (`queue_job`) and one of the accounting (`accounting_job`) have other fields. Over the releases a
number became an object that says whether it is set, and a state a list of words. One decoder takes each shape, so the
release need not be known.
"""

from collections.abc import Iterable, Iterator

import msgspec

from streams.errors import UNDECODABLE
from streams.sources.contract import OnSkipped, Skipped
from streams.sources.slurm.json_jobs.accounting_job import AccountingJob, row_of_accounting
from streams.sources.slurm.json_jobs.queue_job import QueueJob, row_of_queue
from streams.sources.slurm.rows import JobRow, time_of
from streams.sources.slurm.shapes import Number, number_of


class _Document(msgspec.Struct, gc=False):
    jobs: list[msgspec.Raw]
    last_update: Number = None
    errors: list[msgspec.Raw] = []


class JobsDocument(msgspec.Struct):
    """The jobs of a document, and the scheduler's time of it where it says so."""

    rows: list[JobRow]
    last_update: float | None = None


class BrokenOffError(ValueError):
    """A document that is no whole JSON."""


def read_jobs(data: bytes, on_skipped: OnSkipped, source: str) -> JobsDocument:
    """The rows of a document; 8 µs a job of 6 KB. Which of the two kinds each job is, it tells by itself.

    Parameters:
        source: what `on_skipped` is told: a file, or what was called. The number of a "line" is the job's in it.

    Raises:
        BrokenOffError: it is no whole JSON.
        ValueError: it is no such document, or Slurm's own errors are all that it has.
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
    return JobsDocument(rows, time_of(number_of(document.last_update)))


_DOCUMENT = msgspec.json.Decoder(_Document)
_QUEUE_JOB = msgspec.json.Decoder(QueueJob, strict=False)
_ACCOUNTING_JOB = msgspec.json.Decoder(AccountingJob, strict=False)


def rows_of(jobs: Iterable[bytes], on_skipped: OnSkipped, source: str) -> Iterator[JobRow]:
    """The rows of jobs, one by one; the parameters are those of `read_jobs`.

    Of a document that breaks off for files alone: a look at the queue in which jobs are missing would say that they
    have ended.
    """
    for number, raw in enumerate(jobs, 1):
        try:
            row = _row(raw)
        except UNDECODABLE as error:
            on_skipped(Skipped(source, number, None, " ".join(str(error).split())[:200], "a job as JSON"))
            continue
        if isinstance(row, str):
            on_skipped(Skipped(source, number, row, "not there or not known", _EXPECTED[row]))
        else:
            yield row


_EXPECTED = {
    "job_id": "the number of a job",
    "state": "a state of a job, such as PENDING or COMPLETED",
    "submit_time": "a time",
    "end_time": "a time after the submission, for a job that has ended",
}


def _row(raw: bytes) -> JobRow | str:
    try:
        return _row_of_text(raw)
    except UnicodeDecodeError:  # a name that is no UTF-8 must not cost the job
        return _row_of_text(raw.decode("utf-8", "replace").encode())


def _row_of_text(raw: bytes) -> JobRow | str:
    if b'"job_state"' in raw:
        return row_of_queue(_QUEUE_JOB.decode(raw))
    return row_of_accounting(_ACCOUNTING_JOB.decode(raw))
