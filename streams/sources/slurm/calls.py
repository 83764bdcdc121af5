"""Slurm queries, with statistics of each call, and the command-line tools. The REST service is in `rest`."""

import os
import re
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from models.durations import duration
from models.records import Limit
from streams.sources.contract import Calls, OnSkipped, SkippedPart
from streams.sources.slurm.json_jobs import JobsDocument, read_jobs
from streams.sources.slurm.machine import read_text
from streams.sources.slurm.sacctmgr_limits import ASSOCIATION_COLUMNS, QOS_COLUMNS
from streams.sources.slurm.text import read_sacct

TIMEOUT_S = 120.0  # timeout of a call in seconds: slurmctld is overloaded or down

ENVIRONMENT = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C.UTF-8", "SLURM_BITSTR_LEN": "0"}
"""Environment of the programs: the format of times, and untruncated lists of array tasks."""

ZONE_S = 900.0  # smallest difference between time zones, seconds
_AS_OF = re.compile(r"Configuration data as of (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")
SEPARATOR = "\x1f"  # separator of sacct's columns, which no name contains

COLUMNS = (
    "JobID JobIDRaw JobName Cluster Partition QOS Account Group User Submit Eligible Start End Restarts TimelimitRaw "
    "NNodes NCPUS ReqCPUS ReqMem ReqTRES AllocTRES NodeList Reservation Constraints Priority Reason SLUID "
    "OriginalSLUID State"
)
"""The requested columns, if this release has them. A name may have line breaks, so it is not the last column."""


_SHOW, _MANAGED = ("scontrol", "--oneliner", "show"), ("sacctmgr", "--noheader", "--parsable2", "show")
_MACHINE = {
    "nodes": (*_SHOW, "node"),
    "partitions": (*_SHOW, "partition"),
    "reservations": (*_SHOW, "reservation"),
    "qos": (*_MANAGED, "qos", f"format={','.join(QOS_COLUMNS)}"),
    "associations": (*_MANAGED, "associations", f"format={','.join(ASSOCIATION_COLUMNS)}"),
}
"""The programs that print the state of the machine."""


class CallFailed(Exception):
    """A call returned no result; `call` is its name."""

    def __init__(self, call: str, why: str) -> None:
        super().__init__(" ".join(why.split())[:300] or "no output")
        self.call = call

    def skipped(self) -> SkippedPart:
        """Return the failure as a skipped part of the input."""
        return SkippedPart(self.call, None, None, str(self), "a response of Slurm")


class SourceClosed(Exception):
    """The source was closed before or during the call, so the call did not fail."""


class SlurmCalls(ABC):
    """Queries to Slurm. Each raises `CallFailed` without a result, and `SourceClosed` after `close`.

    `measured` holds the statistics of the calls.
    """

    def __init__(self, measured: dict[str, Calls]) -> None:
        self.measured = measured
        self._closed = False

    @abstractmethod
    def queue(self, on_skipped: OnSkipped) -> JobsDocument:
        """Return all jobs of slurmctld, in one call."""

    @abstractmethod
    def accounting(self, since: float, on_skipped: OnSkipped) -> JobsDocument:
        """Return all attempts of the jobs that were live after a time (Unix seconds)."""

    @abstractmethod
    def machine(self, what: str) -> Any:
        """Return nodes, partitions (with QOS), reservations (with nodes), or the limits of QOS or associations.

        The format is that of `read_text`.
        """

    def limits(self) -> list[Limit]:
        """The limits of the qualities of service and associations."""
        return [*self.machine("qos"), *self.machine("associations")]

    def close(self) -> None:
        """Stop waiting for calls; one that is running may end in its thread."""
        self._closed = True

    def _measured(self, name: str, call: Callable[[], bytes]) -> bytes:
        if self._closed:
            raise SourceClosed
        made, began = self.measured.setdefault(name, Calls()), time.monotonic()
        try:
            return call()
        except CallFailed:
            if self._closed:
                raise SourceClosed from None
            made.failed += 1
            raise
        finally:
            made.count += 1
            made.last_s = time.monotonic() - began
            made.seconds += made.last_s


