"""A simulated site: a workload after a published model or from a trace, and the schedulers that run it.

For the demo grid, for what predicted run times gain (`queuecast simulate`), and for tests. Deterministic
from a seed; no prediction for a real site is made here: the schedules of those are in `models.waits.schedules`.

    jobs = generate(seed=1, jobs=10_000, cpus=512, load=0.85, start_time=1_700_000_000)
    for event in run(jobs, cpus=512, site="alpha"):
        ...
    perform(jobs, 512, "lewf-fill", Predicted(Learner(run_method_named("closest")))).wait_s
"""

from models.simulation.backfill import Conservative, Easy, EasyKill, Reservation
from models.simulation.comparison import Performance, perform
from models.simulation.estimates import Actual, Estimates, Learner, Predicted, RunTimePredictor
from models.simulation.multifactor import Multifactor, Priorities
from models.simulation.policies import POLICIES, run
from models.simulation.preemptive import EasyPreemptive, Lerwf, LerwfFill
from models.simulation.scheduler import Fcfs, FcfsFill, Lewf, LewfFill, Lwf, Scheduler
from models.simulation.workload import SimulatedJob, generate

__all__ = [
    "POLICIES",
    "Actual",
    "Conservative",
    "Easy",
    "EasyKill",
    "EasyPreemptive",
    "Estimates",
    "Fcfs",
    "FcfsFill",
    "Learner",
    "Lerwf",
    "LerwfFill",
    "Lewf",
    "LewfFill",
    "Lwf",
    "Multifactor",
    "Performance",
    "Predicted",
    "Priorities",
    "Reservation",
    "RunTimePredictor",
    "Scheduler",
    "SimulatedJob",
    "generate",
    "perform",
    "run",
]
