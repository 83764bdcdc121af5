"""Knowledge about a site, and the predictions from it.

This package is pure: it maps events and numbers to predictions. It reads no clock and no file, and contacts no server,
so the stream, the replay and the tests share the same code.
"""

import os

# With more threads, sums have other last bits on a machine with more cores, and take longer on a busy one.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
