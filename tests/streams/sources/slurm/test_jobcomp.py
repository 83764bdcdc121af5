"""Records of jobcomp/kafka, and the merge of Kafka partitions by time."""

import json
from collections import deque
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition

from streams.errors import UserError
from streams.sources.contract import SkippedPart
from streams.sources.slurm.attempt_rows import JobRow
from streams.sources.slurm.jobcomp import KafkaRecords, read_record, row_of
from streams.sources.slurm.polling import SlurmCursor
from tests.support.made_slurm import NOON, MadeJob, records

FINISH: dict[str, Any] = json.loads(records(MadeJob(number=7, submit=0, start=60, end=180))[1][1])


def one(**other: Any) -> JobRow:
    row = row_of(json.dumps(FINISH | other).encode())
    assert isinstance(row, JobRow)
    return row


def test_finish_record_becomes_ended_row() -> None:
    row = one()
    assert (row.job, row.phase, row.state) == ("7", "ended", "completed")
    assert (row.submit, row.start, row.end) == (NOON, NOON + 60, NOON + 180)
    assert (row.request.get("walltime"), row.request.get("cpus"), row.started_cpus) == (
        3600.0,
        4,
        4,
    )  # seconds, not minutes


def test_start_record_becomes_running_row() -> None:
    row = row_of(records(MadeJob(number=7, submit=0, start=60))[0][1])
    assert isinstance(row, JobRow)
    assert (row.phase, row.start, row.end) == ("running", NOON + 60, None)


def test_job_cancelled_while_pending_has_no_start() -> None:
    assert one(**{"@start": FINISH["@end"]}, elapsed=0, nodes=None, state="CANCELLED").start is None
    assert one(**{"@start": FINISH["@end"]}, elapsed=0, nodes="n1").start == NOON + 180


def test_pending_at_a_finish_is_a_requeue() -> None:
    assert one(state="PENDING").phase == "requeued"


@pytest.mark.parametrize("word", ["Unknown", "None"])
def test_finish_record_with_unknown_time_text_has_no_time(word: str) -> None:
    assert one(**{"@eligible": word}).eligible is None
    assert row_of(json.dumps(FINISH | {"@submit": word}).encode()) == "submit_time"


def test_jobcomp_record_of_array_task_or_het_job_is_named() -> None:
    assert one(array_job_id=5, array_task_id=0).job == "5_0"
    assert one(het_job_id=6).request.get("het_group") == "6"
    assert one(array_job_id=0, array_task_id=0, het_job_id=0).job == "7"


@given(st.binary(max_size=50) | st.dictionaries(st.sampled_from(sorted(FINISH)), st.none() | st.text() | st.integers()))
def test_read_record_accepts_or_skips_arbitrary_input(value: bytes | dict[str, Any]) -> None:
    skipped: list[SkippedPart] = []
    data = value if isinstance(value, bytes) else json.dumps(FINISH | value).encode()
    assert len(read_record(data, "here", 1, skipped.append).rows) + len(skipped) == 1


def test_deeply_nested_record_is_reported_as_skipped() -> None:
    """A reader that crashes on a record would crash on it again after each restart."""
    skipped: list[SkippedPart] = []
    assert read_record(b'{"jobid":5,"x":' + b"[" * 100_000, "here", 1, skipped.append).rows == []
    assert [part.expected for part in skipped] == ["a record of jobcomp/kafka, as JSON"]


class Message(NamedTuple):
    timestamp: int
    offset: int
    value: bytes


class Broker:
    """Fake consumer of a topic with two partitions; returns one message per poll."""

    def __init__(self, *partitions: list[tuple[int, bytes]], begin: int = 0) -> None:
        self.places = [TopicPartition("alder", number) for number in range(len(partitions))]
        self.logs = {
            place: [Message(stamp, begin + n, value) for n, (stamp, value) in enumerate(log)]
            for place, log in zip(self.places, partitions, strict=True)
        }
        self.begin, self.at = begin, dict.fromkeys(self.places, 0)
        self.turn = deque(self.places)

    def __call__(self, **_: Any) -> "Broker":
        return self

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {place.partition for place in self.places}

    def assign(self, places: Any) -> None: ...

    def beginning_offsets(self, places: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, self.begin)

    def end_offsets(self, places: Any) -> dict[TopicPartition, int]:
        return {place: self.begin + len(self.logs[place]) for place in places}

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.at[place] = offset

    def position(self, place: TopicPartition) -> int:
        return self.at[place]

    def poll(self, **_: Any) -> dict[TopicPartition, list[Message]]:
        self.turn.rotate()
        place = self.turn[0]
        there = self.logs[place][self.at[place] - self.begin :][:1]
        self.at[place] += len(there)
        return {place: there}

    def close(self) -> None: ...


def value(number: int) -> bytes:
    return json.dumps(FINISH | {"jobid": number}).encode()


def jobs(way: KafkaRecords, place: SlurmCursor) -> list[str]:
    found: list[str] = []
    for _ in range(20):
        found += [row.job for look in way.results(place) for row in look.rows]
    return found


def test_partitions_are_merged_by_broker_timestamp() -> None:
    broker = Broker([(1, value(1)), (4, value(4)), (5, value(5))], [(2, value(2)), (3, value(3))])
    place, skipped = SlurmCursor(slurm=1), list[SkippedPart]()
    way = KafkaRecords("broker:9092/alder", skipped.append, consumer=broker)
    assert jobs(way, place) == ["1", "2", "3", "4", "5"]
    assert place.offsets == {"alder/0": 3, "alder/1": 2}
    assert way.lag == {"records": 0.0}
    again = KafkaRecords("broker:9092/alder", skipped.append, consumer=Broker([(1, value(1))] * 4, [(2, value(2))] * 2))
    assert jobs(again, place) == ["1"]
    assert not skipped


def test_records_deleted_by_retention_are_reported() -> None:
    skipped: list[SkippedPart] = []
    way = KafkaRecords("broker:9092/alder", skipped.append, consumer=Broker([(1, value(1))], begin=7))
    assert jobs(way, SlurmCursor(slurm=1, offsets={"alder/0": 2})) == ["1"]
    assert [part.found for part in skipped] == ["5 records were deleted before they were read"]


@pytest.mark.parametrize("address", ["", "broker:9092", "broker:9092/", "/alder"])
def test_kafka_address_missing_broker_or_topic_is_rejected(address: str) -> None:
    with pytest.raises(UserError, match="expected kafka://"):
        KafkaRecords(address, lambda _: None, consumer=Broker([]))
