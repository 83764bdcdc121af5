"""A real Grid Engine on this machine, of Debian's packages: one queue of four slots on this host.

Everything of it lies in one folder, on ports of its own. It is ended by the ids of its processes. Jobs are submitted by
the user `games`, since root's do not run.
"""

import os
import signal
import subprocess
from pathlib import Path

import psutil

from deploy.local.stack.process import free_port
from tests.support.real_scheduler import RealScheduler

LIBRARY, SHARED, ROOT = Path("/usr/lib/gridengine"), Path("/usr/share/gridengine"), Path("/var/lib/gridengine")
USER, GROUP = 5, 60
"""Debian's games."""

GLOBAL = {
    "min_uid": "0",
    "min_gid": "0",
    "load_report_time": "00:00:01",
    "reporting_params": "accounting=true reporting=true flush_time=00:00:01 joblog=true sharelog=00:00:00",
}
SCHEDULER = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}
SCHEDULER |= {"job_load_adjustments": "NONE"}
ENVIRONMENT = {
    "pe_name": "smp",
    "slots": "999",
    "user_lists": "NONE",
    "xuser_lists": "NONE",
    "start_proc_args": "NONE",
    "stop_proc_args": "NONE",
    "allocation_rule": "$pe_slots",
    "control_slaves": "FALSE",
    "job_is_first_task": "TRUE",
    "urgency_slots": "min",
    "accounting_summary": "FALSE",
    "qsort_args": "NONE",
}
QUEUE = {"qname": "all.q", "hostlist": "localhost", "pe_list": "smp", "slots": "4", "rerun": "TRUE", "shell": "/bin/sh"}
QUEUE |= {"load_thresholds": "NONE"}  # jobs start however busy this machine is


class RealGridEngine(RealScheduler):
    """`run` calls its commands, `submit` a job."""

    name = "Grid Engine"
    programs = ("sge_qmaster", "sge_execd", "qconf", "qsub")
    packages = "gridengine-master gridengine-exec gridengine-client"

    def __init__(self) -> None:
        super().__init__(SGE_CELL="default", SGE_QMASTER_PORT=str(free_port()), SGE_EXECD_PORT=str(free_port()))
        self.environment["SGE_ROOT"] = str(self.directory)
        self.common = self.directory / "default" / "common"

    def stop(self) -> None:
        """End all whose environment names this folder: the daemons have left the processes that started them."""
        mine = [process for process in psutil.process_iter() if self._is_mine(process)]
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for process in mine:
                if process.is_running():
                    process.send_signal(sign)
            psutil.wait_procs(mine, timeout=5)

    def run(self, *words: str, user: bool = False) -> str:
        """What a command prints; where it fails so does the test."""
        who = {"user": USER, "group": GROUP, "extra_groups": ()} if user else {}
        done = subprocess.run(
            words, env=self.environment, cwd=self.directory, capture_output=True, text=True, timeout=30, **who
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout} {done.stderr}"
        return done.stdout

    def submit(self, *options: str, sleep: int) -> str:
        """Submit a job that sleeps so many seconds; gives its id."""
        silent = ("-o", "/dev/null", "-e", "/dev/null", "-cwd")
        return (
            self.run("qsub", "-terse", "-b", "y", *silent, *options, "sleep", str(sleep), user=True)
            .split(".")[0]
            .strip()
        )

    def start(self) -> None:
        """Write its configuration, start its two daemons, and wait until it knows this host."""
        spool = self.directory / "spool"
        for folder in (self.common, spool / "qmaster" / "job_scripts", spool / "db", spool / "execd"):
            folder.mkdir(parents=True)
        for name in ("bin", "lib", "util", "utilbin"):
            (self.directory / name).symlink_to((ROOT / name).resolve())
        (self.common / "act_qmaster").write_text("localhost\n")
        (self.common / "host_aliases").write_text(f"localhost {os.uname().nodename}\n")
        own = {"admin_user": "none", "spooling_params": str(spool / "db"), "qmaster_spool_dir": str(spool / "qmaster")}
        self._write(self.common / "bootstrap", (SHARED / "default-bootstrap").read_text(), own)
        self.run(str(LIBRARY / "spoolinit"), "berkeleydb", "libspoolb", str(spool / "db"), "init")
        configuration = self.directory / "configuration"
        own = GLOBAL | {"execd_spool_dir": str(spool / "execd")}
        self._write(configuration, (SHARED / "default-configuration").read_text(), own)
        defaults = str(LIBRARY / "spooldefaults")
        self.run(defaults, "configuration", str(configuration))
        self.run(defaults, "complexes", str(SHARED / "util" / "resources" / "centry"))
        self.run(defaults, "usersets", str(SHARED / "util" / "resources" / "usersets"))
        self.run(defaults, "managers", "root")
        self.run("sge_qmaster")
        self.until(self._answers)
        self.run("qconf", "-as", "localhost")
        self.run("qconf", "-am", "games")
        self._change("-Msconf", self.run("qconf", "-ssconf"), SCHEDULER)
        self._change("-Ap", "", ENVIRONMENT)
        self._change("-Aq", self.run("qconf", "-sq"), QUEUE)
        self.run("sge_execd")
        for path in self.directory.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        self.until(lambda: "lx-amd64" in self.run("qhost"))

    def _answers(self) -> bool:
        return subprocess.run(["qconf", "-sh"], env=self.environment, capture_output=True).returncode == 0

    def _change(self, option: str, text: str, changes: dict[str, str]) -> None:
        path = self.directory / option.strip("-")
        self._write(path, text, changes)
        self.run("qconf", option, str(path))

    def _write(self, path: Path, text: str, changes: dict[str, str]) -> None:
        """A configuration of lines `NAME VALUE` with other values."""
        left = dict(changes)
        lines = [
            f"{name} {left.pop(name)}" if (name := line.split(" ")[0]) in left else line for line in text.splitlines()
        ]
        path.write_text("\n".join([*lines, *(f"{name} {value}" for name, value in left.items()), ""]))

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("SGE_ROOT") == str(self.directory) and process.pid != os.getpid()
        except psutil.Error:
            return False

    def logs(self) -> str:
        """The end of the master's messages and of the reporting file."""
        paths = [self.directory / "spool" / "qmaster" / "messages", self.common / "reporting"]
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in paths if path.exists())
