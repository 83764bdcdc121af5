import random
from collections import OrderedDict, deque

import pytest

from models.runtimes.closest import Closest
from models.site.job import Job
from models.site.runs import Category, Run, RunHistory, Template, power_of_two
from tests.support.jobs import make


def random_job(dice: random.Random) -> Job:
    return make(
        user=dice.choice([None, f"u{dice.randrange(12)}"]),
        executable=dice.choice([None, "namd", "wrf"]),
        queue=dice.choice([None, "batch", "long"]),
        cpus=dice.randint(1, 64),
        walltime=dice.choice([None, 0.0, 60.0, 3600.0]),
    )


def made(depth: int = 64, breadth: int = 1000) -> RunHistory:
    return RunHistory([Template(template.attributes, depth) for template in Closest.templates], breadth)


class Listed:
    """Reference implementation with the same bounds: each category is a list, in the order of removal."""

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


def test_template_category_is_the_values_of_its_attributes() -> None:
    job = make(executable="namd", queue="batch", cpus=5)
    assert Template(("executable", "user")).category(job) == ("executable,user", "namd", "ada")
    assert Template(("user", "cpus")).category(job) == ("user,cpus", "ada", "3")
    assert Template(("user", "cpus/4", "type")).category(job) == ("user,cpus/4,type", "ada", "1", "parallel")
    assert Template(()).category(job) == ("site",)
    assert Template(("user", "script")).category(job) is None


@pytest.mark.parametrize("attribute", ["colour", "user/4", "cpus/four"])
def test_template_with_invalid_attribute_raises_error(attribute: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        Template((attribute,)).category(make())


def test_templates_of_same_attributes_use_the_deeper_one() -> None:
    history = RunHistory([Template(("user",), 2), Template(("user",), 5), Template(("user",), 3)])
    for number in range(9):
        history.learn(make(), float(number))
    assert [run.run_s for run in history.of(("user", "ada"))] == [4.0, 5.0, 6.0, 7.0, 8.0]


def test_sizes_up_to_the_same_power_of_two_share_a_range() -> None:
    assert [power_of_two(cpus) for cpus in (1, 2, 3, 4, 5, 8, 9, 1024, 1025)] == [*"012233", "4", "10", "11"]


@pytest.mark.parametrize("breadth", [1, 3, 20, 1000])
def test_runs_are_bounded_and_evict_the_longest_idle(breadth: int) -> None:
    dice = random.Random(breadth)
    history, plain = made(5, breadth), Listed(5, breadth)
    stored: dict[int, Run] = {}
    for number in range(2000):
        new, gone = history.learn(random_job(dice), float(number))
        plain.learn(new)
        stored |= {run.number: run for run in new}
        for run in gone:
            del stored[run.number]  # each run once, and only existing runs
        assert len(history) == len(stored) <= 5 * breadth
        assert len(history.categories) <= breadth
    assert_same(history, plain)
    assert sorted(stored) == sorted(run.number for run in history)
    assert history.count == max(stored)


def test_reading_a_category_does_not_keep_it_alive() -> None:
    history = made(64, 3)
    silent, loud = make("ada"), make("bob")
    history.learn(silent, 10.0)
    for _ in range(3):
        history.of(("user", "ada"))
        history.learn(loud, 10.0)
    assert ("user", "ada") not in history.categories


@pytest.mark.parametrize("breadth", [1, 3, 20, 1000])
@pytest.mark.parametrize("count", [0, 1, 50, 700])
def test_restored_run_history_equals_and_continues_the_original(breadth: int, count: int) -> None:
    dice = random.Random(count)
    history = made(5, breadth)
    for number in range(count):
        history.learn(random_job(dice), float(number))
    runs = [*history]
    dice.shuffle(runs)
    restored = made(5, breadth)
    restored.restore(runs, history.count)
    for number in range(300):
        assert (restored.count, len(restored)) == (history.count, len(history))
        job = random_job(dice)
        assert Closest().predict(job, restored) == Closest().predict(job, history)
        assert restored.learn(job, float(number)) == history.learn(job, float(number))
    assert_same(restored, history)


def test_restore_replaces_existing_runs() -> None:
    history = made()
    history.learn(make(), 1.0)
    history.restore([], 0)
    assert (len(history), history.count, [*history]) == (0, 0, [])
    assert not history.of(("user", "ada"))
