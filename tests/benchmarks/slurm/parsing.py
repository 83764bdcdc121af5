"""Parse Slurm's own estimates: `sbatch --test-only` and `squeue --start`."""

import re
from datetime import UTC, datetime

START_FORMAT = "%i|%S|%T|%r"
"""Format of `squeue --start`: job, expected start, state and reason."""

_TEST_ONLY = re.compile(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")
_MISSING = ("N/A", "NONE", "Unknown", "")


def time_of(text: str) -> float | None:
    """Return a time of Slurm's (UTC) as Unix seconds; None if Slurm prints no time.

    >>> time_of("1970-01-01T00:01:00"), time_of("N/A")
    (60.0, None)
    """
    if text.strip() in _MISSING:
        return None
    return datetime.fromisoformat(text.strip()).replace(tzinfo=UTC).timestamp()


def test_only_start(text: str) -> float | None:
    """Return the start that `sbatch --test-only` prints, Unix seconds; None if it prints none.

    >>> test_only_start("sbatch: Job 5 to start at 1970-01-01T00:01:00 using 4 processors on nodes n1 in partition x")
    60.0
    """
    found = _TEST_ONLY.search(text)
    return time_of(found[1]) if found else None


def pending_starts(text: str) -> dict[str, tuple[float | None, str]]:
    """Return the expected start (None: N/A) and the pending reason by job, of `squeue --start` in `START_FORMAT`."""
    found = dict[str, tuple[float | None, str]]()
    for line in text.splitlines():
        job, start, _, reason = line.split("|", 3)
        found[job] = time_of(start), reason.strip()
    return found
