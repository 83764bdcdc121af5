from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.waits.schedules import Jobs, Live, Schedule, conservative, easy, easy_openings, fcfs, lwf, wait_s

Row = tuple[int, float, float]
POLICIES: dict[str, Schedule] = {"fcfs": fcfs, "lwf": lwf, "easy": easy, "conservative": conservative}

each = pytest.mark.parametrize("policy", POLICIES)


def columns(rows: Sequence[Row]) -> Jobs:
    table = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return Jobs(table[0].astype(np.int64), table[1].copy(), table[2].copy())


def rows(jobs: Jobs) -> list[Row]:
    return list(zip(jobs.cpus.tolist(), jobs.run_s.tolist(), jobs.planned_s.tolist(), strict=True))


def live(cpus: int, running: Sequence[tuple[float, ...]], queued: Sequence[tuple[float, ...]]) -> Live:
    """Return jobs from (cpus, run_s), or (cpus, run_s, planned_s) if these differ."""

    def full(jobs: Sequence[tuple[float, ...]]) -> Jobs:
        return columns([(int(job[0]), job[1], job[-1]) for job in jobs])

    return Live(cpus, full(running), full(queued))


def starts(policy: str, state: Live) -> list[float]:
    found: list[float] = POLICIES[policy](state, True).tolist()
    return found


# Manual schedules. If several jobs can start now, the policy determines which of them start.

BLOCKED_BY_THE_HEAD = live(4, [(3, 10)], [(4, 10), (1, 10), (1, 15), (2, 5)])
LONG_AND_SMALL_AT_THE_END = live(4, [(2, 10)], [(3, 10), (4, 10), (1, 25)])
ENDS_EARLY = live(4, [(2, 5, 20)], [(4, 10), (2, 10), (2, 30)])
NOTHING_RUNS = live(4, [], [(2, 10), (2, 10), (3, 10)])
LEAST_PLANNED = live(2, [(2, 3)], [(2, 5, 9), (1, 8), (2, 4), (1, 8)])


@pytest.mark.parametrize(
    ("policy", "state", "expected"),
    [
        ("fcfs", BLOCKED_BY_THE_HEAD, [10, 20, 20, 20]),
        ("lwf", BLOCKED_BY_THE_HEAD, [25, 0, 10, 10]),
        ("easy", BLOCKED_BY_THE_HEAD, [10, 0, 20, 20]),
        ("conservative", BLOCKED_BY_THE_HEAD, [10, 0, 20, 20]),
        ("fcfs", LONG_AND_SMALL_AT_THE_END, [10, 20, 30]),
        ("easy", LONG_AND_SMALL_AT_THE_END, [10, 25, 0]),  # it delays the second, not the head
        ("conservative", LONG_AND_SMALL_AT_THE_END, [10, 20, 30]),
        # The second starts because the head is expected at 20; without it the head could start at 5
        # (Smith, Taylor and Foster 1999, section 3: actual run times do not give actual waits).
        ("easy", ENDS_EARLY, [10, 0, 20]),
        ("conservative", ENDS_EARLY, [10, 0, 20]),
        ("fcfs", ENDS_EARLY, [5, 15, 15]),
        *((policy, NOTHING_RUNS, [0, 0, 10]) for policy in POLICIES),
        ("lwf", LEAST_PLANNED, [23, 3, 11, 15]),  # three of work 8 in order of submission, and one of 18
    ],
)
def test_policy_starts_equal_manual_schedule(policy: str, state: Live, expected: list[float]) -> None:
    assert starts(policy, state) == expected


# Properties.


@st.composite
def states(draw: st.DrawFn, as_planned: bool = False) -> Live:
    cpus = draw(st.integers(1, 8))
    early = st.just(0) if as_planned else st.integers(0, 6)
    job = st.tuples(st.integers(1, cpus), st.integers(1, 8), early)
    queued = draw(st.lists(job, min_size=1, max_size=10))
    running, used = [], 0
    for shape in draw(st.lists(job, max_size=6)):
        used += shape[0]
        if used <= cpus:
            running.append(shape)

    def planned(jobs: list[tuple[int, int, int]]) -> list[tuple[float, ...]]:
        return [(wide, run_s, run_s + late) for wide, run_s, late in jobs]

    return live(cpus, planned(running), planned(queued))


