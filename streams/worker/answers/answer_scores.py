"""Scores of grid estimates, and of answers about jobs that were then submitted.

A submitted job scores the grid estimate that was current for the smallest shape that fits the job. It also scores the
answer to an earlier question with the same request. Both are scored when the job starts. The scores belong to this
process: no state and no offset depends on them.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from models.engine.asking.accuracy import answer_accuracy
from models.measures import Accuracy
from models.records import AnswerAccuracy, Outcome, Submit, WaitAnswer, WaitQuestion
from models.site.shapes import Shape, covering

GRID, QUERY = "grid", "query"

MAX_NOTED_JOBS = 50_000
"""Maximum number of pending jobs with a recorded wait. The oldest are dropped first."""

MAX_ANSWERS = 10_000  # maximum number of recorded answers

MAX_ANSWER_AGE_S = 600.0
"""Maximum time between an answer and the submission of its job, seconds of the site's time."""

BOUND = "0.9"  # level of the scored bound


class PublishedWait(NamedTuple):
    """A wait given to a client: the estimate in seconds (None: no estimate) and its upper bound for 90 % of such jobs.

    `elsewhere_s` is the shortest wait given for the same job at another site.
    """

    wait_s: float | None
    bound_s: float | None
    elsewhere_s: float | None = None

    @property
    def bounds(self) -> dict[str, float] | None:
        """The upper bound in the form that `Accuracy` expects."""
        return None if self.bound_s is None else {BOUND: self.bound_s}


class KindScores:
    """Accuracy of one kind of answers, and of the predictions at submission (`predicted`) for the same jobs.

    `regrets` counts the jobs for which another site was also queried. `regret_s` sums their waits minus the shortest
    wait predicted at the other sites.
    """

    def __init__(self) -> None:
        self.published, self.predicted = Accuracy(), Accuracy()
        self.regrets, self.regret_s = 0, 0.0

    @property
    def mean_regret_s(self) -> float | None:
        """Mean regret per job, seconds; None if no other site was queried."""
        return self.regret_s / self.regrets if self.regrets else None


class _GridEstimates:
    """A site's grid estimates, with a cache of the estimate for each request."""

    def __init__(self, estimates: Mapping[Shape, PublishedWait]) -> None:
        self._estimates = estimates
        self._read: dict[tuple[object, ...], PublishedWait | None] = {}

    def covering(self, event: Submit) -> PublishedWait | None:
        """Return the estimate that covers a job; None if there is none."""
        request = event.cpus, event.walltime, event.queue, event.gpus
        if request not in self._read:
            shape = covering(self._estimates, *request)
            published = None if shape is None else self._estimates[shape]
            self._read[request] = None if published is None or published.wait_s is None else published
        return self._read[request]


class AnswerScores:
    """Score the waits that this worker gave to clients. `sites` holds the scores by site and kind."""

    def __init__(self) -> None:
        self.sites: dict[str, dict[str, KindScores]] = {}
        self._grids: dict[str, _GridEstimates] = {}
        self._answers: OrderedDict[tuple[object, ...], tuple[float, PublishedWait]] = OrderedDict()
        self._noted: OrderedDict[tuple[str, str, int], dict[str, PublishedWait]] = OrderedDict()

    def published(self, site: str, estimates: Mapping[Shape, PublishedWait]) -> None:
        """Set a site's current grid estimates; empty if they are stale."""
        self._grids[site] = _GridEstimates(estimates)

    def forget(self, site: str) -> None:
        """Drop the estimates of a site that another worker serves now."""
        self._grids.pop(site, None)

    def answered(self, question: WaitQuestion, answer: WaitAnswer) -> None:
        """Record an answered question."""
        if answer.stale is None and answer.predicted_wait_s is not None:
            key = _request(question, question.site, question.user)
            self._answers[key] = (
                answer.made_at,
                PublishedWait(answer.predicted_wait_s, (answer.bounds or {}).get(BOUND)),
            )
            self._answers.move_to_end(key)
            while len(self._answers) > MAX_ANSWERS:
                self._answers.popitem(last=False)

    def add_submission(self, event: Submit) -> None:
        """Record a submitted job; O(1), and O(shapes of the site) for the first job of each request."""
        found = {}
        grid = self._grids.get(event.site)
        if grid is not None and (published := grid.covering(event)) is not None:
            found[GRID] = published
        if (answered := self._answer_to(event, event.site)) is not None:
            others = (self._answer_to(event, site) for site in self._grids if site != event.site)
            waits_s = [other.wait_s for other in others if other is not None and other.wait_s is not None]
            found[QUERY] = answered._replace(elsewhere_s=min(waits_s, default=None))
        if found:
            self._noted[event.site, event.job, event.attempt] = found
            while len(self._noted) > MAX_NOTED_JOBS:
                self._noted.popitem(last=False)

    def _answer_to(self, event: Submit, site: str) -> PublishedWait | None:
        """Return the last answer to a question about such a job at a site, with or without its user."""
        if not self._answers:
            return None
        for request in (_request(event, site, event.user), _request(event, site, None)):
            made_at, published = self._answers.get(request, (0.0, None))
            if published is not None and 0.0 <= event.time - made_at <= MAX_ANSWER_AGE_S:
                return published
        return None

    def job_dequeued(self, outcome: Outcome) -> None:
        """Score the waits recorded for a job that has left the queue; a repeated outcome has no effect."""
        waited_s = outcome.actual_wait_s
        for kind, published in self._noted.pop((outcome.site, outcome.job, outcome.attempt), {}).items():
            kinds = self.sites.setdefault(outcome.site, {})
            scores = kinds.setdefault(kind, KindScores())
            if published.elsewhere_s is not None:
                scores.regrets, scores.regret_s = scores.regrets + 1, scores.regret_s + waited_s - published.elsewhere_s
            scores.published.add_wait(published.wait_s, waited_s, published.bounds)
            scores.predicted.add_wait(outcome.predicted_wait_s, waited_s, outcome.bounds)

    def accuracy(self, site: str) -> list[AnswerAccuracy]:
        """Return the accuracy of a site's answers by kind."""
        kinds = self.sites.get(site, {})
        return [
            answer_accuracy(kind, scores.published, scores.predicted, scores.mean_regret_s)
            for kind, scores in sorted(kinds.items())
        ]


def _request(of: Any, site: str, user: str | None) -> tuple[object, ...]:
    """Return the key of the request of a question or a submission."""
    return site, user, of.queue, of.cpus, of.walltime, of.gpus, of.nodes, of.memory
