"""Records of slurmctld's plugin jobcomp/kafka: one when a job starts (since 25.05), and one when it ends.

The records have no key, so those of one job are in several partitions, and only the topic and absent fields distinguish
a start from an end. They are merged by the broker's timestamps, so that a job's records are in order.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from streams.errors import UNDECODABLE, InvalidInput, UserError
from streams.sources.contract import OnSkipped, SkippedPart
from streams.sources.logs.fields import by_name, iso_time
from streams.sources.slurm import attempt_fields
from streams.sources.slurm.any_release import json_time, words_of
from streams.sources.slurm.attempt_fields import EXPECTED, AttemptFields
from streams.sources.slurm.attempt_rows import ENDED, RUNNING, JobRow, phase_of
from streams.sources.slurm.polling import Poller, PollResult, SlurmCursor
from streams.text.toml import read_toml

REFRESH_S = 60.0  # seconds after which new partitions of the topics are looked for
MOST = 500  # maximum number of records yielded before other inputs get their turn

_NAMES = by_name(
    "job_id:jobid job_state:state submit_time:@submit eligible_time:@eligible start_time:@start end_time:@end"
    " user_name:username group_name:groupname name:job_name cpus:total_cpus node_count:total_nodes tasks:ntasks"
    " walltime:time_limit tres_req_str:tres_req tres_alloc_str:tres_alloc resv_name:reservation_name cluster account"
    " partition qos nodes features excluded_nodes elapsed array_job_id array_task_id het_job_id sluid"
    " original_sluid"
)
"""The names that a record has for the fields of `AttemptFields`. Times are UTC, its `time_limit` is in seconds."""

NO_NODES = "(null)"  # what stands for the nodes of a job that has none
RESIZED = "RESIZING"  # the state in the record of a size that has ended: the job runs on with another one
_OBJECT = msgspec.json.Decoder(dict[str, Any])


def row_of(value: bytes) -> JobRow | str:
    """Parse a record as a row, or return the name of the wrong field.

    Raises:
        ValueError: it is not such a record.
    """
    try:
        found = _OBJECT.decode(value)
    except UnicodeDecodeError:
        found = _OBJECT.decode(value.decode("utf-8", "replace"))
    record = msgspec.convert({ours: found.get(theirs) for ours, theirs in _NAMES.items()}, AttemptFields, strict=False)
    record.nodes = record.nodes or NO_NODES
    word = (words_of(record.job_state) or ("",))[0].partition(" ")[0]
    if record.end_time is None:
        word = "RUNNING"
    elif word != RESIZED and (phase := phase_of((word,))) is not None and phase[0] != ENDED:
        word = "REQUEUED"  # `scontrol requeue` writes PENDING
    record.job_state = word
    record.unlimited = record.walltime is None and record.start_time is not None and record.nodes != NO_NODES
    row = attempt_fields.row_of(record, _time)
    if isinstance(row, JobRow) and row.phase == RUNNING and row.start is None:
        return "start_time"
    return row


def _time(text: Any) -> float | None:
    """Unix seconds; old releases write words for a time that is unknown."""
    return iso_time(text) if isinstance(text, str) else json_time(text)


def read_record(value: bytes, where: str, line: int | None, on_skipped: OnSkipped) -> PollResult:
    """Parse a record as a poll result of one row; of none if it cannot be read."""
    try:
        row = row_of(value)
    except (ValueError, *UNDECODABLE) as error:
        on_skipped(
            SkippedPart(where, line, None, " ".join(str(error).split())[:200], "a record of jobcomp/kafka, as JSON")
        )
        return PollResult([], 0.0)
    if isinstance(row, str):
        on_skipped(SkippedPart(where, line, _NAMES[row], "missing or invalid", EXPECTED[row]))
        return PollResult([], 0.0)
    return PollResult([row], row.end or row.start or row.submit, late=True)


class _UnpairedRecord(NamedTuple):
    stamp: int
    partition: TopicPartition
    offset: int
    value: bytes


class KafkaRecords(Poller):
    """Records of the plugin's topics.

    Parameters:
        address: `HOST:PORT,…/TOPIC,…`: the brokers, and the topics of finished and of started jobs.
        options: a TOML file with more options of kafka-python's consumer, such as `security_protocol`.

    Raises:
        UserError: it is no such address, or no broker can be reached there.
    """

    def __init__(
        self, address: str, on_skipped: OnSkipped, options: str = "", consumer: Callable[..., Any] = KafkaConsumer
    ) -> None:
        super().__init__()
        brokers, _, topics = address.partition("/")
        self._topics = [topic for topic in topics.split(",") if topic]
        if not brokers or not self._topics:
            raise InvalidInput(f"kafka://{address}: expected kafka://HOST:PORT/TOPIC,TOPIC-job-start")
        self._on_skipped, self._brokers = on_skipped, brokers
        more = read_toml(Path(options)) if options else {}
        try:
            self._consumer = consumer(
                bootstrap_servers=brokers.split(","), enable_auto_commit=False, auto_offset_reset="earliest", **more
            )
        except KafkaError as error:
            raise UserError(f"kafka at {brokers}: {error}") from None
        self._waiting: dict[TopicPartition, deque[_UnpairedRecord]] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._refreshed = 0.0

    def results(self, place: SlurmCursor) -> Iterator[PollResult]:
        """The records up to where the partitions end now, by their time stamps."""
        try:
            self._refresh(place)
            self._fill()
        except KafkaError as error:
            self._on_skipped(
                SkippedPart(f"kafka at {self._brokers}", None, None, str(error), "a response of the broker")
            )
            return
        for _ in range(MOST):
            first = self._first()
            if first is None:
                break
            self._waiting[first.partition].popleft()
            place.offsets[_key(first.partition)] = first.offset + 1
            self.records += 1
            where = f"{first.partition.topic}, partition {first.partition.partition}, offset {first.offset}"
            yield read_record(first.value, where, None, self._on_skipped)
        ends = sum(self._ends.values())
        self.lag = {"records": max(0.0, float(ends - sum(place.offsets.get(_key(p), 0) for p in self._ends)))}

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()

    def _refresh(self, place: SlurmCursor) -> None:
        """Assign the current partitions, and resume in new ones at the saved offsets."""
        if self._waiting and not self._new_partitions():
            return
        found = [
            TopicPartition(t, n) for t in self._topics for n in sorted(self._consumer.partitions_for_topic(t) or ())
        ]
        if not found or set(found) == set(self._waiting):
            return
        self._consumer.assign(found)
        begins = self._consumer.beginning_offsets(found)
        for partition in found:
            wanted = place.offsets.get(_key(partition), begins[partition])
            if wanted < begins[partition]:
                lost = f"{begins[partition] - wanted} records were deleted before they were read"
                self._on_skipped(SkippedPart(_key(partition), None, None, lost, "records from where it stopped"))
            place.offsets[_key(partition)] = max(wanted, begins[partition])
            self._consumer.seek(partition, max(wanted, begins[partition]))
            self._waiting[partition] = deque()

    def _new_partitions(self) -> bool:
        """Check if a search for new partitions is due; not while records are buffered, or they would be read twice."""
        if any(self._waiting.values()) or time.monotonic() - self._refreshed < REFRESH_S:
            return False
        self._refreshed = time.monotonic()
        return True

    def _fill(self) -> None:
        """Read more records and, if none is buffered, query the end offsets."""
        if not self._waiting:
            return
        if not any(self._waiting.values()):
            self._ends = dict(self._consumer.end_offsets(list(self._waiting)))
        for partition, messages in self._consumer.poll(timeout_ms=200, max_records=MOST).items():
            self._waiting[partition] += [
                _UnpairedRecord(message.timestamp, partition, message.offset, message.value or b"")
                for message in messages
            ]

    def _first(self) -> _UnpairedRecord | None:
        """The earliest record, once each partition that has more has shown its own; None before."""
        heads: list[_UnpairedRecord] = []
        for partition, waiting in self._waiting.items():
            if waiting:
                heads.append(waiting[0])
            elif self._consumer.position(partition) < self._ends.get(partition, 0):
                return None
        return min(heads, default=None)


def _key(partition: TopicPartition) -> str:
    return f"{partition.topic}/{partition.partition}"