class Reference:
    """Reference scheduler: second by second, with the free CPUs recounted in each second."""

    def __init__(self, state: Live, choose: "Callable[[Reference], Sequence[int]]") -> None:
        self.cpus = state.cpus
        self.jobs = rows(state.queued)
        self.now = 0
        self.held = rows(state.running)  # (cpus, end, limit)
        self.queue = list(range(len(self.jobs)))
        self.starts: dict[int, int] = {}
        while self.queue:
            self.held = [job for job in self.held if job[1] > self.now]
            for number in choose(self):
                cpus, run_s, planned_s = self.jobs[number]
                self.held.append((cpus, self.now + run_s, self.now + planned_s))
                self.queue.remove(number)
                self.starts[number] = self.now
            self.now += 1

    def free(self, second: int, planned: Sequence[Row]) -> int:
        """Return the planned free CPUs in that second; `planned` are (cpus, start, end) of jobs still to start."""
        used = sum(cpus for cpus, _, limit in self.held if limit > second)
        return self.cpus - used - sum(cpus for cpus, start, end in planned if start <= second < end)

    def earliest(self, number: int, planned: Sequence[Row] = ()) -> int:
        """Return the planned start of the job."""
        cpus, _, planned_s = self.jobs[number]
        start = self.now
        while any(self.free(start + second, planned) < cpus for second in range(int(planned_s))):
            start += 1
        return start

    def in_turn(self, queue: Sequence[int]) -> list[int]:
        """Return the first jobs, as far as they fit."""
        chosen: list[int] = []
        free = self.cpus - sum(cpus for cpus, _, _ in self.held)
        for number in queue:
            free -= self.jobs[number][0]
            if free < 0:
                break
            chosen.append(number)
        return chosen

    def by_work(self) -> list[int]:
        return self.in_turn(sorted(self.queue, key=lambda number: self.jobs[number][0] * self.jobs[number][2]))

    def easy(self) -> list[int]:
        chosen = self.in_turn(self.queue)
        rest = self.queue[len(chosen) :]
        if not rest:
            return chosen
        head, *others = rest
        reserved = self.earliest(head, [self._now(number) for number in chosen])
        for number in others:
            started = [self._now(other) for other in chosen]
            after = self.earliest(head, [*started, self._now(number)])
            if self._fits(number, started) and after == reserved:
                chosen.append(number)
        return chosen

    def conservative(self) -> list[int]:
        planned: list[Row] = []
        chosen = []
        for number in self.queue:
            start = self.earliest(number, planned)
            planned.append((self.jobs[number][0], start, start + self.jobs[number][2]))
            if start == self.now:
                chosen.append(number)
        return chosen

    def _now(self, number: int) -> Row:
        return self.jobs[number][0], self.now, self.now + self.jobs[number][2]

    def _fits(self, number: int, started: Sequence[Row]) -> bool:
        return self.free(self.now, started) >= self.jobs[number][0]


CHOICES: dict[str, Callable[[Reference], Sequence[int]]] = {
    "fcfs": lambda reference: reference.in_turn(reference.queue),
    "lwf": Reference.by_work,
    "easy": Reference.easy,
    "conservative": Reference.conservative,
}


@each
@given(state=states())
def test_policy_starts_equal_the_reference_scheduler(policy: str, state: Live) -> None:
    reference = Reference(state, CHOICES[policy])
    assert starts(policy, state) == [reference.starts[number] for number in range(len(state.queued.cpus))]


def most_used(state: Live, begins: Floats) -> int:
    """Return the maximum number of CPUs in use; jobs that end release theirs first."""
    changes = [(0.0, 1, int(cpus)) for cpus in state.running.cpus]
    changes += [(end, 0, -int(cpus)) for cpus, end in zip(state.running.cpus, state.running.run_s, strict=True)]
    for cpus, begin, run_s in zip(state.queued.cpus, begins, state.queued.run_s, strict=True):
        changes += [(begin, 1, int(cpus)), (begin + run_s, 0, -int(cpus))]
    return int(np.cumsum([change for _, _, change in sorted(changes)]).max())


