"""The Slurm of the benchmark: 16 nodes, three partitions, multifactor priorities, limits and a reservation."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.benchmarks.slurm.workload import (
    ACCOUNTS,
    LARGE_SHARE,
    LONG_LIMIT_MIN,
    NODES,
    SHORT_LIMIT_MIN,
    BenchJob,
    Workload,
    account_of,
    user_name,
)
from tests.support.slurm import RealSlurm

FIRST_UID = 70_000
NOGROUP = 65_534
IN_NAMESPACE = "QUEUECAST_BENCH_PASSWD"
"""Variable with the file of users that is mounted over /etc/passwd in this mount namespace."""

SCHEDULER = (
    "bf_interval=2,bf_resolution=1,bf_window=1440,bf_continue,bf_max_job_test=2000,bf_max_time=30,"
    "default_queue_depth=2000,partition_job_depth=0,sched_interval=2,sched_min_interval=100000"
)
"""Fair to Slurm at this time scale: frequent and complete backfill cycles, at a resolution of one second."""


class BenchSlurm(RealSlurm):
    """A Slurm whose users are those of a workload."""

    def __init__(self, workload: Workload) -> None:
        size = f"CPUs={workload.cpus_per_node} RealMemory={workload.cpus_per_node * 100}"
        super().__init__({f"n{number:02d}": size for number in range(1, NODES + 1)})
        self._workload = workload
        self.users = sorted({job.user for job in workload.jobs})

    def command(self, job: BenchJob) -> tuple[str, ...]:
        """Return the words of `sbatch` for a job."""
        qos = "large" if job.cpus > LARGE_SHARE * self._workload.cpus else "normal"
        return (
            "sbatch",
            "--parsable",
            "--output=/dev/null",
            "--chdir=/tmp",
            "--export=NONE",
            f"--uid={user_name(job.user)}",
            f"--gid={NOGROUP}",
            f"--account={job.account}",
            f"--qos={qos}",
            f"--partition={job.partition}",
            f"--ntasks={job.cpus}",
            f"--time={job.limit_min}",
            f"--job-name={job.executable}",
            f"--wrap=sleep {job.run_s:.2f}",
        )

    def reserve(self, begin: str, minutes: int) -> None:
        """Reserve two nodes for maintenance."""
        words = ("ReservationName=upkeep", f"StartTime={begin}", f"Duration={minutes}", "Nodes=n15,n16")
        self.run("scontrol", "create", "reservation", *words, "Users=root", "Flags=MAINT,IGNORE_JOBS")

    def _scheduling(self) -> Iterator[str]:
        yield "SchedulerType=sched/backfill"
        yield f"SchedulerParameters={SCHEDULER}"
        yield "AccountingStorageEnforce=associations,limits,qos"
        yield "PriorityType=priority/multifactor"
        yield "PriorityDecayHalfLife=0-02:48:00"  # 7 days / 60
        yield "PriorityMaxAge=0-02:48:00"
        yield "PriorityCalcPeriod=1"
        yield "PriorityWeightAge=10000"
        yield "PriorityWeightFairshare=20000"
        yield "PriorityWeightPartition=3000"
        yield "PriorityWeightQOS=2000"
        yield "MessageTimeout=60"
        yield "MinJobAge=60"
        yield f"PartitionName=short Nodes=ALL MaxTime={SHORT_LIMIT_MIN} PriorityJobFactor=10 State=UP"
        yield f"PartitionName=batch Nodes=n[03-16] Default=YES MaxTime={LONG_LIMIT_MIN} PriorityJobFactor=5 State=UP"
        yield "PartitionName=long Nodes=n[05-16] MaxTime=UNLIMITED PriorityJobFactor=1 State=UP"

    def _account(self) -> None:
        cpus = self._workload.cpus
        manage = ("sacctmgr", "--immediate")
        self.run(*manage, "modify", "qos", "normal", "set", f"MaxTRESPerUser=cpu={int(LARGE_SHARE * cpus)}")
        self.run(*manage, "add", "qos", "large", "set", "GrpJobs=2", "Priority=10")
        for number in range(ACCOUNTS):
            limit = (f"GrpTRES=cpu={int(0.7 * cpus)}",) if number == 0 else ()
            words = ("cluster=alder", "Fairshare=1", "QOS=normal,large", *limit)
            self.run(*manage, "add", "account", account_of(number), *words)
            names = ",".join(user_name(user) for user in self.users if account_of(user) == account_of(number))
            if names:
                words = (f"account={account_of(number)}", "cluster=alder", "Fairshare=1", "MaxJobs=12")
                self.run(*manage, "add", "user", names, *words)


def enter_namespace(users: Iterable[int], directory: Path) -> None:
    """Restart this program in a mount namespace in which the users exist; return if it is in one already.

    The machine's /etc/passwd does not change.
    """
    if os.environ.get(IN_NAMESPACE):
        subprocess.run(["mount", "--bind", os.environ[IN_NAMESPACE], "/etc/passwd"], check=True)
        return
    lines = [f"{user_name(user)}:x:{FIRST_UID + user}:{NOGROUP}::/tmp:/bin/sh" for user in users]
    passwd = directory / "passwd"
    passwd.write_text(Path("/etc/passwd").read_text().rstrip("\n") + "\n" + "\n".join(lines) + "\n")
    passwd.chmod(0o644)
    words = ["unshare", "--mount", "--propagation=private", sys.executable, "-m", "tests.benchmarks.slurm"]
    os.execvpe(words[0], [*words, *sys.argv[1:]], os.environ | {IN_NAMESPACE: str(passwd)})
