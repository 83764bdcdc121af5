"""What is known of a site and what is predicted from it.

Pure: events and numbers in, predictions out. Nothing here reads a clock, opens a file or talks to a server, so the
stream, the replay and the tests share one way through the code.
"""

import os

# With more threads, sums have other last bits on a machine with more cores, and take longer on a busy one.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
