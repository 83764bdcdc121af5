import random

import msgspec
import numpy as np
import pytest

from models.engine.saved_state import decode_array, encode_array
from models.site.history import COUNT, FEATURES, LATEST_JOBS, History, StartedJob
from models.site.job import Job


def start(number: int, dice: random.Random) -> tuple[Job, float]:
    """Return a job that has just started and its wait."""
    wait_s = dice.choice([0.0, 60.0, dice.expovariate(1e-4)])
    job = Job(id=str(number), attempt=number % 3, submit=number * 10.1, user=dice.choice(["ada", None]), cpus=number)
    job.start = job.submit + wait_s
    job.features = np.array([dice.choice([0.0, dice.random() * 1e6]) for _ in range(COUNT)])
    return job, wait_s


def filled(size: int, count: int) -> tuple[History, list[StartedJob]]:
    """Return a history after `count` jobs and all its rows."""
    dice = random.Random(count)
    history = History(size)
    return history, [history.learn(*start(number, dice)) for number in range(count)]


def assert_identical(one: History, other: History) -> None:
    """Check equal memory layout and equal bytes."""
    assert (one.count, len(one), one.oldest) == (other.count, len(other), other.oldest)
    assert one.waits.tobytes() == other.waits.tobytes()
    assert one.window.values.tobytes() == other.window.values.tobytes()
    assert one.window.weights.tobytes() == other.window.weights.tobytes()
    assert one.window.minimum.tobytes() == other.window.minimum.tobytes()
    assert one.window.maximum.tobytes() == other.window.maximum.tobytes()


def test_correlations_have_the_window_weights_in_descending_order() -> None:
    history, _ = filled(50, 80)
    found = history.correlations()
    assert set(found) == set(FEATURES)
    assert list(found.values()) == sorted(history.window.weights.round(3).tolist(), reverse=True)
    assert filled(50, 1)[0].correlations() == {}


COUNTS = [0, 1, 6, 7, 8, 13, 14, 15, 30, 100]


@pytest.mark.parametrize("count", COUNTS)
def test_job_n_is_at_place_n_modulo_the_size(count: int) -> None:
    history, rows = filled(7, count)
    for row in rows[-7:]:
        assert history.waits[row.number % 7] == row.wait_s
        np.testing.assert_array_equal(history.window.values[row.number % 7], row.features)
    assert len(history) == len(history.waits) == min(count, 7)
    assert [row.number for row in rows] == [*range(count)]
    assert history.oldest == max(count - 7, 0)


@pytest.mark.parametrize("count", COUNTS)
def test_restored_history_has_equal_layout_and_continues_equally(count: int) -> None:
    history, rows = filled(7, count)
    stored = msgspec.msgpack.encode(rows, enc_hook=encode_array)
    rows = msgspec.msgpack.decode(stored, type=list[StartedJob], dec_hook=decode_array)
    random.Random(0).shuffle(rows)
    restored = History(7)
    restored.restore(rows, count)
    assert_identical(restored, history)
    dice, same = random.Random(5), random.Random(5)
    for number in range(count, count + 16):
        mine, theirs = history.learn(*start(number, dice)), restored.learn(*start(number, same))
        assert mine.number == theirs.number == number
        assert_identical(restored, history)


@pytest.mark.parametrize("count", COUNTS)
def test_rows_beyond_the_count_and_before_the_window_are_ignored(count: int) -> None:
    _, rows = filled(7, 120)
    assert count < 120
    history = History(7)
    dice = random.Random(120)
    for number in range(count):
        history.learn(*start(number, dice))
    restored = History(7)
    restored.restore(rows, count)
    assert_identical(restored, history)


@pytest.mark.parametrize("count", COUNTS[1:])
def test_restore_rejects_missing_rows(count: int) -> None:
    _, rows = filled(7, count)
    window = rows[-7:]
    for missing in range(len(window)):
        history = History(7)
        with pytest.raises(ValueError, match=f"{len(window) - 1} of the last {len(window)} jobs"):
            history.restore(window[:missing] + window[missing + 1 :], count)
        assert (history.count, len(history.waits)) == (0, 0)


def test_restore_rejects_an_older_row_for_a_missing_one() -> None:
    _, rows = filled(7, 20)
    with pytest.raises(ValueError, match="6 of the last 7"):
        History(7).restore(rows[:15] + rows[16:], 20)


def test_restore_rejects_a_duplicate_row_for_a_missing_one() -> None:
    _, rows = filled(7, 20)
    with pytest.raises(ValueError, match="6 of the last 7"):
        History(7).restore([*rows[-6:], rows[-1]], 20)


@pytest.mark.parametrize("size", [7, 5000])
@pytest.mark.parametrize("count", [*COUNTS, 2500])
def test_latest_waits_are_sorted_and_survive_a_restore(size: int, count: int) -> None:
    history, rows = filled(size, count)
    expected = sorted(row.wait_s for row in rows[-min(size, LATEST_JOBS) :])
    again = History(size)
    again.restore(history.stored(), history.count)
    assert history.latest.tolist() == again.latest.tolist() == expected


@pytest.mark.parametrize(("before", "after"), [(10, 16), (16, 10)])
def test_history_of_another_size_keeps_common_jobs(before: int, after: int) -> None:
    old, rows, dice = History(before), list[StartedJob](), random.Random(1)
    for number in range(25):
        rows.append(old.learn(start(number, dice)[0], float(number)))
    new = History(after)
    new.restore(rows, old.count, old.first, before)
    assert sorted(new.waits) == [float(number) for number in range(25 - min(before, after), 25)]
    for number in range(25, 60):
        rows.append(new.learn(start(number, dice)[0], float(number)))
    assert sorted(new.waits) == [float(number) for number in range(60 - after, 60)]
    assert new.latest.tolist() == [float(number) for number in range(60 - after, 60)]
    assert [row.number for row in new.stored()] == [row.number for row in rows[-after:]]
    again = History(after)
    again.restore(new.stored(), new.count, new.first, after)
    assert np.array_equal(again.waits, new.waits)


@pytest.mark.parametrize("count", [2, 7])
def test_rejected_job_does_not_change_the_history(count: int) -> None:
    history, _ = filled(7, count)
    known = list(history.latest)
    job, _ = start(count, random.Random(0))
    with pytest.raises(ValueError, match="target is nan"):
        history.learn(job, float("nan"))
    assert (history.count, len(history), list(history.latest)) == (count, count, known)
