import random
from collections import OrderedDict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.runs import Category, Run, RunHistory, categories_of, cpus_range
from models.state import Job


def make(
    user: str | None = "ada",
    executable: str | None = None,
    queue: str | None = None,
    cpus: int = 4,
    walltime: float | None = None,
) -> Job:
    return Job(
        id="1", attempt=0, submit=0.0, user=user, executable=executable, queue=queue, cpus=cpus, walltime=walltime
    )


def random_job(dice: random.Random) -> Job:
    return make(
        user=dice.choice([None, f"u{dice.randrange(12)}"]),
        executable=dice.choice([None, "namd", "wrf"]),
        queue=dice.choice([None, "batch", "long"]),
        cpus=dice.randint(1, 64),
        walltime=dice.choice([None, 0.0, 60.0, 3600.0]),
    )


class Listed:
    """The same bounds kept the plain way: each category a list that forgets, in the order of who is next to go."""

    def __init__(self, depth: int, breadth: int) -> None:
        self.depth, self.breadth = depth, breadth
        self.categories: OrderedDict[Category, deque[Run]] = OrderedDict()

    def learn(self, runs: list[Run]) -> None:
        for run in runs:
            if run.category not in self.categories and len(self.categories) == self.breadth:
                self.categories.popitem(last=False)
            self.categories.setdefault(run.category, deque(maxlen=self.depth)).append(run)
            self.categories.move_to_end(run.category)


def assert_same(history: RunHistory, other: RunHistory | Listed) -> None:
    assert [*history.categories] == [*other.categories]
    assert [[*runs] for runs in history.categories.values()] == [[*runs] for runs in other.categories.values()]


@pytest.mark.parametrize(
    ("job", "names"),
    [
        (make(executable="namd", queue="batch"), ["executable,user", "user,cpus", "queue,user", "user", "site"]),
        (make(queue="batch"), ["user,cpus", "queue,user", "user", "site"]),
        (make(), ["user,cpus", "user", "site"]),
        (make(user=None, executable="namd", queue="batch"), ["site"]),
    ],
)
def test_categories_come_closest_first(job: Job, names: list[str]) -> None:
    assert [category[0] for category in categories_of(job)] == names


def test_a_category_is_the_values_of_its_attributes() -> None:
    assert categories_of(make(executable="namd", queue="batch", cpus=5)) == [
        ("executable,user", "namd", "ada"),
        ("user,cpus", "ada", "3"),
        ("queue,user", "batch", "ada"),
        ("user", "ada"),
        ("site",),
    ]


def test_sizes_up_to_the_same_power_of_two_share_a_range() -> None:
    assert [cpus_range(cpus) for cpus in (1, 2, 3, 4, 5, 8, 9, 1024, 1025)] == [*"012233", "4", "10", "11"]


def test_the_closest_category_with_enough_runs_is_believed() -> None:
    history = RunHistory(enough=2)
    namd, wrf = make(executable="namd", cpus=4), make(executable="wrf", cpus=64)
    assert history.predict(namd) is None
    history.learn(namd, 100.0)
    assert history.predict(namd) is None
    history.learn(wrf, 300.0)
    assert history.predict(namd) == 200.0  # of the user: each of the closer categories has run once
    history.learn(namd, 140.0)
    assert history.predict(namd) == 120.0
    assert history.predict(make(executable="new", cpus=3)) == 120.0  # of the user at that size
    assert history.predict(make(user="bob")) == pytest.approx(180.0)  # of the site


def test_an_estimate_is_of_the_last_runs_of_its_category() -> None:
    history = RunHistory(closest=3)
    for run_s in (1e6, 10.0, 20.0, 60.0):
        history.learn(make(), run_s)
    assert history.predict(make()) == 30.0


@pytest.mark.parametrize(
    ("walltime", "ran", "expected"),
    [
        (None, [(None, 100.0), (3600.0, 200.0)], 150.0),
        (7200.0, [(3600.0, 1800.0), (7200.0, 1800.0)], 2700.0),  # half and a quarter of the request
        (7200.0, [(None, 1000.0), (3600.0, 1800.0)], 2300.0),
        (100.0, [(None, 1000.0), (None, 3000.0)], 100.0),  # no more than the request
        (100.0, [(50.0, 80.0), (50.0, 90.0)], 100.0),  # overran theirs
        (100.0, [(50.0, 80.0), (50.0, 10.0)], 60.0),
        (100.0, [(0.0, 30.0), (0.0, 50.0)], 40.0),  # none was asked for
        (0.0, [(60.0, 30.0), (0.0, 50.0)], 40.0),
    ],
)
def test_run_times_are_relative_to_the_requests_where_there_are_any(
    walltime: float | None, ran: list[tuple[float | None, float]], expected: float
) -> None:
    history = RunHistory()
    for requested, run_s in ran:
        history.learn(make(walltime=requested), run_s)
    assert history.predict(make(walltime=walltime)) == expected


times = st.floats(0, 1e11)


@given(st.lists(st.tuples(st.none() | times, times), min_size=2, max_size=20), times)
def test_no_estimate_is_beyond_the_walltime_or_below_zero(
    ran: list[tuple[float | None, float]], walltime: float
) -> None:
    history = RunHistory()
    for requested, run_s in ran:
        history.learn(make(walltime=requested), run_s)
    estimate = history.predict(make(walltime=walltime))
    assert estimate is not None and estimate >= 0
    assert walltime == 0 or estimate <= walltime


@pytest.mark.parametrize("breadth", [1, 3, 20, 1000])
def test_depth_and_breadth_are_bounded_and_the_longest_silent_goes_first(breadth: int) -> None:
    dice = random.Random(breadth)
    history, plain = RunHistory(depth=5, breadth=breadth), Listed(5, breadth)
    stored: dict[int, Run] = {}
    for number in range(2000):
        new, gone = history.learn(random_job(dice), float(number))
        plain.learn(new)
        stored |= {run.number: run for run in new}
        for run in gone:
            del stored[run.number]  # each once, and only what was there
        assert len(history) == len(stored) <= 5 * breadth
        assert len(history.categories) <= breadth
    assert_same(history, plain)
    assert sorted(stored) == sorted(run.number for run in history)
    assert history.count == max(stored)


def test_asking_keeps_no_category_alive() -> None:
    history = RunHistory(breadth=3)
    silent, loud = make("ada"), make("bob")
    history.learn(silent, 10.0)
    for _ in range(3):
        history.predict(silent)
        history.learn(loud, 10.0)
    assert ("user", "ada") not in history.categories


@pytest.mark.parametrize("breadth", [1, 3, 20, 1000])
@pytest.mark.parametrize("count", [0, 1, 50, 700])
def test_a_restored_history_is_the_original_and_goes_on_like_it(breadth: int, count: int) -> None:
    dice = random.Random(count)
    history = RunHistory(depth=5, breadth=breadth)
    for number in range(count):
        history.learn(random_job(dice), float(number))
    runs = [*history]
    dice.shuffle(runs)
    restored = RunHistory(depth=5, breadth=breadth)
    restored.restore(runs, history.count)
    for number in range(300):
        assert (restored.count, len(restored)) == (history.count, len(history))
        job = random_job(dice)
        assert restored.predict(job) == history.predict(job)
        assert restored.learn(job, float(number)) == history.learn(job, float(number))
    assert_same(restored, history)


def test_restoring_replaces_what_was_there() -> None:
    history = RunHistory()
    history.learn(make(), 1.0)
    history.restore([], 0)
    assert (len(history), history.count, [*history]) == (0, 0, [])
    assert history.predict(make()) is None
