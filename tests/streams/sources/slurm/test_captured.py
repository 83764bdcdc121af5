"""What `queuecast capture` records: no name is left, and the source reads it as what was answered."""

import json
import os
import re
from pathlib import Path

import msgspec
import pytest

from models.records import Capacity, Start, Submit
from streams.errors import UserError
from streams.operate.capture import capture
from streams.sources.slurm.source import SlurmSource
from tests.support.made_slurm import MadeJob, sacct, squeue
from tests.support.source_contract import events_there

JOBS = [
    MadeJob(number=1, submit=0, start=10, end=90, user="lovelace"),
    MadeJob(number=2, submit=5, user="hopper"),
    *(MadeJob(number=10 + n, array=10, task=n, submit=0, user="lovelace") for n in range(3)),
]
NAMES = ("lovelace", "hopper", "batch", "secret", "n1", "alder", "physics")
MACHINE = {
    "node": "NodeName=n1 CPUTot=8 State=IDLE RealMemory=1000 Partitions=batch OS=secret Reason=hopper Comment=alder",
    "partition": "PartitionName=batch AllowAccounts=physics State=UP MaxTime=UNLIMITED PriorityTier=1 Nodes=n[1-2]",
    "reservation": "ReservationName=secret StartTime=2026-01-02T12:00:00 EndTime=2026-01-02T14:00:00 Nodes=n1 "
    "Users=hopper",
}


def answers(directory: Path) -> None:
    """Stand-ins of Slurm's programs, whose queue has what no release had yet."""
    document = json.loads(squeue(JOBS, 100))
    for job in document["jobs"]:
        job |= {"name": "secret", "a_new_field": {"of": ["physics"]}, "account": "physics"}
        job |= {"user_id": 1234, "group_id": 1234}
    (directory / "squeue.json").write_text(json.dumps(document))
    rows = sacct(JOBS[:2], 100).replace("|", "\x1f").replace("COMPLETED", "CANCELLED by 1234").splitlines()
    more = ["UID\x1fSubmitLine\x1fGID", *["1234\x1fsbatch --export=secret=1234\nx\x1f1234"] * 2]
    (directory / "sacct.txt").write_text("".join(f"{a}\x1f{b}\n" for a, b in zip(more, rows, strict=True)))
    for what, line in MACHINE.items():
        (directory / f"{what}.txt").write_text(f"{line}\n")
    programs = {
        "squeue": f'test "$1" = --version && echo "slurm 99.1" || cat {directory}/squeue.json',
        "scontrol": f"cat {directory}/$3.txt",
        "sacct": f'test "$1" = --helpformat && echo "JobID User State" || cat {directory}/sacct.txt',
    }
    for name, script in programs.items():
        (directory / name).write_text(f"#!/bin/sh\n{script}\n")
        (directory / name).chmod(0o755)


def captured(directory: Path) -> Path:
    (directory / "bin").mkdir()
    answers(directory / "bin")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", f"{directory / 'bin'}:/usr/bin:/bin")
        capture("slurm", directory / "looks", (), lambda _: None, 2, 0.0)
    return directory / "looks"


def test_no_name_is_left(tmp_path: Path) -> None:
    for path in captured(tmp_path).iterdir():
        text = path.read_text()
        assert not re.findall(rf"\b({'|'.join(NAMES)})\b", text), path
        assert "1234" not in text


def test_it_is_read_as_what_was_answered(tmp_path: Path) -> None:
    found = [event for event, _ in events_there(SlurmSource(str(captured(tmp_path)), "here"))]
    submits = {event.job: event for event in found if isinstance(event, Submit)}
    assert submits.keys() == {"1", "2", "10"} and submits["10"].array_size == 3
    assert submits["1"].user == submits["10"].user != submits["2"].user
    (capacity,) = (event for event in found if isinstance(event, Capacity))
    assert capacity.partitions[0].name == submits["1"].queue
    assert capacity.reservations[0].users == [submits["2"].user]
    assert [event.job for event in found if isinstance(event, Start)] == ["1"]
    about = msgspec.json.decode((tmp_path / "looks" / "about.json").read_bytes())
    assert (about["version"], about["otherwise"]) == (["slurm 99.1"], 0)


def test_a_queue_that_cannot_be_asked_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="squeue: cannot be run"):
        capture("slurm", tmp_path / "looks", (), lambda _: None, 1)


def test_from_every_cursor_of_it_the_source_goes_on(tmp_path: Path) -> None:
    location = os.environ.get("TESTS_CAPTURED") or str(captured(tmp_path))

    def opened() -> SlurmSource:
        return SlurmSource(location, "here", lambda _: None)

    steps = events_there(opened())
    assert steps
    for place, (_, cursor) in enumerate(steps, 1):
        if cursor is not None:
            assert [event for event, _ in events_there(opened(), cursor)] == [event for event, _ in steps[place:]]
