"""`python -m streams` is `queuecast`."""

import sys

from streams.cli.cli import main

sys.exit(main())
