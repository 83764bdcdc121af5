"""Train the prior on logs and on generated months: `python -m tests.prior.train LOG...`, or `make prior`."""

from argparse import ArgumentParser
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from models.waits.boosted.prior import FILE
from streams.offline.pretraining import prior_of, training_set_of
from tests.prior.months import lesson_of_months


def main() -> None:
    """Write the prior to the package; its bytes are independent of the order of the logs."""
    parser = ArgumentParser(prog="python -m tests.prior.train", description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    logs = sorted(parser.parse_args().logs)
    with ProcessPoolExecutor() as cores:
        found = prior_of([*cores.map(training_set_of, logs), lesson_of_months(cores)])
    FILE.write_bytes(found.encode())
    print(f"learnt from {found.jobs} jobs of {', '.join(log.name for log in logs)}, and made ones; {found.version}")


if __name__ == "__main__":
    main()
