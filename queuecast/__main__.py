"""The command `queuecast`, also as `python -m queuecast`."""

import sys

from deploy.cli import main

if __name__ == "__main__":
    sys.exit(main())
