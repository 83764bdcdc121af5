"""A real Slurm on this machine, of Debian's packages: two partitions on three nodes, one with GPUs that are files.

Everything of it lies in one folder, on ports of its own: munge, MariaDB and slurmdbd for the accounting, slurmctld and
a slurmd a node. It is ended by the ids of its processes.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress

import psutil

from deploy.local.stack.process import free_port
from tests.support.real_scheduler import PATIENCE_S, RealScheduler

NODES = {"n1": "CPUs=4 RealMemory=1000", "n2": "CPUs=4 RealMemory=1000", "g1": "CPUs=4 RealMemory=2000 Gres=gpu:a100:2"}


class RealSlurm(RealScheduler):
    """`run` calls Slurm's commands, `submit` a job."""

    name = "Slurm"
    programs = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "squeue", "sacct")
    packages = "slurmctld slurmd slurmdbd slurm-client munge mariadb-server"

    def __init__(self, nodes: Mapping[str, str] = NODES) -> None:
        super().__init__(TZ="UTC")
        self._nodes = nodes
        self.environment["SLURM_CONF"] = str(self.directory / "slurm.conf")
        self._processes: list[psutil.Popen] = []

    def stop(self) -> None:
        """Cancel the jobs, then end the daemons and what they have started."""
        with suppress(subprocess.SubprocessError, OSError, AssertionError):
            for state in ("PENDING", "RUNNING"):
                self.run("scancel", f"--state={state}")
            self.until(lambda: not self.run("squeue", "--noheader"), 10.0)
        running = [*self._processes, *(child for parent in self._processes for child in self._children(parent))]
        for process in reversed(self._processes):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(running, timeout=10)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=10)

    @staticmethod
    def _children(process: psutil.Popen) -> list[psutil.Process]:
        try:
            return process.children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def run(self, *words: str) -> str:
        """What a command of Slurm's prints."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S)
        if done.returncode:
            raise subprocess.SubprocessError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def submit(self, *words: str, sleep: float = 1.0) -> str:
        """Submit a job that sleeps; gives its number."""
        return self.run("sbatch", "--parsable", "--output=/dev/null", *words, f"--wrap=sleep {sleep}").partition(";")[0]

    def rest(self) -> str:
        """The address of its REST service, on a socket here. It is Debian's package slurmrestd."""
        socket_at = self.directory / "rest.socket"
        safe = {"SLURMRESTD_SECURITY": "disable_user_check,disable_unshare_sysv,disable_unshare_files"}  # we are root
        words = ("slurmrestd", "-f", self.environment["SLURM_CONF"], "-a", "rest_auth/local", f"unix:{socket_at}")
        self._run(*words, more=safe)
        self.until(socket_at.exists)
        return f"unix://{socket_at}"

    def states(self) -> dict[str, str]:
        """The jobs that slurmctld knows and their states."""
        lines = self.run("squeue", "--noheader", "--states=all", "--format=%i %T").splitlines()
        return dict(line.split() for line in lines)  # type: ignore[misc]

    def start(self) -> None:
        """Write its configuration, start its daemons, and wait until its nodes are idle."""
        here = self.directory
        ctld, dbd, nodes = free_port(), free_port(), {name: free_port() for name in self._nodes}
        (here / "munge.key").write_bytes(os.urandom(1024))
        (here / "munge.key").chmod(0o400)
        (here / "slurm.conf").write_text("\n".join(self._configuration(ctld, dbd, nodes)) + "\n")
        for number in range(2):  # slurmd wants to see a device
            (here / f"gpu{number}").touch()
        if "g1" in nodes:
            (here / "gres.conf").write_text(f"NodeName=g1 Name=gpu Type=a100 File={here}/gpu[0-1]\n")
        (here / "slurmdbd.conf").write_text("\n".join(self._accounting(dbd)) + "\n")
        (here / "slurmdbd.conf").chmod(0o600)
        (here / "state").mkdir()
        self._munge()
        self._database()
        self._run("slurmdbd", "-D")
        self.until(lambda: _listens(dbd))
        self.until(lambda: self._output("sacctmgr", "--immediate", "add", "cluster", "alder"))
        self._account()
        self._run("slurmctld", "-D", "-c")
        self.until(lambda: _listens(ctld))
        for name in nodes:
            self._run("slurmd", "-D", "-c", "-N", name)
        shown = ("sinfo", "--noheader", "--Node", "--format=%N=%T")
        self.until(lambda: {f"{name}=idle" for name in nodes} <= set(self._output(*shown).split()))

    def _account(self) -> None:
        """Add accounts and users before slurmctld starts; none by default."""

    def _munge(self) -> None:
        here = self.directory
        words = [f"--{name}={here}/munge.{end}" for name, end in _MUNGE.items()]
        self._run("munged", "--foreground", "--force", "--num-threads=2", *words)
        self.until((here / "munge.socket").exists)

    def _database(self) -> None:
        data = f"--datadir={self.directory}/db"
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", data, "--user=root", "--skip-test-db", "--force"],
            check=True,
            capture_output=True,
            env=self.environment,
        )
        self._run(
            "mariadbd",
            "--no-defaults",
            data,
            f"--socket={self.directory}/db.socket",
            "--skip-networking",
            "--user=root",
            "--innodb-buffer-pool-size=64M",
            "--innodb-flush-log-at-trx-commit=0",
        )
        self.until((self.directory / "db.socket").exists)

    def _run(self, *words: str, more: dict[str, str] | None = None) -> None:
        own = {"MYSQL_UNIX_PORT": f"{self.directory}/db.socket"} | (more or {})
        name = "-".join(words) if words[0] == "slurmd" else words[0]
        with (self.directory / f"{name}.log").open("wb") as log:
            started = psutil.Popen(
                words, env=self.environment | own, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._processes.append(started)

    def _output(self, *words: str) -> str:
        """The output of a command; nothing while it fails."""
        try:
            return self.run(*words) or " "
        except subprocess.SubprocessError:
            return ""

    def logs(self) -> str:
        """The end of each daemon's log."""
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-600:]}" for path in self.directory.glob("*.log")
        )

    def _configuration(self, ctld: int, dbd: int, nodes: dict[str, int]) -> Iterator[str]:
        here, host = self.directory, socket.gethostname().partition(".")[0]
        yield from (
            "ClusterName=alder",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={ctld}",
            "SlurmUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={here}/munge.socket,cred_expire=5",  # a requeued job waits as long as this and no longer
            f"StateSaveLocation={here}/state",
            f"SlurmdSpoolDir={here}/spool-%n",
            f"SlurmctldPidFile={here}/slurmctld.pid",
            f"SlurmdPidFile={here}/slurmd-%n.pid",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "ReturnToService=2",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
            "DefMemPerCPU=100",
            "SlurmdParameters=config_overrides",
            "GresTypes=gpu",
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={dbd}",
            f"AccountingStoragePass={here}/munge.socket",
            "AccountingStorageTRES=gres/gpu",
            "JobAcctGatherType=jobacct_gather/none",
            "KillWait=1",
            "MailProg=/bin/true",
            *self._scheduling(),
        )
        for name, port in nodes.items():
            place = f"NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
            yield f"NodeName={name} {place} {self._nodes[name]} State=UNKNOWN"

    def _scheduling(self) -> Iterator[str]:
        """Yield the lines of slurm.conf about the scheduler and the partitions."""
        yield "SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=100000"
        yield "PartitionName=batch Nodes=n1,n2 Default=YES MaxTime=10 State=UP"
        yield "PartitionName=gpu Nodes=g1,n2 MaxTime=20 State=UP"

    def _accounting(self, dbd: int) -> Iterator[str]:
        yield from (
            "DbdHost=localhost",
            "DbdAddr=127.0.0.1",
            f"DbdPort={dbd}",
            "AuthType=auth/munge",
            f"AuthInfo=socket={self.directory}/munge.socket",
            "SlurmUser=root",
            f"PidFile={self.directory}/slurmdbd.pid",
            "StorageType=accounting_storage/mysql",
            "StorageHost=localhost",
            "StorageUser=root",
        )


_MUNGE = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "own.log", "seed-file": "seed"}


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
