"""What becomes of a question."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiokafka import TopicPartition
from aiokafka.errors import MessageSizeTooLargeError

from models.engine.asking.answers import answer
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyAnswer, DeadLetter, NoAnswer, SiteQuestion, WaitAnswer, WaitQuestion
from models.simulation import generate, run
from streams.settings import KafkaSettings
from streams.worker import questions
from streams.worker.metrics import Metrics
from streams.worker.questions import STALE_S, Questions
from streams.worker.stored import SiteHandle

STAMP_MS = 1_000_000
"""The broker's stamp of every question: far from any clock of this machine."""

ENGINE = EngineSettings(method="median", shadows=(), bounds="", history=50)


class AskedWorker:
    """A worker with one site that is asked questions: what it sent, and what it counted."""

    def __init__(self) -> None:
        self.engine = Engine("alder", ENGINE)
        for event in run(generate(3, 60, cpus=32, load=0.9), 32, "alder"):
            self.engine.apply(event)
        self.sent: list[tuple[str, bytes | None, Any, int | None]] = []
        self.metrics = Metrics([], 10)  # type: ignore[arg-type]
        handles = {"alder": SiteHandle(self.engine, 3)}
        producer: Any = SimpleNamespace(send=self._send)
        self.questions = Questions(KafkaSettings(prefix="x."), handles, lambda: frozenset({3}), self.metrics, producer)

    async def _send(self, topic: str, value: bytes, key: bytes | None, partition: int | None) -> Any:
        kind: Any = AnyAnswer if topic == "x.answers" else DeadLetter
        self.sent.append((topic, key, msgspec.json.decode(value, type=kind), partition))
        taken: Any = asyncio.get_running_loop().create_future()
        taken.set_result(SimpleNamespace(timestamp=STAMP_MS + 20))
        return taken

    def take(self, key: bytes | None, value: bytes | None, age_s: float = 0.0) -> None:
        message: Any = SimpleNamespace(
            topic="x.questions", partition=3, offset=5, key=key, value=value, timestamp=STAMP_MS
        )

        async def take() -> None:
            await self.questions.take(message, age_s)
            await asyncio.sleep(0)  # lets the broker's word about the answer come

        asyncio.run(take())

    def counted(self, status: str) -> float:
        value = self.metrics.registry.get_sample_value("queuecast_questions_total", {"status": status})
        return value or 0.0


encode = msgspec.json.encode


def test_a_question_is_answered_on_its_own_partition() -> None:
    asked = AskedWorker()
    question = WaitQuestion(id="q", site="alder", cpus=8, walltime=600.0)
    asked.take(b"alder", encode(question))
    told = msgspec.structs.replace(answer(question, asked.engine, asked.engine.time), as_of=asked.engine.time)
    assert asked.sent == [("x.answers", b"alder", told, 3)]
    assert asked.counted("answered") == 1
    assert asked.metrics.registry.get_sample_value("queuecast_answer_latency_seconds_sum") == pytest.approx(0.02)


def test_an_unknown_site_is_said_to_be_unknown() -> None:
    asked = AskedWorker()
    asked.take(b"nowhere", encode(SiteQuestion(id="q", site="nowhere")))
    ((topic, key, told, _),) = asked.sent
    assert (topic, key) == ("x.answers", b"nowhere")
    assert told == NoAnswer(
        id="q", site="nowhere", reason="unknown_site", detail="no event of a site 'nowhere' has been seen"
    )
    assert asked.counted("unknown_site") == 1


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"alder", None, "empty"),
        (b"alder", b"what?", "not_json"),
        (b"alder", b'{"type":"wait","id":"q","site":"alder","cpus":0}', "malformed"),
        (b"alder", b'{"type":"why","id":"q","site":"alder"}', "unknown_type"),
        (b"alder", b'{"type":"wait","id":"q","site":"alder","v":99}', "version"),
        (b"birch", b'{"type":"wait","id":"q","site":"alder"}', "wrong_key"),
        (b"alder", b" " * 70_000, "too_large"),
    ],
)
def test_what_is_no_question_is_a_dead_letter(key: bytes, value: bytes | None, reason: str) -> None:
    asked = AskedWorker()
    asked.take(key, value)
    (topic, _, letter, _), *refusals = asked.sent
    assert topic == "x.dead-letters" and isinstance(letter, DeadLetter)
    assert (letter.reason, letter.topic, letter.partition, letter.offset) == (reason, "x.questions", 3, 5)
    assert asked.counted("malformed") == 1
    readable = b'"id":"q"' in (value or b"")
    assert [(told.id, told.site, told.reason) for _, _, told, _ in refusals] == [("q", "alder", reason)] * readable


def test_nobody_waits_for_an_old_question() -> None:
    asked = AskedWorker()
    asked.take(b"alder", encode(WaitQuestion(id="q", site="alder")), age_s=STALE_S + 1)
    assert asked.sent == [] and asked.counted("stale") == 1


def test_a_flaw_is_answered_and_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object) -> WaitAnswer:
        raise RuntimeError("a flaw")

    asked = AskedWorker()
    monkeypatch.setattr(questions, "answer", broken)
    asked.take(b"alder", encode(WaitQuestion(id="q", site="alder")))
    ((_, _, told, _),) = asked.sent
    assert (told.reason, told.detail) == ("failed", "RuntimeError('a flaw')")
    assert "could not be answered" in caplog.text and asked.counted("failed") == 1


def test_a_question_that_the_client_refuses_to_carry_silences_no_other() -> None:
    asked = AskedWorker()
    question = encode(WaitQuestion(id="q", site="alder"))
    first, second = (
        SimpleNamespace(topic="x.questions", partition=3, offset=n, key=b"alder", value=question, timestamp=STAMP_MS)
        for n in range(2)
    )
    send, refusals = asked.questions._producer.send, [MessageSizeTooLargeError()]  # type: ignore[union-attr]

    async def sending(*message: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await send(*message)

    asked.questions._producer.send = sending  # type: ignore[union-attr,method-assign]
    consumer: Any = SimpleNamespace(highwater=lambda _: 2)
    asyncio.run(asked.questions._take_all(consumer, TopicPartition("x.questions", 3), [first, second]))  # type: ignore[list-item]
    assert len(asked.sent) == 1 and asked.counted("failed") == 1
