"""A worker with several processes: their number, settings, and merged metrics."""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from streams import python_process
from streams.settings import KafkaSettings, Settings, WorkerSettings, sections
from streams.worker import supervisor
from streams.worker.supervisor import StartSettings, WorkerProcess, merged

PAGE = '# HELP a_total Of a.\n# TYPE a_total counter\na_total{site="x {y"} 1.0\na_total 2.0\n'
OTHER = "# HELP b Of b.\n# TYPE b gauge\nb 3.0\n"


@pytest.mark.parametrize(
    ("wanted", "partitions", "processes"), [(None, 12, 3), (None, 2, 2), (1, 12, 1), (8, 12, 8), (8, 4, 4)]
)
def test_worker_processes_are_limited_by_cpus_and_partitions(
    monkeypatch: pytest.MonkeyPatch, wanted: int | None, partitions: int, processes: int
) -> None:
    monkeypatch.setattr(sections, "usable_cpus", lambda: 3)
    assert WorkerSettings(processes=wanted).shared_by(partitions) == processes


def test_merged_metrics_have_process_labels() -> None:
    (a, b) = text_string_to_metric_families(merged({1: PAGE, 2: PAGE + OTHER}))
    assert [sample.labels for sample in a.samples] == [
        {"process": "1", "site": "x {y"},
        {"process": "1"},
        {"process": "2", "site": "x {y"},
        {"process": "2"},
    ]
    assert [(sample.labels, sample.value) for sample in b.samples] == [({"process": "2"}, 3.0)]


def test_worker_process_has_own_name_and_all_settings(tmp_path: Path) -> None:
    settings = Settings(worker=WorkerSettings(instance="w", processes=2, late_after_seconds=7.0))
    first, second = (WorkerProcess(number, settings, 12, tmp_path)._orders for number in (1, 2))
    assert [orders.settings.worker.name for orders in (first, second)] == ["w-1", "w-2"]
    assert first.slots == second.slots and first.socket != second.socket
    assert [orders.number for orders in (first, second)] == [0, 1]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(first), type=StartSettings) == first
    assert first.settings.worker.late_after_seconds == 7.0


@pytest.mark.parametrize(("cpus", "trainings"), [(1, 1), (4, 1), (7, 1), (8, 2), (64, 16)])
def test_crew_trains_once_for_every_four_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpus: int, trainings: int
) -> None:
    monkeypatch.setattr(supervisor, "usable_cpus", lambda: cpus)
    assert WorkerProcess(1, Settings(), 12, tmp_path)._orders.trainings == trainings


def test_worker_process_settings_have_no_file_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings hold passwords, and a restarted process gets the same settings."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    start_settings: list[StartSettings] = []

    async def starts(*command: str, pass_fds: list[int], **_: Any) -> None:
        assert [*command] == python_process.command("streams.worker.process", str(pass_fds[0]))
        assert len(pass_fds) == 1 and not [*tmp_path.iterdir()]
        start_settings.append(msgspec.msgpack.decode(os.pread(pass_fds[0], 1 << 20, 0), type=StartSettings))
        assert os.lseek(pass_fds[0], 0, os.SEEK_CUR) == 0

    monkeypatch.setattr(asyncio, "create_subprocess_exec", starts)
    member = WorkerProcess(1, Settings(kafka=KafkaSettings(password="hunter2", username="ada")), 12, tmp_path)
    for _ in range(2):
        asyncio.run(member.start())
    assert start_settings == [member._orders] * 2 and start_settings[0].settings.kafka.password == "hunter2"


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_merged_metrics_keep_names_with_line_separators(separator: str) -> None:
    page = f'# HELP queuecast_x X.\n# TYPE queuecast_x gauge\nqueuecast_x{{site="a{separator}b"}} 1.0\n'
    [family] = text_string_to_metric_families(merged({1: page}))
    assert [sample.labels for sample in family.samples] == [{"process": "1", "site": f"a{separator}b"}]
