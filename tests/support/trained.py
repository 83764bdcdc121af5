"""A method whose models are trained in the background, cheaply, and no sooner than a test lets them."""

import os
import struct
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from models.method import SiteContext, WaitMethod
from models.records import JobKey
from models.site.job import Estimate, Job
from models.site.notes import JobNotes, Pair
from models.waits.boosted.training import Schedule, Training

SCHEDULE = Schedule(first=5, every=20, least=4, most=8)

GATE = "TRAINED_GATE"
"""The variable of the environment that names the file that must exist before a training ends."""

_CPUS = struct.Struct("<I")
_WAIT = struct.Struct("<d")


class Trained(WaitMethod):
    """Predicts the mean wait of jobs of the same size, as of the latest training."""

    name: ClassVar[str] = "trained"

    def __init__(self) -> None:
        self.notes = JobNotes(60, SCHEDULE.behind_rows)
        self.rows = self.notes.rows
        encode, decode = msgspec.msgpack.encode, msgspec.msgpack.Decoder(dict[int, float]).decode
        self.training: Training[dict[int, float]] = Training(self.notes, self.fit, encode, decode, SCHEDULE)

    @staticmethod
    def fit(jobs: Iterable[Pair]) -> dict[int, float]:
        while (gate := os.environ.get(GATE)) and not Path(gate).exists():
            time.sleep(0.01)
        waits: dict[int, list[float]] = {}
        for note, settled in jobs:
            waits.setdefault(_CPUS.unpack(note)[0], []).append(_WAIT.unpack(settled)[0])
        return {cpus: sum(found) / len(found) for cpus, found in waits.items()}

    @property
    def degraded(self) -> str | None:
        return self.training.degraded

    def pending(self) -> Future[Any] | None:
        return self.training.pending()

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        self.notes.note(job.key, _CPUS.pack(job.cpus))
        self.training.step()
        return self._estimate(job)

    def what_ifs(self, jobs: Iterable[Job], context: SiteContext) -> Iterator[Estimate]:
        return map(self._estimate, jobs)  # a question changes no state

    def _estimate(self, job: Job) -> Estimate:
        model = self.training.model or {}
        return Estimate(model[job.cpus], "mean") if job.cpus in model else Estimate(None, "no model")

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        self.notes.settle(job.key, _WAIT.pack(wait_s))
        self.training.step()

    def forget(self, key: JobKey) -> None:
        self.notes.forget(key)

    def save(self) -> bytes:
        return self.training.save()

    def load(self, saved: bytes) -> None:
        self.notes.load()
        self.training.load(saved)
