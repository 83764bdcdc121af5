"""The command `queuecast`, also as `python -m queuecast`."""

import os
import sys

# Kernels for any CPU of the architecture: they are as fast, and an image or a shared folder can hold them ready.
os.environ.setdefault("NUMBA_CPU_NAME", "generic")

from deploy.cli import main  # numba reads its settings when it is imported

if __name__ == "__main__":
    sys.exit(main())
