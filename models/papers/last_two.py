"""Run times from the user's last two, by Tsafrir, Etsion and Feitelson.

"Backfilling using system-generated predictions rather than user runtime estimates", IEEE Transactions on Parallel and
Distributed Systems 18(6), 2007. There the predictions replace the users' estimates in EASY backfilling; the scheduler
still ends jobs at the time limit that the user requested.
"""

from models.method import RunMethod
from models.runtimes.walltime import within
from models.site.job import Job, RunEstimate
from models.site.runs import RunHistory, Template

CORRECTIONS_S = (0.0, *(60.0 * minutes for minutes in (1, 5, 15, 30, 60, 120, 300, 600, 1200, 3000, 6000)))
"""Amounts by which a prediction grows while its job exceeds it: the smallest that is enough."""


class LastTwo(RunMethod):
    """The mean of the user's last two run times, and no more than the requested walltime.

    For a user with fewer runs it is the requested walltime, as in the paper. The paper's schedulers require one;
    without it, the user's only run is used.

    >>> method = LastTwo()
    >>> history = RunHistory(method.templates)
    >>> job = Job(id="1", attempt=0, submit=0.0, user="ada", walltime=3600.0)
    >>> method.predict(job, history).run_s
    3600.0
    >>> for run_s in (9000.0, 100.0, 200.0):
    ...     new, gone = history.learn(job, run_s)
    >>> method.predict(job, history).run_s
    150.0
    """

    name = "last-two"
    templates = (Template(("user",), 2),)

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        """Return the mean, increased if the job has exceeded it."""
        kept = runs.of(self.templates[0].category(job))
        if len(kept) >= 2:
            expected, reason = (kept[-1].run_s + kept[-2].run_s) / 2, "mean of the user's last two"
        elif job.limit_s and job.limit_s > 0:
            expected, reason = job.limit_s, "the user has not run twice: requested walltime"
        elif kept:
            expected, reason = kept[-1].run_s, "the user's only run"
        else:
            return RunEstimate(None, "no run of the user, no walltime requested")
        return RunEstimate(within(_outlived(expected, elapsed_s), job.walltime, elapsed_s), reason)


def _outlived(expected_s: float, elapsed_s: float) -> float:
    """The prediction with the first correction that takes it beyond the elapsed time, or with the last of them."""
    corrected = (expected_s + more for more in CORRECTIONS_S)
    return next((run_s for run_s in corrected if run_s > elapsed_s), expected_s + CORRECTIONS_S[-1])
