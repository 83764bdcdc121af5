"""Line below `Submitted batch job`, printed by the cli_filter plugin of a real Slurm."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.test_slurm_line import SCRIPT, TEXT, Service

pytestmark = pytest.mark.long

PATIENCE_S = 60.0
LINE = f"queuecast: {TEXT}\n"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Any]:
    support = pytest.importorskip("tests.support.slurm")
    support.RealSlurm.require()
    with support.RealSlurm() as found:
        yield found


def test_sbatch_prints_expected_start_of_job(slurm: Any, tmp_path: Path) -> None:
    with Service().running() as service:
        text = SCRIPT.read_text(encoding="utf-8").replace("only_terminal = true", "only_terminal = false")
        (tmp_path / "cli_filter.lua").write_text(text.replace("http://127.0.0.1:6067", service.url))
        configuration = (slurm.directory / "slurm.conf").read_text()
        (tmp_path / "slurm.conf").write_text(f"{configuration}CliFilterPlugins=lua\n")
        environment = slurm.environment | {"SLURM_CONF": str(tmp_path / "slurm.conf"), "USER": "ada"}

        def submit_output(*words: str) -> str:
            done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
            assert done.returncode == 0, done.stderr
            return done.stderr

        batch = ("sbatch", "--output=/dev/null", "--wrap=true")
        assert submit_output(*batch, "--ntasks=2", "--cpus-per-task=2", "--time=1-02:00") == LINE
        assert submit_output(*batch, "--array=1-2") == LINE
        paths = [path.partition("?") for path, _ in service.requests]
        assert [query for *_, query in paths] == ["cpus=4&walltime=93600s&user=ada", "cpus=1&user=ada"]
        assert all(path.startswith("/v1/sites/alder/jobs/") for path, *_ in paths)
        for words, expected in (
            (("--gres=gpu:1", "--partition=gpu"), "cpus=1&gpus=1&partition=gpu"),
            (("--gpus=2", "--partition=gpu"), "cpus=1&gpus=2&partition=gpu"),
            (("--nodes=1", "--gpus-per-node=1", "--partition=gpu"), "cpus=1&gpus=1&partition=gpu"),
            (("--nodes=2", "--ntasks-per-node=2"), "cpus=4"),
        ):
            service.requests.clear()
            assert submit_output(*batch, *words) == LINE
            assert service.requests[0][0].partition("?")[2] == f"{expected}&user=ada"
        for words in ((*batch, "--parsable"), (*batch, "--quiet"), ("srun", "--ntasks=1", "true")):
            assert "queuecast" not in submit_output(*words)
        service.body = None
        service.requests.clear()
        assert submit_output(*batch) == ""
        assert len(service.requests) == 1
