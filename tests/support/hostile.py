"""Events that the schema allows and that no scheduler sends: against one site, in the middle of its trace."""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from models.durations import DAY_S
from models.records import Alter, AnyEvent, Cancel, Capacity, End, Heartbeat, Hold, Requeue, Start, Submit

WALLTIMES_S = (None, 0.0, 1e-6, 60.0, 3600.0, DAY_S, 99 * DAY_S, 101 * DAY_S, 1e9, 1e11)
ABSURD_CPUS = (10**9, 999_999_999, 10**8, 10_000_001)
FAR_S = (1e3 * DAY_S, 401 * DAY_S)
NEAR_S = (300 * DAY_S, 59 * DAY_S, 31 * DAY_S, 7 * DAY_S, DAY_S, 7200.0, 599.0, 60.0, 1.0, 0.0)


class Hostile:
    """Makes events of jobs that do not exist, and repeats of those that do. The same seed gives the same events.

    It names no genuine job that is live but to repeat an event of it: a user who may publish for a site can send wrong
    events of its jobs, and only permissions prevent that.

    Parameters:
        genuine: the site's events so far.
        cpus: of the site.
        kinds: which of `KINDS`, all where none is named.

    >>> past = [Submit(site="s", time=1000.0, job="1", cpus=2)]
    >>> [event] = Hostile(past, cpus=64, seed=1, kinds=["absurd_sizes"]).events(1)
    >>> event.site
    's'
    """

    def __init__(self, genuine: Sequence[AnyEvent], cpus: int, seed: int, kinds: Sequence[str] = ()) -> None:
        self._genuine, self._cpus = genuine, cpus
        self._dice = random.Random(seed)
        self._site, self._now = genuine[-1].site, genuine[-1].time
        self._number = 0
        self._kinds: list[Callable[[], list[AnyEvent]]] = [getattr(self, name) for name in kinds or KINDS]

    def events(self, count: int) -> Iterator[AnyEvent]:
        """So many events."""
        return islice(self._endless(), count)

    def pass_to(self, time: float) -> None:
        """Make further events at another time of the site (Unix seconds)."""
        self._now = time

    def _endless(self) -> Iterator[AnyEvent]:
        while True:
            yield from self._dice.choice(self._kinds)()

    def _job(self) -> str:
        self._number += 1
        return f"hostile-{self._number}"

    def _any_event(self, time: float, cpus: int) -> AnyEvent:
        """An event of any kind."""
        where, job = {"site": self._site, "time": time}, self._job()
        request = {"cpus": cpus, "walltime": self._dice.choice(WALLTIMES_S)}
        down = self._dice.randint(0, min(cpus, 10**9))
        kinds: list[Callable[[], AnyEvent]] = [
            lambda: Submit(**where, job=job, user=job, queue=job, executable=job, **request),
            lambda: Alter(**where, job=job, **request),
            lambda: Capacity(**where, cpus=cpus, nodes=cpus, down_nodes=down),
            lambda: self._of_no_job(time, cpus),
            lambda: Heartbeat(**where),
        ]
        return self._dice.choice(kinds)()

    def _of_no_job(self, time: float, cpus: int) -> AnyEvent:
        """An event of a job that was never submitted."""
        job = {"site": self._site, "time": time, "job": self._job()}
        kinds: list[Callable[[], AnyEvent]] = [
            lambda: Start(**job, cpus=cpus),
            lambda: End(**job),
            lambda: Cancel(**job),
            lambda: Hold(**job),
            lambda: Alter(**job, cpus=cpus),
            lambda: Requeue(**job),
        ]
        return self._dice.choice(kinds)()

    def absurd_sizes(self) -> list[AnyEvent]:
        """Sizes that no site has, at the right time."""
        return [self._any_event(self._now, self._dice.choice(ABSURD_CPUS))]

    def absurd_times(self) -> list[AnyEvent]:
        """Times that are years off, the first and the last that the schema allows among them."""
        far = self._dice.choice(FAR_S)
        time = self._dice.choice((0.0, 1e11, self._now + far, max(self._now - far, 0.0)))
        return [self._any_event(time, self._dice.randint(1, self._cpus))]

    def near_times(self) -> list[AnyEvent]:
        """Times that are off by days, hours or seconds."""
        off = self._dice.choice(NEAR_S) * self._dice.choice((1, -1, -1))
        time = self._now + off
        if self._dice.random() < 0.2:
            return [Heartbeat(site=self._site, time=time)]
        return [self._of_no_job(time, self._dice.randint(1, self._cpus))]

    def unknown_jobs(self) -> list[AnyEvent]:
        """Events of jobs that were never submitted, at the right time."""
        return [self._of_no_job(self._now, self._dice.randint(1, self._cpus))]

    def repeats(self) -> list[AnyEvent]:
        """Genuine events once more, from anywhere in the past."""
        return [self._dice.choice(self._genuine)]

    def many_repeats(self) -> list[AnyEvent]:
        """One genuine event a hundred times."""
        return [self._dice.choice(self._genuine[-2000:])] * 100

    def shuffled_repeats(self) -> list[AnyEvent]:
        """The last genuine events, in any order."""
        last = list(self._genuine[-50:])
        self._dice.shuffle(last)
        return last

    def running_for_ever(self) -> list[AnyEvent]:
        """Starts without a submit and without an end."""
        return [Start(site=self._site, job=self._job(), time=self._now, cpus=self._dice.randint(1, self._cpus))]


KINDS = (
    "absurd_sizes",
    "absurd_times",
    "near_times",
    "unknown_jobs",
    "repeats",
    "many_repeats",
    "shuffled_repeats",
    "running_for_ever",
)
"""All kinds. None is a job that a user could have submitted: a worker cannot distinguish those from genuine ones."""
