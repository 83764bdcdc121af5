"""Fuzz file sources with randomly changed records: no crash, no hang, no invalid event.

TESTS_FUZZ_LINES sets the number of lines per source (default 2000). A million lines of one source take some
minutes on an idle machine:

    TESTS_FUZZ_LINES=1000000 .venv/bin/python -m pytest -s -k lsf tests/streams/sources/schedulers/test_mutated.py

Run by November 2026: a million lines per source.
"""

import json
import os
import random
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import msgspec
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.records import AnyEvent
from streams.sources.contract import MAX_CURSOR_BYTES, SkippedPart
from streams.sources.source_registry import source_named
from tests.streams.sources.schedulers import test_flux as flux
from tests.streams.sources.schedulers import test_gridengine as gridengine
from tests.streams.sources.schedulers import test_htcondor as htcondor
from tests.streams.sources.schedulers import test_kueue as kueue
from tests.streams.sources.schedulers import test_lsf as lsf
from tests.streams.sources.schedulers import test_pbs as pbs
from tests.support.made_slurm import history, records, sacct_json, squeue

LINES = int(os.environ.get("TESTS_FUZZ_LINES", "2000"))
LINES_AT_ONCE = min(20_000, max(LINES // 10, 200))
SECONDS_PER_LINE = 0.002
GROWTH_BYTES = 200 << 20

CORPUS: dict[str, list[str]] = {  # by source name, plus a suffix that makes it unique
    "pbs": [
        pbs.QUEUED,
        pbs.STARTED,
        pbs.ENDED,
        pbs.QUEUED.replace("7.srv", "7[].srv").replace("Resource_List.mem", "array_indices=1-6:2%3 Resource_List.mem"),
        pbs.STARTED.replace("7.srv", "7[2].srv"),
        "11/14/2023 22:13:20;Q;8.srv;queue=workq\n",
        "11/14/2023 22:13:40;a;7.srv;Resource_List.walltime=04:00:00\n",
        *(f"11/14/2023 22:16:00;{kind};7.srv;\n" for kind in "zrDRAMTcs"),
        "11/14/2023 22:16:00;S;9.srv;user=a start=1 Resource_Request_2.0=-L tasks=1:lprocs=8:memory=1GB -L tasks=2\n",
    ],
    "lsf": [
        lsf.new(),
        lsf.new(name="md[1-3]%2", depend="done(1)"),
        lsf.started(),
        lsf.started(index=2),
        lsf.executed(),
        lsf.finished(),
        lsf.FINISH2,
        *(lsf.status(code, lsf.T + code) for code in (1, 2, 4, 16, 32, 64)),
        f'"JOB_SWITCH" "10.1" {lsf.T} 1000 7 "short" 0 "ada"\n',
        f'"JOB_REQUEUE" "10.1" {lsf.T} 7 0\n',
        f'"JOB_CLEAN" "10.1" {lsf.T} 7 0\n',
    ],
    "gridengine": [
        gridengine.new(7),
        gridengine.accounted(7),
        "1000000360:acct:" + gridengine.accounted(7, task="3"),
        *(gridengine.log(1000000060, kind, 7) for kind in ("delivered", "suspended", "finished", "deleted", "restart")),
        *map(
            gridengine.as_json, (gridengine.new(8), gridengine.accounted(8), gridengine.log(1000000060, "delivered", 8))
        ),
    ],
    "htcondor": [
        *(htcondor.event(kind, kind) for kind in (0, 1, 4, 9, 10, 11, 12, 13)),
        htcondor.event(5, 20, htcondor.TERMINATED),
        htcondor.information(0, 0),
        htcondor.as_json(0, "2024-09-15T10:23:20Z", None),
        htcondor.as_json(1, "2024-09-15T12:23:30.500+02:00", 1),
        htcondor.ad(4) + "*** EPOCH ClusterId=7\n",
        "000 (8.000.000) 09/15 10:23:45 Job submitted\n...\n",
        '<c>\n<a n="EventTypeNumber"><i>1</i></a>\n<a n="Cluster"><i>7</i></a><a n="Proc"><i>0</i></a>\n'
        '<a n="EventTime"><s>2024-09-15T10:23:45</s></a>\n</c>\n',
    ],
    "flux-log": [flux.line(entry) for entry in flux.entries(7)],
    "kueue-log": [
        "".join(f"{text}\n" for text in (json.dumps(kueue.workload("a", *kueue.DONE), indent=indent),))
        for indent in (None, 4)
    ]
    + [kueue.listed(kueue.workload("b", *kueue.ADMITTED)), kueue.listed(kueue.workload("b"), indent=None)],
    "slurm": [
        f"{job}|{job}|alder|batch|normal|acc|grp|100|ada|1000|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T10:01:00|"
        f"2024-05-01T10:03:00|00:02:00|0:0|{state}|2|8|8|3000Mc|cpu=8,mem=24000M,node=2|{tres}|01:00:00|n[1-2]|md\n"
        for job in ("8_[1-9%3]", "9+1", *range(10, 410))
        for state in ("COMPLETED", "CANCELLED by 1000", "PREEMPTED", "PENDING", "RUNNING")
        for tres in ("", "billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=24000M,node=2")
    ],
    "slurm in JSON": [
        (look(made[begin : begin + 3], 400).decode() + "\n")
        for made in (history(1), history(2))
        for look in (squeue, sacct_json)
        for begin in range(0, 24, 3)
    ],
    "slurm by jobcomp": [f"{value.decode()}\n" for job in history(3) for _, value in records(job)],
    "events": [
        '{"type":"capacity","v":1,"site":"s","time":1.5,"cpus":8,"pools":[{"name":"p","nodes":1,"cpus":8}]}\n',
        '{"type":"submit","v":1,"site":"s","time":2,"job":"7","user":"ada","cpus":4,"gpu_types":{"a100":2}}\n',
        '{"type":"start","v":1,"site":"t","time":3,"job":"7","attempt":0,"cpus":4}\n',
        '{"type":"expected_start","v":1,"site":"s","time":3,"job":"7","by":"slurm","expected":9}\n',
        '{"type":"end","v":1,"site":"s","time":4,"job":"7","state":"failed"}\n',
    ],
}
ODD = ["", '"', "'", "\\", "\x00", "é", "\ud83d", "=", ":", ";", " ", "\t", "{", "}", "[]", "...", "-1", "0", "9" * 30]
ODD += [
    "1e308",
    "nan",
    "inf",
    "-0",
    "null",
    "true",
    "\\ud800",
    "\r",
    "\u2028",
    "x" * 5000,
    "[" * 5000,
    '{"a":' * 5000,
    "1-999999999",
    "*",
    "+",
    "%",
]


def mutated(chance: random.Random, corpus: list[str]) -> str:
    """Return a record unchanged or with up to three random changes."""
    text = chance.choice(corpus)
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        begin = chance.randrange(len(text) + 1)
        end = min(len(text), begin + chance.choice((0, 1, 3, 10, 100)))
        how = chance.randrange(6)
        if how == 0:
            text = text[:begin] + chance.choice(ODD) + text[end:]
        elif how == 1:
            text = text[:begin] + text[end:]
        elif how == 2:
            text = text[:begin] + text[begin:end] * 2 + text[end:]
        elif how == 3:
            other = chance.choice(corpus)
            text = text[:begin] + other[chance.randrange(len(other)) :]
        elif how == 4:
            text = text.replace(chance.choice("0123456789"), chance.choice("0123456789"), chance.choice((1, 2, 99)))
        else:
            text = text[:begin] + "".join(chance.choice(ODD) for _ in range(2)) + text[begin:]
    return text if text.endswith("\n") or chance.random() < 0.1 else text + "\n"


def written(path: Path, seed: int, corpus: list[str]) -> int:
    """Write mutated records after an unchanged first one, which identifies the format; return the number of lines."""
    chance, lines = random.Random(seed), corpus[0].count("\n")
    with path.open("wb") as file:
        file.write(corpus[0].encode())
        while lines < LINES_AT_ONCE:
            record = mutated(chance, corpus).encode("utf-8", "surrogatepass")
            lines += record.count(b"\n")
            file.write(record)
    return lines


def checked(events: list[AnyEvent], skipped: list[SkippedPart]) -> None:
    for event in events:
        assert msgspec.json.decode(msgspec.json.encode(event), type=AnyEvent) == event
    for part in skipped:
        assert len(str(part)) < 1000 and "\n" not in str(part)


@pytest.mark.timeout(600 + LINES // 100)
@pytest.mark.parametrize("name", CORPUS)
def test_sources_on_mutated_records_emit_valid_events(name: str, tmp_path: Path) -> None:
    path, read, emitted, bad = tmp_path / "log", 0, 0, 0
    before = psutil.Process().memory_info().rss

    @settings(max_examples=max(LINES // LINES_AT_ONCE, 1), deadline=None, database=None)
    @given(st.integers(0, 1 << 62))
    def search(seed: int) -> None:
        nonlocal read, emitted, bad
        lines = written(path, seed, CORPUS[name])
        skipped: list[SkippedPart] = []
        began = time.process_time()
        kind = source_named(name.partition(" ")[0])
        source = kind(str(path), "s", skipped.append)
        events = [event for _, event in kind.read_merged([source])]
        assert time.process_time() - began < max(SECONDS_PER_LINE * lines, 10)
        assert source.records
        checked(events, skipped)
        steps = source.events()
        cursors = [cursor for _, cursor in islice(steps, len(events) // 2) if cursor is not None]
        steps.close()  # type: ignore[attr-defined]
        assert max(map(len, cursors), default=0) <= MAX_CURSOR_BYTES
        read, emitted, bad = read + lines, emitted + len(events), bad + len(skipped)

    run: Callable[[], None] = search
    run()
    assert read >= LINES // 2 and emitted > LINES // 100 and bad > LINES // 100
    assert psutil.Process().memory_info().rss - before < GROWTH_BYTES
    print(f"{name}: {read} lines")


@pytest.mark.parametrize("inside", ["[", '{"a":'])
@pytest.mark.parametrize("name", ["events", "flux-log", "htcondor", "kueue-log"])
def test_deeply_nested_record_is_skipped(name: str, inside: str, tmp_path: Path) -> None:
    """A source that crashes on a record would crash on it again after each restart."""
    good = htcondor.as_json(0, "2024-09-15T10:23:20Z", None) if name == "htcondor" else CORPUS[name][0]
    (tmp_path / "log").write_text('{"a":' + inside * 50_000 + "}\n" + good)
    skipped: list[SkippedPart] = []
    assert list(source_named(name)(str(tmp_path / "log"), "s", skipped.append).read_all())
    assert [part.line for part in skipped] == [1]
