"""Number of CPUs that this process may use."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def usable_cpus(root: Path = ROOT) -> int:
    """Return the number of CPUs that this process may use: those of its affinity, within the quota of its cgroups.

    A container or a systemd service with a CPU limit sees all CPUs of the machine. A quota of 2.5 CPUs counts as 3.

    Args:
        root: the folder that contains `proc` and `sys`.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min([affinity, *map(math.ceil, _quotas(root))]), 1)


def _quotas(root: Path) -> Iterator[float]:
    """Yield the CPU quotas of the cgroups of this process (version 2 or 1) and of their parents."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, limits = root / "sys/fs/cgroup", ["cpu.max"]
        elif "cpu" in controllers.split(","):
            base, limits = root / "sys/fs/cgroup/cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        group = base / path.lstrip("/")  # missing in a cgroup namespace, where `base` is the group itself
        for folder in (group, *group.parents):
            if folder.is_relative_to(base):
                quota, period = [*" ".join(_read(folder / name) for name in limits).split(), "", ""][:2]
                if quota.isdecimal() and period.isdecimal() and int(period):
                    yield int(quota) / int(period)


def _read(path: Path) -> str:
    """Read a file of the kernel; empty if there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""
