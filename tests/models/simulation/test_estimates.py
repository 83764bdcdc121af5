from models.method import RunMethod
from models.simulation import Actual, Estimates, PredictedRunTimes, SimulatedJob, perform
from models.site.job import Job, RunEstimate
from models.site.runs import RunHistory
from tests.support.simulated_jobs import CPUS, Given, make


class Diary(RunMethod):
    """A method that keeps what it is asked and told."""

    name = "diary"

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []
        self.told: list[tuple[str, float]] = []

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        self.asked.append((job.id, elapsed_s))
        return RunEstimate(self.told[-1][1] if self.told else None, "the last one")

    def learn(self, job: Job, run_s: float, runs: RunHistory) -> None:
        self.told.append((job.id, run_s))


def test_predictor_learns_at_end_and_repredicts_the_users_jobs() -> None:
    diary = Diary()
    jobs = [make(1, 0, 8, 50, "ada"), make(2, 1, 8, 20, "ada"), make(3, 2, 8, 5, "bob"), make(4, 60, 8, 7, "ada")]
    perform(jobs, CPUS, "lewf", PredictedRunTimes(diary))
    assert diary.told == [("1", 50), ("2", 20), ("4", 7), ("3", 5)]
    # At 50, when 1 ends, 2 is of its user and queued; at 70, when 2 ends, so is 4: that is expected to run for 20, as 1
    # did for 50, which 3 was, when it came, for an hour.
    assert diary.asked == [("1", 0), ("2", 0), ("3", 0), ("2", 0), ("4", 0), ("4", 0)]


def test_lerwf_asks_how_long_jobs_run_given_how_long_they_have() -> None:
    diary = Diary()
    perform([make(1, 0, 4, 50), make(2, 30, 4, 50)], CPUS, "lerwf", PredictedRunTimes(diary))
    assert ("1", 30.0) in diary.asked and ("2", 20.0) in diary.asked


def test_estimates_without_a_prediction() -> None:
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
