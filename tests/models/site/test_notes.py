"""Job notes: the pairs follow from the rows and survive a restart."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.records import JobKey
from models.site.notes import JobNotes, Pair

DEPTH, BEHIND = 12, 5
FEW = st.integers(0, 5)
ACTIONS = st.lists(st.tuples(st.sampled_from(["note", "settle", "forget", "put", "restart"]), FEW), max_size=150)


def restarted(notes: JobNotes) -> JobNotes:
    again = JobNotes(DEPTH, BEHIND)
    again.rows.restore(reversed(notes.rows.numbered), notes.count, notes.rows.oldest)
    again.load()
    return again


class RecordedNotes:
    """All recorded notes."""

    def __init__(self) -> None:
        self.number = 0
        self.pending: dict[JobKey, tuple[int, bytes]] = {}
        self.settled: list[tuple[int, int, Pair]] = []
        self.latest: dict[int, bytes] = {}

    def pairs(self, count: int) -> list[Pair]:
        return [pair for note, settled, pair in self.settled if note >= count - DEPTH and settled < count]


def follow(action: str, which: int, notes: JobNotes, expected: RecordedNotes) -> JobNotes:
    expected.number += 1
    key, value = (str(which), 0), str(expected.number).encode()
    if action == "note":
        notes.note(key, value)
        expected.pending[key] = notes.count - 1, value
    elif action == "settle":
        found, known = notes.settle(key, value), expected.pending.pop(key, None)
        if found is not None:
            assert known is not None and found == known[1]
            expected.settled.append((known[0], notes.count - 1, (found, value)))
        else:
            assert known is None or known[0] < notes.rows.oldest
    elif action == "forget":
        notes.forget(key)
        expected.pending.pop(key, None)
    elif action == "put":
        notes.put(which % 3, value)
        expected.latest[which % 3] = value
    else:
        again = restarted(notes)
        for job in {(str(job), 0) for job in range(6)} - expected.pending.keys():  # forgetting is not stored
            again.forget(job)
        return again
    return notes


@given(ACTIONS)
def test_notes_contain_the_recorded_pairs(actions: list[tuple[str, int]]) -> None:
    notes, expected, seen = JobNotes(DEPTH, BEHIND), RecordedNotes(), dict[int, list[Pair]]()
    for action, which in actions:
        notes = follow(action, which, notes, expected)
        seen[notes.count] = expected.pairs(notes.count)
        assert list(notes.settled()) == seen[notes.count]
        assert {kind: notes.latest(kind) for kind in expected.latest} == expected.latest
        for count in range(max(notes.count - BEHIND, 0), notes.count + 1):
            assert count not in seen or list(notes.settled(count)) == seen[count]
        again = restarted(notes)
        assert (list(again.settled()), again.jobs) == (list(notes.settled()), notes.jobs)
        assert len(notes.rows.numbered) <= DEPTH + BEHIND


def test_settled_pairs_can_be_read_later() -> None:
    notes = JobNotes(4)
    notes.note(("1", 0), b"a")
    notes.settle(("1", 0), b"b")
    pairs = notes.settled()
    for job in range(10):
        notes.note((str(job), 1), b"")
    assert list(pairs) == [(b"a", b"b")] and list(notes.settled()) == []


def test_notes_put_rejects_too_many_kinds() -> None:
    notes = JobNotes(3)
    for kind in range(2):
        notes.put(kind, b"")
    with pytest.raises(ValueError, match="kinds"):
        notes.put(2, b"")


@pytest.mark.parametrize("wrong", [b"", b"\x93", msgspec.msgpack.encode([7, "1"])])
def test_notes_load_rejects_an_invalid_row(wrong: bytes) -> None:
    notes = JobNotes(4)
    notes.rows.append(wrong)
    with pytest.raises(ValueError, match="row 0"):
        notes.load()


def test_job_with_lost_rows_is_not_paired_with_another() -> None:
    notes = JobNotes(100)
    for job in range(10):
        notes.note((str(job), 0), b"note %d" % job)
    for job in range(10):
        notes.settle((str(job), 0), b"wait %d" % job)
    left = [row for row in notes.rows.numbered if row.number not in (3, 15)]
    again = JobNotes(100)
    again.rows.restore([msgspec.structs.replace(row, number=n) for n, row in enumerate(left, 2)], 20, 2)
    again.load()
    assert list(again.settled()) == [(b"note %d" % job, b"wait %d" % job) for job in range(10) if job not in (3, 5)]
