"""`python -m streams` is `queuecast` without the commands that run a local stack (`python -m deploy` has these too)."""

import sys

from streams.cli.app import main

sys.exit(main())
