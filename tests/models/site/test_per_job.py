import pytest

from models.site.rows import PerJob

ONE, TWO = ("1", 0), ("2", 0)


def test_per_job_changes_are_returned_once() -> None:
    kept = PerJob(float)
    kept.put(ONE, 1.0)
    kept.put(TWO, 2.0)
    assert kept.take_changed() == {ONE, TWO} and kept.take_changed() == set()
    kept.replace({ONE: 1.0, ("3", 0): 3.0})
    assert kept.take_changed() == {TWO, ("3", 0)}
    assert kept.pop(ONE) == 1.0 and kept.pop(ONE) is None
    assert kept.take_changed() == {ONE}
    assert list(kept) == [("3", 0)] and len(kept) == 1 and ONE not in kept


def test_per_job_restored_value_is_not_a_change() -> None:
    kept, again = PerJob(dict[str, float]), PerJob(dict[str, float])
    kept.put(ONE, {"easy": 60.0})
    again.restore(ONE, kept.encoded(ONE))
    assert again.get(ONE) == {"easy": 60.0} and again.take_changed() == set()
    with pytest.raises(ValueError, match="invalid per-job value"):
        again.restore(TWO, b"\xc1")
