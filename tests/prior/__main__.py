"""Train the prior of the package on logs: `python -m tests.prior LOG... [--out FILE] [--without PART]`."""

from argparse import ArgumentParser
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from models.waits.boosted.prior import FILE
from tests.prior.lessons import lesson_of, prior_of


def main() -> None:
    """Read the logs on all cores, train on one, and write the trees."""
    parser = ArgumentParser(prog="python -m tests.prior", description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--without", default="", help="leave out the logs whose names begin so")
    options = parser.parse_args()
    logs = [log for log in sorted(options.logs) if not (options.without and log.name.startswith(options.without))]
    with ProcessPoolExecutor() as cores:
        prior = prior_of(cores.map(lesson_of, logs))
    options.out.write_bytes(prior.encode())
    print(f"{options.out}: {prior.jobs} jobs of {len(logs)} logs, version {prior.version}")


if __name__ == "__main__":
    main()
