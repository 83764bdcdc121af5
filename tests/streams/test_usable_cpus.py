"""The CPU limit of a container or a service bounds the number of processes."""

import os
from pathlib import Path

import pytest

from streams.settings.usable_cpus import usable_cpus

PRIVATE = {"proc/self/cgroup": "0::/\n"}
SERVICE = {"proc/self/cgroup": "0::/system.slice/worker.service\n"}
VERSION_1 = {"proc/self/cgroup": "8:pids:/\n4:cpu,cpuacct:/docker/1f\n"}
UNLIMITED = 16


@pytest.fixture(autouse=True)
def _affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(UNLIMITED)), raising=False)


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, UNLIMITED),
        (PRIVATE | {"sys/fs/cgroup/cpu.max": "max 100000\n"}, UNLIMITED),
        (PRIVATE | {"sys/fs/cgroup/cpu.max": "250000 100000\n"}, 3),
        (PRIVATE | {"sys/fs/cgroup/cpu.max": "5000 100000\n"}, 1),
        (PRIVATE | {"sys/fs/cgroup/cpu.max": "9900000 100000\n"}, UNLIMITED),
        (PRIVATE | {"sys/fs/cgroup/cpu.max": "junk"}, UNLIMITED),
        (PRIVATE | {"sys/fs/cgroup/cpu.max": "100000 0"}, UNLIMITED),
        (SERVICE | {"sys/fs/cgroup/system.slice/worker.service/cpu.max": "200000 100000"}, 2),
        (
            SERVICE
            | {
                "sys/fs/cgroup/system.slice/worker.service/cpu.max": "max 100000",
                "sys/fs/cgroup/system.slice/cpu.max": "400000 100000",
            },
            4,
        ),
        (SERVICE | {"sys/fs/cgroup/cpu.max": "200000 100000"}, 2),
        (VERSION_1 | {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 16),
        (
            VERSION_1
            | {
                "sys/fs/cgroup/cpu/docker/1f/cpu.cfs_quota_us": "150000\n",
                "sys/fs/cgroup/cpu/docker/1f/cpu.cfs_period_us": "50000\n",
            },
            3,
        ),
    ],
)
def test_usable_cpus_are_within_the_quota(files: dict[str, str], cpus: int, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cpus(tmp_path) == cpus
