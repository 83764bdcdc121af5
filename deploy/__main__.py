"""`python -m deploy` is `queuecast`."""

import sys

from deploy.cli import main

sys.exit(main())
