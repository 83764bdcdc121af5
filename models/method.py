"""What a method of prediction is: it predicts from what is known now and learns from what became known."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from models.history import History
from models.records import JobKey
from models.runs import RunHistory
from models.state import Estimate, Job, SiteState


@dataclass
class Site:
    """What is known of a site: its live jobs, the jobs that started, and what jobs of each category ran."""

    state: SiteState
    history: History
    runs: RunHistory


class WaitMethod:
    """Predicts waits. One subclass, one file, one line in `models.registry`.

    A method is a function of what it was shown, in that order: no clock, and no random numbers without a seed that is
    part of its state. What it keeps for itself, beyond the site's shared knowledge, it saves and loads.
    """

    name: ClassVar[str]

    tunable: ClassVar[Mapping[str, Any]] = {}
    """The constructor's keywords: what the method can be tuned by, each with its type and bounds."""

    def predict(self, job: Job, site: Site) -> Estimate:
        """The wait of a job that is being submitted and is not yet part of the state."""
        raise NotImplementedError

    def learn(self, job: Job, wait_s: float, site: Site) -> None:
        """A job that this method predicted started after `wait_s` seconds; the history does not hold it yet."""

    def forget(self, key: JobKey) -> None:
        """A job left the queue without a wait."""

    def save(self) -> bytes:
        """What this method keeps for itself, so that `load` in another process goes on as if nothing happened."""
        return b""

    def load(self, saved: bytes) -> None:
        """Take back what `save` gave."""
