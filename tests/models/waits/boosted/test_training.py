"""A model is used from the same event on, for any end of its training and any restarts."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.site.notes import JobNotes, Pair
from models.trainer import SynchronousTrainer, Work
from models.waits.boosted import training
from models.waits.boosted.training import Schedule, Training

T = TypeVar("T")

SMALL = Schedule(first=4, every=10, share=0.5, least=3, most=6)
DEPTH = 40


def summary(jobs: Iterable[Pair]) -> str:
    return " ".join(f"{note.decode()}:{wait.decode()}" for note, wait in jobs)


class Method:
    """Record a note at submission and train on the notes."""

    def __init__(self, fit: Callable[[Iterable[Pair]], str] = summary, schedule: Schedule = SMALL) -> None:
        self.notes = JobNotes(DEPTH, schedule.behind_rows)
        self.training = Training(self.notes, fit, str.encode, bytes.decode, schedule)

    def submit(self, job: int) -> None:
        self.notes.note((str(job), 0), str(job).encode())
        self.training.step()

    def start(self, job: int) -> None:
        self.notes.settle((str(job), 0), b"w%d" % job)
        self.training.step()

    def restarted(self, fit: Callable[[Iterable[Pair]], str] = summary, without: bytes | None = None) -> "Method":
        again = Method(fit)
        rows = [row for row in self.notes.rows.numbered if without is None or without not in row.value]
        first = self.notes.count - len(rows)
        again.notes.rows.restore(
            [type(row)(first + n, row.value) for n, row in enumerate(rows)], self.notes.count, first
        )
        again.notes.load()
        again.training.load(self.training.save())
        return again


def run(method: Method, jobs: range) -> None:
    for job in jobs:
        method.submit(job)
        method.start(job)


STEPS = st.lists(st.tuples(st.sampled_from(["submit", "start", "restart"]), st.integers(0, 5)), max_size=300)


@given(STEPS)
def test_training_is_equal_after_restarts(steps: list[tuple[str, int]]) -> None:
    method, steady = Method(), Method()
    queued: list[int] = []
    for number, (what, which) in enumerate(steps):
        if what == "submit":
            queued.append(number)
            for one in (method, steady):
                one.submit(number)
        elif what == "start" and queued:
            job = queued.pop(which % len(queued))
            for one in (method, steady):
                one.start(job)
        elif what == "restart":
            method = method.restarted()
        assert method.training.model == steady.training.model
        assert method.notes.rows.numbered == steady.notes.rows.numbered
        assert method.training.save() == steady.training.save()


def test_model_contains_the_jobs_known_at_its_training_start() -> None:
    method = Method()
    models: dict[int, str | None] = {}
    for job in range(60):
        run(method, range(job, job + 1))
        models[job] = method.training.model
    changed = [job for job in range(1, 60) if models[job] != models[job - 1]]
    assert models[0] is None and len(changed) >= 4
    for job in changed:
        last = int((models[job] or "").split(":w")[-1])
        assert job - 7 <= last <= job - 3
    assert DEPTH // 2 - 3 <= len((models[59] or "").split()) <= DEPTH // 2  # earlier models use rows too


def test_schedule_grows_by_half_up_to_a_limit() -> None:
    schedule = Schedule()
    begun = [200]
    while begun[-1] < 40_000:
        begun.append(begun[-1] + schedule.interval(begun[-1]))
    assert begun[:4] == [200, 300, 450, 675]
    assert begun[-1] - begun[-2] == 6000
    assert [schedule.delay(rows) for rows in (200, 4000, 100_000)] == [40, 200, 600]
    assert max(schedule.delay(rows) for rows in range(1, 100_000, 7)) < schedule.behind_rows


def gated(gate: threading.Event) -> Callable[[Iterable[Pair]], str]:
    def fit(jobs: Iterable[Pair]) -> str:
        assert gate.wait(60)
        return summary(jobs)

    return fit


def test_pending_training_is_reported_before_a_blocked_event() -> None:
    gate, steady = threading.Event(), Method()
    method = Method(gated(gate))
    job = 0
    while (pending := method.training.pending()) is None:
        run(method, range(job, job + 1))
        run(steady, range(job, job + 1))
        job += 1
    assert method.training.model is None and not pending.done()
    gate.set()
    pending.result(60)
    assert method.training.pending() is None
    for _ in range(20):
        run(method, range(job, job + 1))
        run(steady, range(job, job + 1))
        job += 1
        assert method.training.model == steady.training.model
    assert method.training.model is not None


class Recorder(SynchronousTrainer):
    """Train in the calling thread and record the owner of each training."""

    def __init__(self) -> None:
        super().__init__()
        self.owners: list[object] = []

    def begin(
        self, work: Work, items: Iterable[bytes], then: Callable[[bytes], T], first: bool, owner: object = None
    ) -> Future[T]:
        self.owners.append(owner)
        return super().begin(work, items, then, first, owner)


def test_trainings_of_a_method_share_their_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr(training, "trainer", lambda: recorder)
    methods = Method(), Method()
    for method in methods:
        run(method, range(20))
    assert len(recorder.owners) > 2 and [*dict.fromkeys(map(id, recorder.owners))] == [id(m.notes) for m in methods]


def test_training_failure_keeps_the_previous_model(caplog: pytest.LogCaptureFixture) -> None:
    def last(model: str | None) -> int:
        return int((model or ":w-1").split(":w")[-1])

    def fit(jobs: Iterable[Pair]) -> str:
        found = summary(jobs)
        if 20 <= last(found) < 30:
            raise ValueError("no such model")
        return found

    method = Method(fit)
    counted = set()
    for job in range(60):
        run(method, range(job, job + 1))
        counted.add(last(method.training.model))
    assert "no such model" in caplog.text
    assert any(10 < one < 20 for one in counted) and not any(20 <= one < 30 for one in counted) and max(counted) > 40


def test_lost_model_is_retrained_immediately() -> None:
    method = Method()
    run(method, range(30))
    model = method.training.model
    assert model is not None
    again = method.restarted(without=model.encode())
    assert again.training.degraded and again.training.model is None
    twice = again.restarted()
    for job in range(30, 36):
        for one in (again, twice):
            run(one, range(job, job + 1))
        assert again.training.model == twice.training.model and again.training.degraded == twice.training.degraded
    assert not again.training.degraded and again.training.model is not None


def test_undecodable_model_counts_as_lost() -> None:
    method = Method()
    run(method, range(30))

    def refuse(stored: bytes) -> str:
        if stored == (method.training.model or "").encode():
            raise ValueError("of other features")
        return stored.decode()

    again = Method()
    again.training = Training(again.notes, summary, str.encode, refuse, SMALL)
    again.notes.rows.restore(method.notes.rows.numbered, method.notes.count, method.notes.rows.oldest)
    again.notes.load()
    again.training.load(method.training.save())
    assert again.training.degraded
    run(again, range(30, 40))
    assert not again.training.degraded


def test_training_load_rejects_invalid_state() -> None:
    with pytest.raises(ValueError, match="not a training"):
        Method().training.load(b"x")
    with pytest.raises(ValueError, match="rows behind"):
        Training(JobNotes(10), summary, str.encode, bytes.decode)
