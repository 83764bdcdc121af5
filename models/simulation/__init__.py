"""A simulated site: a workload after a published model, and a scheduler that runs it.

Pure and deterministic from a seed: for the demo grid, for measuring what routing between sites gains, and for tests.

    jobs = generate(seed=1, jobs=10_000, cpus=512, load=0.85, start_time=1_700_000_000)
    for event in run(jobs, cpus=512, site="alpha"):
        ...
"""

from models.simulation.scheduler import POLICIES, Easy, Fcfs, Reservation, Scheduler, run
from models.simulation.workload import SimulatedJob, generate

__all__ = ["POLICIES", "Easy", "Fcfs", "Reservation", "Scheduler", "SimulatedJob", "generate", "run"]
