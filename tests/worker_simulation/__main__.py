"""Simulate many seeds: `python -m tests.worker_simulation --seeds 0-5000`."""

import argparse
import sys
import time
import traceback

from tests.worker_simulation.simulation import check


def main() -> int:
    """Simulate the seeds; return 1 if any failed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.worker_simulation", description=__doc__)
    parser.add_argument("--seeds", default="0-100", help="first and last seed, such as 0-5000, or a single one")
    parser.add_argument("--trace", action="store_true", help="print what was decided, also where nothing failed")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    failed, begun = 0, time.monotonic()
    for seed in range(int(first), int(last or first) + 1):
        try:
            simulation = check(seed)
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}")
            traceback.print_exc(limit=-3)
        else:
            if given.trace:
                print("\n".join(simulation.faults.trace))
        if seed % 50 == 49:
            print(f"{seed + 1} seeds, {failed} failed, {time.monotonic() - begun:.0f} s", flush=True)
    print(f"seeds {given.seeds}: {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
