from models.method import RunMethod
from models.simulation import Actual, Estimates, PredictedRunTimes, SimulatedJob, perform
from models.site.job import Job, RunEstimate
from models.site.runs import RunHistory
from tests.support.simulated_jobs import CPUS, Given, make


class Diary(RunMethod):
    """A method that records its queries and its training runs."""

    name = "diary"

    def __init__(self) -> None:
        self.queries: list[tuple[str, float]] = []
        self.training_runs: list[tuple[str, float]] = []

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        self.queries.append((job.id, elapsed_s))
        return RunEstimate(self.training_runs[-1][1] if self.training_runs else None, "the last one")

    def learn(self, job: Job, run_s: float, runs: RunHistory) -> None:
        self.training_runs.append((job.id, run_s))


def test_predictor_learns_at_end_and_repredicts_the_users_jobs() -> None:
    diary = Diary()
    jobs = [make(1, 0, 8, 50, "ada"), make(2, 1, 8, 20, "ada"), make(3, 2, 8, 5, "bob"), make(4, 60, 8, 7, "ada")]
    perform(jobs, CPUS, "lewf", PredictedRunTimes(diary))
    assert diary.training_runs == [("1", 50), ("2", 20), ("4", 7), ("3", 5)]
    # At 50 job 1 ends and job 2 of the same user is queued; at 70 job 2 ends and job 4 is queued. Job 4 is expected to
    # run 20, as job 1 gave 50, and job 3 was predicted an hour at its submission.
    assert diary.queries == [("1", 0), ("2", 0), ("3", 0), ("2", 0), ("4", 0), ("4", 0)]


def test_lerwf_queries_run_time_by_elapsed_time() -> None:
    diary = Diary()
    perform([make(1, 0, 4, 50), make(2, 30, 4, 50)], CPUS, "lerwf", PredictedRunTimes(diary))
    assert ("1", 30.0) in diary.queries and ("2", 20.0) in diary.queries


def test_estimates_without_a_prediction_use_mean_or_walltime() -> None:
    estimates = PredictedRunTimes(Diary())
    job = make(1, 0, 1, 1)
    assert estimates.of(job) == 3600
    estimates.learn(make(2, 0, 1, 100), 100)
    estimates = Estimates()
    for run in (100, 201):
        estimates.learn(job, run)
    assert estimates.of(job) == 151  # the mean, rounded up
    assert estimates.of(job, 151) == 302 and estimates.of(job, 1000) == 2000
    limited = SimulatedJob(
        job="3", submit=0, user="u", group=None, queue=None, executable=None, cpus=1, run=9, walltime=500
    )
    assert estimates.of(limited) == 500
    assert Given({"3": 100}).of(limited, 240) == 480
    assert Given({"3": 100}).of(limited, 300) == 500
    assert Given({"3": 100}).of(limited, 500) == 1000
    assert Actual().of(limited) == 9
