"""Kernels that score a job while it queues, and when it leaves the queue.

Each is compiled as a whole, because a call between Python and a kernel costs as much as the kernel's work. They combine
those of `quantiles`, `guard` and `at_once`.
"""

import numpy as np

from models.arrays import Bytes, Flags, Floats, Ints
from models.durations import AT_ONCE_S
from models.kernels import njit
from models.waits.blend.guard import CHOICES, judge, judge_for_user
from models.waits.blend.immediate_start import learn_at_once
from models.waits.blend.mixture_snapshot import ALONE_FLAG, BEHIND, MEDIAN, QUANTILES, inputs_of, mark, read_snapshot
from models.waits.blend.quantiles import exceed, leave

AT_ONCE = 2 * QUANTILES
"""The place of the one-minute mark, after the marks of `MixtureSnapshot`; each of them has a deadline."""

MARKS = AT_ONCE + 1

HEAD_BYTES = 22
"""Size of a note up to the choices' estimates."""

_SNAPSHOT = HEAD_BYTES + 8 * len(CHOICES)


@njit(cache=True)
def _read(note: Bytes, experts: int) -> tuple[Floats, int, float, Floats, Floats]:
    """Decode a job's note.

    Returns:
        The experts' table; the kind with `ALONE_FLAG`; the weight; the inputs of `at_once`; and the choices' estimates.
    """
    table, choices_s = np.empty((QUANTILES, experts + BEHIND)), np.empty(len(CHOICES))
    choices_s.view(np.uint8)[:] = note[HEAD_BYTES:_SNAPSHOT]
    weight = read_snapshot(note[_SNAPSHOT:], table)
    return table, int(note[_SNAPSHOT]), weight, inputs_of(table), choices_s


@njit(cache=True)
def _known(
    table: Floats, ready: float, watched: float, reached: float, before: int, marks: Floats, passed: Flags
) -> float:
    """Fill in a job's marks, and which of them it had exceeded when deadlines were last taken.

    Of the marks at `reached` these are the ones `before` a place.

    Returns:
        The longest of the scored marks among these, seconds.
    """
    longest_s = 0.0
    for place in range(MARKS):
        marks[place] = AT_ONCE_S if place == AT_ONCE else mark(table, place)
        at = ready + marks[place]
        passed[place] = watched <= at and (at < reached or (at == reached and place < before))
        if passed[place] and MEDIAN <= place < QUANTILES:
            longest_s = max(longest_s, at - ready)
    return longest_s


@njit(cache=True, nogil=True)
def exceeded(
    note: Bytes,
    experts: int,
    ready: float,
    watched: float,
    at: float,
    place: int,
    far: float,
    bursts: Floats,
    queue: Floats,
    total: Floats,
    squares: Floats,
    extent: Floats,
    seen: Floats,
    shift: Floats,
    schedule_errors: Floats,
    deficits: Floats,
    counted: Floats,
    schedules: Ints,
    trivial: Ints,
    places: Ints,
    whose: Ints,
    choices: Floats,
    rivals: Floats,
    coefficients: Floats,
    slopes: Floats,
    corrections: Floats,
) -> tuple[bool, float]:
    """Process a job that still queues `at` the deadline of this mark.

    Returns:
        Whether the mark is scored now, and the mark in seconds.
    """
    table, head, weight, inputs, choices_s = _read(note, experts)
    marks, passed = np.empty(MARKS), np.empty(MARKS, np.bool_)
    before_s = _known(table, ready, watched, at, place, marks, passed)
    has_departed = place < 0  # always False; with a literal here numba would compile the called kernels a second time
    if MEDIAN <= place < QUANTILES:
        medians_s, waited_s = inputs[:-QUANTILES], marks[place]
        judge(
            trivial, places, whose, choices, rivals, choices_s, medians_s, before_s, waited_s, has_departed, weight, 1.0
        )
    if place == AT_ONCE:
        learn_at_once(inputs, coefficients, slopes, corrections, has_departed)
        return True, marks[place]
    judged = exceed(
        table, head & ~ALONE_FLAG, head >= ALONE_FLAG, weight, bursts, queue, total, squares, extent, seen,
        shift, schedule_errors, deficits, counted, schedules, place, far,
    )  # fmt: skip
    return judged, marks[place]


@njit(cache=True, nogil=True)
def score_departure(
    note: Bytes,
    experts: int,
    ready: float,
    watched: float,
    reached: float,
    before: int,
    put_off: int,
    known: bool,
    wait_s: float,
    faded: float,
    own: Floats,
    bursts: Floats,
    queue: Floats,
    total: Floats,
    squares: Floats,
    extent: Floats,
    seen: Floats,
    shift: Floats,
    schedule_errors: Floats,
    deficits: Floats,
    counted: Floats,
    schedules: Ints,
    trivial: Ints,
    places: Ints,
    whose: Ints,
    choices: Floats,
    rivals: Floats,
    coefficients: Floats,
    slopes: Floats,
    corrections: Floats,
) -> None:
    """Score a job that has left the queue after `wait_s` seconds.

    Args:
        put_off: the places of marks, as bits, that are scored now although they were exceeded before.
        known: whether its wait began at the expected time; else the choices are not scored.
        own: the errors of the choices for its user, (choices,).
        bursts, queue: as in `leave`.
    """
    table, head, weight, inputs, choices_s = _read(note, experts)
    marks, passed = np.empty(MARKS), np.empty(MARKS, np.bool_)
    before_s = _known(table, ready, watched, reached, before, marks, passed)
    judged = np.empty(MARKS, np.bool_)
    for place in range(MARKS):
        judged[place] = not passed[place] or not known or (put_off >> place) & 1 == 1
    if known:
        medians_s = inputs[:-QUANTILES]
        judge(trivial, places, whose, choices, rivals, choices_s, medians_s, before_s, wait_s, known, weight, faded)
        judge_for_user(own, choices_s, wait_s)
    leave(
        table, head & ~ALONE_FLAG, head >= ALONE_FLAG, weight, bursts, queue, total, squares, extent, seen,
        shift, schedule_errors, deficits, counted, schedules, wait_s, known, judged, passed,
    )  # fmt: skip
    if judged[AT_ONCE]:
        learn_at_once(inputs, coefficients, slopes, corrections, wait_s <= AT_ONCE_S)
