"""Linear algebra runs in one thread, so results do not depend on the number of CPUs."""

import os
import subprocess
import sys

SHOWN = """
import models.engine.engine
from threadpoolctl import threadpool_info

print(sorted({pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}))
"""


def test_linear_algebra_has_one_thread() -> None:
    without = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True, check=True, env=without)
    assert done.stdout == "[1]\n"
