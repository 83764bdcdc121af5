"""Drive a Slurm with a workload, and record Slurm's own estimates and the events of queuecast's source."""

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec

from models.records import AnyEvent
from streams.sources.slurm.calls import ENVIRONMENT
from streams.sources.slurm.source import SlurmSource
from tests.benchmarks.slurm.cluster import BenchSlurm
from tests.benchmarks.slurm.parsing import START_FORMAT, pending_starts, test_only_start
from tests.benchmarks.slurm.workload import BenchJob, Workload

SITE = "alder"
STARTS_EVERY_S = 5.0
SOURCE = {"poll": "2s", "accounting": "10s", "machine": "10s", "since": "1h"}
RESERVED_MINUTES = 4
SACCT = ("sacct", "--allusers", "--allocations", "--noheader", "--parsable2")
SACCT_COLUMNS = "JobIDRaw,JobName,User,State,Submit,Eligible,Start,End,TimelimitRaw,NCPUS"


class SubmittedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A submission: when it was made, Slurm's number of the job, and the start that --test-only printed before."""

    name: str
    job: str
    queried_at: float
    test_only: float | None
    test_only_output: str


class StartsPoll(msgspec.Struct, frozen=True, kw_only=True):
    """An output of `squeue --start`: when it was called, and the start and reason by pending job."""

    at: float
    starts: dict[str, tuple[float | None, str]]


class ReceivedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the source, and when it was received."""

    at: float
    event: AnyEvent


class Recorder:
    """Write the recordings of a run to a folder, one JSON object a line."""

    def __init__(self, slurm: BenchSlurm, workload: Workload, directory: Path) -> None:
        self._slurm, self._workload, self._directory = slurm, workload, directory
        self._environment = slurm.environment | ENVIRONMENT
        self._ended = threading.Event()
        self.failures: list[str] = []

    def run(self, drain_s: float) -> None:
        """Submit all jobs, and wait until none is pending, at most `drain_s` after the last submission."""
        (self._directory / "workload.json").write_bytes(msgspec.json.encode(self._workload))
        os.environ.update(self._slurm.environment)  # the source runs the commands in it
        threads = [self._thread(self._follow), self._thread(self._poll_starts)]
        time.sleep(5.0)  # the source sees the empty machine first
        self._submit_all()
        deadline = time.monotonic() + drain_s
        while time.monotonic() < deadline and self._output("squeue", "--noheader", "--states=PENDING", "--format=%i"):
            time.sleep(STARTS_EVERY_S)
        self._ended.set()
        for thread in threads:
            thread.join(timeout=30.0)
        time.sleep(5.0)  # slurmdbd gets the last records
        begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - 86_400))
        truth = self._output(*SACCT, f"--format={SACCT_COLUMNS}", f"--starttime={begin}")
        (self._directory / "sacct.txt").write_text(truth + "\n")

    def _submit_all(self) -> None:
        begin = time.monotonic()
        reserve_at = self._workload.jobs[-1].submit_s * 0.6
        with (self._directory / "submitted.ndjson").open("wb") as file:
            for number, job in enumerate(self._workload.jobs):
                time.sleep(max(begin + job.submit_s - time.monotonic(), 0.0))
                if job.submit_s >= reserve_at:
                    reserve_at = float("inf")
                    starts = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 120.0))
                    self._slurm.reserve(starts, RESERVED_MINUTES)
                self._submit(job, file)
                if number % 50 == 49:
                    late_s = time.monotonic() - begin - job.submit_s
                    print(f"{number + 1} of {len(self._workload.jobs)} jobs, {late_s:.1f} s late", flush=True)

    def _submit(self, job: BenchJob, file: IO[bytes]) -> None:
        words = self._slurm.command(job)
        queried_at = time.time()
        tested = subprocess.run([words[0], "--test-only", *words[1:]], **self._options())
        made = subprocess.run(words, **self._options())
        if made.returncode:
            self.failures.append(f"{job.name}: {made.stderr.strip()}")
            return
        output = tested.stderr.strip()
        start = test_only_start(output)
        row = SubmittedJob(
            name=job.name,
            job=made.stdout.strip().partition(";")[0],
            queried_at=queried_at,
            test_only=start,
            test_only_output="" if start is not None else output,
        )
        _write(file, row)

    def _poll_starts(self) -> None:
        with (self._directory / "starts.ndjson").open("wb") as file:
            while not self._ended.is_set():
                at = time.time()
                text = self._output("squeue", "--start", "--noheader", f"--format={START_FORMAT}")
                _write(file, StartsPoll(at=at, starts=pending_starts(text)))
                self._ended.wait(max(at + STARTS_EVERY_S - time.time(), 0.5))

    def _follow(self) -> None:
        source = SlurmSource("squeue+sacct", SITE, lambda part: self.failures.append(str(part)), **SOURCE)
        with (self._directory / "events.ndjson").open("wb") as file:
            for event, _ in source.events():
                if event is not None:
                    _write(file, ReceivedEvent(at=time.time(), event=event))
                if self._ended.is_set():
                    return

    def _output(self, *words: str) -> str:
        return subprocess.run(words, check=True, **self._options()).stdout.strip()

    def _options(self) -> dict[str, Any]:
        return {"env": self._environment, "capture_output": True, "text": True, "timeout": 120}

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def watched() -> None:
            try:
                work()
            except Exception as error:
                self.failures.append(f"{work.__name__}: {error!r}")
                raise

        thread = threading.Thread(target=watched, daemon=True)
        thread.start()
        return thread


def _write(file: IO[bytes], row: msgspec.Struct) -> None:
    file.write(msgspec.json.encode(row) + b"\n")
    file.flush()
