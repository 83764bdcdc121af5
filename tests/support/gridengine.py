"""A real Grid Engine on this machine, of Debian's packages: one queue of four slots on this host.

Everything of it lies in one folder, on ports of its own. It is ended by the ids of its processes. Jobs are submitted by
the user `games`, since root's do not run.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psutil
import pytest

from deploy.local.stack.process import free_port

PROGRAMS = ("sge_qmaster", "sge_execd", "qconf", "qsub")
PACKAGES = "gridengine-master gridengine-exec gridengine-client"
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


def require_gridengine() -> None:
    """Skip, saying why, where Grid Engine is not installed or cannot be run; in CI that is a failure."""
    missing = [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)}; install {PACKAGES}")
    if os.geteuid() != 0:
        pytest.skip("sge_execd starts jobs, so the tests of a real Grid Engine run as root")


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin"


class RealGridEngine:
    """Use it as a context manager; `run` calls its commands, `submit` a job."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ge-"))
        self.directory.chmod(0o755)
        self.common = self.directory / "default" / "common"
        self.environment = os.environ | {
            "SGE_ROOT": str(self.directory),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(free_port()),
            "SGE_EXECD_PORT": str(free_port()),
            "PATH": _path(),
        }

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        mine = [process for process in psutil.process_iter() if self._is_mine(process)]
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for process in mine:
                if process.is_running():
                    process.send_signal(sign)
            psutil.wait_procs(mine, timeout=5)
        shutil.rmtree(self.directory, ignore_errors=True)

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

    def until(self, true: Callable[[], object], seconds: float = 40.0) -> None:
        """Wait for something to come true."""
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, self._messages()
            time.sleep(0.2)

    def _start(self) -> None:
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

    def _messages(self) -> str:
        paths = [self.directory / "spool" / "qmaster" / "messages", self.common / "reporting"]
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in paths if path.exists())