def busy(seed: int, running: int, queued: int, cpus: int) -> Live:
    dice = np.random.default_rng(seed)

    def jobs(count: int, most: int) -> Jobs:
        run_s = np.ceil(dice.exponential(3000.0, count))
        planned_s = np.ceil(run_s * dice.uniform(1.0, 5.0, count))
        return Jobs(dice.integers(1, most + 1, count), run_s, planned_s)

    return Live(cpus, jobs(running, cpus // running), jobs(queued, cpus))


@each
@given(state=states())
def test_schedule_never_exceeds_the_cpus(policy: str, state: Live) -> None:
    assert most_used(state, POLICIES[policy](state, True)) <= state.cpus


@each
def test_long_queue_does_not_exceed_the_cpus(policy: str) -> None:
    """Conservative backfilling reaches its step limit here."""
    state = busy(1, running=300, queued=300, cpus=1200)
    begins = POLICIES[policy](state, True)
    assert np.isfinite(begins).all()
    assert most_used(state, begins) <= state.cpus


@each
@given(state=states())
def test_last_job_start_is_equal_without_other_starts(policy: str, state: Live) -> None:
    before = [array.copy() for jobs in (state.running, state.queued) for array in jobs]
    assert POLICIES[policy](state, False)[-1] == POLICIES[policy](state, True)[-1]
    after = [array for jobs in (state.running, state.queued) for array in jobs]
    assert all(np.array_equal(was, now) for was, now in zip(before, after, strict=True))


@given(state=states())
def test_fcfs_keeps_the_order_of_arrival(state: Live) -> None:
    assert starts("fcfs", state) == sorted(starts("fcfs", state))


@given(state=states())
def test_lwf_keeps_the_order_of_work(state: Live) -> None:
    work = (state.queued.cpus * state.queued.planned_s).tolist()
    assert [start for _, start in sorted(zip(work, starts("lwf", state), strict=True), key=lambda job: job[0])] == (
        sorted(starts("lwf", state))
    )


def first(state: Live, count: int) -> Live:
    return state._replace(queued=columns(rows(state.queued)[:count]))


@given(state=states(as_planned=True), data=st.data())
def test_conservative_backfilling_delays_no_job_for_a_later_one(state: Live, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(state.queued.cpus)))
    assert starts("conservative", state)[:count] == starts("conservative", first(state, count))


@given(state=states())
def test_easy_starts_the_head_no_later_than_planned(state: Live) -> None:
    alone = first(state, 1)
    promised = alone._replace(running=alone.running._replace(run_s=alone.running.planned_s))
    assert starts("easy", state)[0] <= starts("easy", promised)[0]


@each
@settings(max_examples=30)
@given(state=states())
def test_wait_of_a_new_job_is_its_start_at_the_queue_end(policy: str, state: Live) -> None:
    *others, (cpus, run_s, planned_s) = rows(state.queued)
    before = state._replace(queued=columns(others))
    assert wait_s(POLICIES[policy], before, cpus, run_s, planned_s) == starts(policy, state)[-1]
    assert rows(before.queued) == others


@given(state=states(), cpus=st.integers(1, 40), run_s=st.integers(1, 500), more_s=st.integers(0, 500))
def test_openings_of_each_shape_equal_its_own_schedule(state: Live, cpus: int, run_s: int, more_s: int) -> None:
    alone = wait_s(easy, state, cpus, float(run_s), float(run_s + more_s))
    assert easy_openings(state).first(cpus, float(run_s + more_s)) == alone


def test_openings_of_a_long_queue_equal_the_schedule() -> None:
    state = busy(2, running=200, queued=800, cpus=1000)
    openings = easy_openings(state)
    for cpus, planned_s in ((1, 60.0), (8, 7200.0), (300, 60.0), (999, 90_000.0), (1001, 60.0)):
        assert openings.first(cpus, planned_s) == wait_s(easy, state, cpus, planned_s, planned_s)


@each
def test_job_that_never_fits_never_starts(policy: str) -> None:
    assert starts(policy, live(4, [(3, 10)], [(5, 10)])) == [np.inf]


@each
def test_running_jobs_can_exceed_the_cpus(policy: str) -> None:
    """A site that has lost CPUs."""
    assert starts(policy, live(4, [(3, 10), (3, 20)], [(2, 10), (3, 10)])) == [20, 30]


@each
def test_empty_site_starts_jobs_immediately(policy: str) -> None:
    assert starts(policy, live(4, [], [])) == []
    assert starts(policy, live(4, [], [(4, 10)])) == [0]
