"""Slurm's notation of resources, times, job arrays and states."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.records import End
from streams.sources.slurm.attempt_rows import (
    ENDED,
    QUEUED,
    REQUEUED,
    RUNNING,
    SUSPENDED,
    UNCLEAR,
    array_of,
    gres_of,
    memory_of,
    name_of,
    phase_of,
    queues_of,
    resources_of,
    walltime_of,
)


@pytest.mark.parametrize(
    ("words", "phase"),
    [
        (("PENDING",), (QUEUED, "")),
        (("PENDING", "REQUEUED"), (QUEUED, "")),
        (("REQUEUE_HOLD",), (QUEUED, "")),
        (("RUNNING", "CONFIGURING"), (RUNNING, "")),
        (("CONFIGURING",), (RUNNING, "")),
        (("SUSPENDED",), (SUSPENDED, "")),
        (("COMPLETED", "COMPLETING"), (ENDED, "completed")),
        (("COMPLETING",), (UNCLEAR, "")),
        (("CANCELLED",), (ENDED, "cancelled")),
        (("OUT_OF_MEMORY",), (ENDED, "out_of_memory")),
        (("REQUEUED",), (REQUEUED, "requeued")),
        (("FOO",), None),
        ((), None),
    ],
)
def test_phase_of_state_words_returns_phase_and_state(words: tuple[str, ...], phase: tuple[str, str] | None) -> None:
    assert phase_of(words) == phase


def test_end_event_of_completed_job_omits_state() -> None:
    found = phase_of(("COMPLETED",))
    assert found is not None
    assert b"state" not in msgspec.json.encode(End(site="s", time=1.0, job="1", state=found[1]))


def test_resources_of_tres_string_returns_values() -> None:
    found = resources_of("cpu=64,mem=62.50G,node=2,billing=112,gres/gpu=4,gres/gpu:a100=4,license/matlab=2,what")
    assert (found.cpus, found.nodes, found.memory, found.gpus) == (64, 2, 67108864000, 4)
    assert found.gpu_types == {"a100": 4}
    assert found.licences == {"matlab": 2}
    assert resources_of("cpu=4, mem=1000M, node=1").memory == 1000 << 20
    assert resources_of("cpu=nan,gres/gpu:x=2").gpus == 2


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:a100:4(S:0-1)", {"a100": 4}),
        ("gres:gpu:2", {"": 2}),
        ("gres/gpu:h100:8,gres/gpu:2,nic:1", {"h100": 8, "": 2}),
        ("gpu", {"": 1}),
        ("gpu:v100", {"v100": 1}),
        ("gres/gpu=4", {"": 4}),
        ("", {}),
    ],
)
def test_gres_of_text_returns_gpus_by_type(text: str, gpus: dict[str, int]) -> None:
    assert gres_of(text) == gpus


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3-00:00:00", 259200),
        ("14:20:00", 51600),
        ("90", 5400),
        ("5:30", 330),
        ("1-12", 129600),
        ("Partition_Limit", None),
    ],
)
def test_walltime_of_text_returns_seconds(text: str, seconds: float | None) -> None:
    assert walltime_of(text) == (seconds, False)


def test_unlimited_walltime_has_no_value() -> None:
    assert walltime_of("UNLIMITED") == (None, True)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[1-3]", (3, None)),
        ("1-10:2,15%4", (6, 4)),
        ("[7-8%1]", (2, 1)),
        ("3", (1, None)),
        ("1-5,...", (5, None)),
        ("", (None, None)),
    ],
)
def test_array_of_task_list_returns_size_and_limit(text: str, found: tuple[int | None, int | None]) -> None:
    assert array_of(text) == found


def test_name_of_text_is_one_line_of_limited_length() -> None:
    assert name_of("a\nb\tc\x00") == "a b c"
    assert name_of("x" * 300) == "x" * 256
    assert name_of("(null)") is None
    assert name_of("\n") is None
    assert queues_of("gpu,batch") == ("gpu", ["gpu", "batch"])
    assert queues_of("batch") == ("batch", None)
    assert memory_of("3000M") == 3000 << 20
    assert memory_of("nothing") is None


@given(st.text(max_size=60) | st.text("0123456789-:,=%[]KMGcn./gpu", max_size=60))
def test_field_parsers_accept_arbitrary_text(text: str) -> None:
    resources_of(text)
    gres_of(text)
    walltime_of(text)
    array_of(text)
    memory_of(text)
    queues_of(text)
    assert len(name_of(text) or "") <= 256
