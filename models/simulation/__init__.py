"""A simulated site: a workload after a published model or from a trace, and the schedulers that run it.

For the demo grid, for what predicted run times gain (`queuecast simulate`), and for tests. Deterministic
from a seed; no prediction for a real site is made here: the schedules of those are in `models.waits.schedules`.

    jobs = generate(seed=1, jobs=10_000, cpus=512, load=0.85, start_time=1_700_000_000)
    for event in run(jobs, cpus=512, site="alpha"):
        ...
    perform(jobs, 512, "lewf-fill", PredictedRunTimes(run_method_named("closest"))).wait_s
"""

from models.simulation.assumed_run_times import Actual, Estimates, PredictedRunTimes
from models.simulation.backfill import Conservative, Easy, EasyKill
from models.simulation.comparison import Performance, perform
from models.simulation.multifactor import Multifactor, Priorities
from models.simulation.policies import POLICIES, WITHOUT_RUN_TIMES, run
from models.simulation.preemptive import EasyPreemptive, Lerwf
from models.simulation.scheduler import OrderedScheduler, Scheduler
from models.simulation.workload import SimulatedJob, generate
