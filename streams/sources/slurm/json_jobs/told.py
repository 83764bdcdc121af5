"""What every JSON job must tell, whoever tells it: which job it is, its phase, and since when."""

from typing import NamedTuple

from streams.sources.slurm.rows import ENDED, REQUEUED, count_of, end_of, phase_of, time_of
from streams.sources.slurm.shapes import Number, Words, number_of, words_of


class Told(NamedTuple):
    """A job's number, its phase, Slurm's word for that, and the times of its submission and end, Unix seconds."""

    number: int
    phase: str
    state: str
    submitted: float
    ended: float | None


def told_of(job_id: Number, state: Words, submission: Number, end: Number) -> Told | str:
    """What these fields tell; the name of the first that is wrong."""
    number, found, submitted = count_of(number_of(job_id)), phase_of(words_of(state)), time_of(number_of(submission))
    if number is None:
        return "job_id"
    if found is None:
        return "state"
    if submitted is None:
        return "submit_time"
    ended = end_of(found[0], submitted, time_of(number_of(end)))
    if found[0] in (ENDED, REQUEUED) and ended is None:
        return "end_time"
    return Told(number, *found, submitted, ended)
