"""Compile the kernels of the methods at the first start on a machine, with two of its CPUs."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from models import kernel_folder, kernels
from models.engine.settings import EngineSettings
from models.engine.warm_up import warm_up, warm_up_half
from models.waits.order import compiled_steps
from streams import python_process
from streams.process.compile_progress import published
from streams.process.compiling import collecting_seldom, compiling_alone, reported_progress
from streams.settings.usable_cpus import usable_cpus


def compile_kernels(settings: EngineSettings, report: Callable[[str], None] = lambda _: None) -> None:
    """Compile what the methods need, unless it is in the cache. Remove kernels that were not used for long.

    Args:
        report: Receives progress reports, none if all is in the cache. `compile_progress` returns the latest one.
    """
    with compiling_alone(), published(report) as publish:
        with collecting_seldom(), reported_progress(publish), _second_process():
            warm_up(settings)
        kernel_folder.remove_unused()


@contextmanager
def _second_process() -> Iterator[None]:
    """Let another process compile half of the kernels meanwhile, if most are missing and there is a CPU for it."""
    if kernels.is_compiled(compiled_steps.__file__) or usable_cpus() < 2:
        yield
        return
    process = subprocess.Popen(python_process.command(__name__), env=python_process.environment())
    try:
        yield
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    with collecting_seldom():
        warm_up_half()