def jobs_of(data: bytes, on_skipped: OnSkipped, call: str) -> JobsDocument:
    """Parse the jobs of a response.

    Raises:
        CallFailed: the response is invalid.
    """
    try:
        return read_jobs(data, on_skipped, call)
    except ValueError as error:
        raise CallFailed(call, str(error)) from None


class Commands(SlurmCalls):
    """The tools squeue, sacct, scontrol and sacctmgr, run with UTC times, one at a time."""

    def __init__(self, measured: dict[str, Calls]) -> None:
        super().__init__(measured)
        self._running: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._columns: str | None = None
        self._speaks_utc = False

    def queue(self, on_skipped: OnSkipped) -> JobsDocument:
        """Run `squeue --json`, which lists all jobs of this cluster, including those that ended within MinJobAge."""
        return jobs_of(self.run("squeue", "--local", "--json", "--all", "--states=all"), on_skipped, "squeue")

    def accounting(self, since: float, on_skipped: OnSkipped) -> JobsDocument:
        """Run `sacct` with text output, which is cheaper than its JSON."""
        self._check_zone()
        begin = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        wanted = self._wanted()
        data = self.run(
            *("sacct", "--local", "--allusers", "--allocations", "--duplicates", "--parsable2"),
            f"--delimiter={SEPARATOR}",
            f"--format={wanted}",
            f"--starttime={begin}",
        )
        lines = data.decode("utf-8", "replace").split("\n")
        return JobsDocument(list(read_sacct(lines, on_skipped, "sacct", separator=SEPARATOR)))

    def _check_zone(self) -> None:
        """Check that the programs respect TZ: if another program runs them, such as ssh, the time zone may differ."""
        if self._speaks_utc:
            return
        try:
            found = _AS_OF.search(self._text("scontrol", "show", "config"))
        except CallFailed:  # slurmctld is away: the accounting is there without it
            return
        scheduler_s = datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp() if found else time.time()
        apart_s = round((scheduler_s - time.time()) / ZONE_S) * ZONE_S
        if apart_s:
            why = f"its times differ from UTC by {duration(apart_s)}: the program that runs it must pass on TZ=UTC"
            raise CallFailed("scontrol", why)
        self._speaks_utc = True

    def _wanted(self) -> str:
        if self._columns is None:
            known = set(self.run("sacct", "--helpformat").decode("utf-8", "replace").split())
            self._columns = ",".join(column for column in COLUMNS.split() if column in known)
        return self._columns

    def machine(self, what: str) -> Any:
        """Run `scontrol show` or `sacctmgr show` and parse its output."""
        if what == "reservations":
            self._check_zone()
        return read_text(what, self._text(*_MACHINE[what]))

    def close(self) -> None:
        """Terminate the running program."""
        with self._lock:
            super().close()
            if self._running is not None:
                self._running.send_signal(signal.SIGTERM)

    def _text(self, *words: str) -> str:
        return self.run(*words).decode("utf-8", "replace")

    def run(self, *words: str) -> bytes:
        """Run a program and return its output; its statistics are under its name."""
        return self._measured(words[0], lambda: self._output(words))

    def _output(self, words: tuple[str, ...]) -> bytes:
        environment = os.environ | ENVIRONMENT
        try:
            with self._lock:
                if self._closed:
                    raise SourceClosed
                running = self._running = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
                )
            out, err = running.communicate(timeout=TIMEOUT_S)
        except OSError as error:
            raise CallFailed(words[0], f"cannot be run: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            running.kill()
            running.communicate()
            raise CallFailed(words[0], f"no answer within {TIMEOUT_S:.0f} s") from None
        if running.returncode:
            raise CallFailed(words[0], err.decode("utf-8", "replace") or f"exit code {running.returncode}")
        return out
