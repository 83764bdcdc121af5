"""Answers of a worker to questions."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiokafka.errors import MessageSizeTooLargeError

from models.engine.asking.engine_answers import answer
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import (
    AnyAnswer,
    AnyQuestion,
    DeadLetter,
    JobsQuestion,
    NoAnswer,
    SiteQuestion,
    Submit,
    WaitAnswer,
    WaitQuestion,
)
from models.simulation import generate, run
from streams.settings import EstimateSettings, KafkaSettings, QuestionSettings
from streams.worker.answers import answering
from streams.worker.answers.answering import MOST_ANSWERED, SAME_S, Answering
from streams.worker.answers.background_answers import Questions
from streams.worker.answers.estimate_grid import EstimateGrids
from streams.worker.answers.time_slicer import TimeSlicer
from streams.worker.checkpoint.stored_site import SiteHandle
from streams.worker.metrics.process_metrics import Metrics

STAMP_MS = 1_000_000
"""The broker's timestamp of all questions, far from this machine's clock."""

ENGINE = EngineSettings(method="median", shadows=(), bounds="", history=50)


def message_of(value: bytes | None, stamp_ms: float = STAMP_MS, key: bytes | None = b"alder") -> Any:
    """Return a question as a message of its topic."""
    place = {"topic": "x.questions", "partition": 3, "offset": 5, "timestamp_type": 1}
    return SimpleNamespace(key=key, value=value, timestamp=stamp_ms, **place)


class QuestionWorker:
    """A worker with one site: record the answers that it sends and counts."""

    def __init__(self, settings: QuestionSettings | None = None) -> None:
        self.engine = Engine("alder", ENGINE)
        for event in run(generate(3, 60, cpus=32, load=0.9), 32, "alder"):
            self.engine.apply(event)
        self.sent: list[tuple[str, bytes | None, Any, int | None]] = []
        self.metrics = Metrics(10)
        handles = {"alder": SiteHandle(self.engine, 3)}
        producer: Any = SimpleNamespace(send=self._send)
        self.turns = TimeSlicer()
        self.grids = EstimateGrids(handles, EstimateSettings(cpu_share=1.0), self._send_estimate)
        self.questions = Questions(
            KafkaSettings(prefix="x."),
            settings or QuestionSettings(),
            lambda: frozenset({3}),
            self.metrics.questions,
            self.metrics.answers,
            Answering(handles, grids=self.grids),
            self.turns,
            producer,
        )

    async def _send_estimate(self, *_: Any) -> Any:
        return asyncio.sleep(0)

    async def _send(self, topic: str, value: bytes, key: bytes | None, partition: int | None) -> Any:
        kind: Any = AnyAnswer if topic == "x.answers" else DeadLetter
        self.sent.append((topic, key, msgspec.json.decode(value, type=kind), partition))
        taken: Any = asyncio.get_running_loop().create_future()
        taken.set_result(SimpleNamespace(timestamp=STAMP_MS + 20))
        return taken

    def take(self, key: bytes | None, value: bytes | None) -> None:
        async def take() -> None:
            await self.questions.take(message_of(value, key=key))
            await self.answer_those_that_wait()

        asyncio.run(take())

    async def answer_those_that_wait(self) -> None:
        task = asyncio.create_task(self.questions._answer_all())
        while len(self.questions._waiting):
            await asyncio.sleep(0)
        await self.turns.take(lambda: None, 1.0, ("alder", "question", 0))
        await asyncio.sleep(0.01)  # lets the broker acknowledge the answer
        task.cancel()

    def flood(self, questions: list[AnyQuestion], after_s: float = 0.0) -> list[Any]:
        """Return the answers to simultaneous questions, computed `after_s` seconds later."""

        async def flood() -> None:
            for question in questions:
                await self.questions.take(message_of(msgspec.json.encode(question)))
            await asyncio.sleep(after_s)
            await self.answer_those_that_wait()

        asyncio.run(flood())
        return [content for _, _, content, _ in self.sent]

    def counted(self, status: str) -> float:
        value = self.metrics.registry.get_sample_value("queuecast_questions_total", {"status": status})
        return value or 0.0


encode = msgspec.json.encode


def test_question_answer_is_sent_to_same_partition() -> None:
    worker = QuestionWorker()
    question = WaitQuestion(id="q", site="alder", cpus=8, walltime=600.0)
    worker.take(b"alder", encode(question))
    expected = msgspec.structs.replace(answer(question, worker.engine, worker.engine.time), as_of=worker.engine.time)
    assert worker.sent == [("x.answers", b"alder", expected, 3)]
    assert worker.counted("answered") == 1
    assert worker.metrics.registry.get_sample_value("queuecast_answer_latency_seconds_sum") == pytest.approx(0.02)


def test_question_for_unknown_site_returns_unknown_site() -> None:
    worker = QuestionWorker()
    worker.take(b"nowhere", encode(SiteQuestion(id="q", site="nowhere")))
    ((topic, key, content, _),) = worker.sent
    assert (topic, key) == ("x.answers", b"nowhere")
    assert content == NoAnswer(
        id="q", site="nowhere", reason="unknown_site", detail="no event of a site 'nowhere' has been seen"
    )
    assert worker.counted("unknown_site") == 1


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
def test_malformed_question_becomes_dead_letter(key: bytes, value: bytes | None, reason: str) -> None:
    worker = QuestionWorker()
    worker.take(key, value)
    (topic, _, letter, _), *refusals = worker.sent
    assert topic == "x.dead-letters" and isinstance(letter, DeadLetter)
    assert (letter.reason, letter.topic, letter.partition, letter.offset) == (reason, "x.questions", 3, 5)
    assert worker.counted("malformed") == 1
    readable = b'"id":"q"' in (value or b"")
    assert [(one.id, one.site, one.reason) for _, _, one, _ in refusals] == [("q", "alder", reason)] * readable


def test_question_that_raises_is_answered_failed_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> WaitAnswer:
        raise RuntimeError("a flaw")

    worker = QuestionWorker()
    monkeypatch.setattr(answering, "answer", broken)
    worker.take(b"alder", encode(WaitQuestion(id="q", site="alder")))
    ((_, _, content, _),) = worker.sent
    assert (content.reason, content.detail) == ("failed", "RuntimeError('a flaw')")
    assert "Cannot answer question" in caplog.text and worker.counted("failed") == 1


def test_question_that_cannot_be_sent_blocks_no_other() -> None:
    worker = QuestionWorker()
    first, second = (message_of(encode(WaitQuestion(id=name, site="alder"))) for name in "qr")
    send, refusals = worker.questions.producer.send, [MessageSizeTooLargeError()]  # type: ignore[union-attr]

    async def sending(*message: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await send(*message)

    worker.questions.producer.send = sending  # type: ignore[union-attr,method-assign]

    async def take_both() -> None:
        await worker.questions._take_all([first, second])
        await worker.answer_those_that_wait()

    asyncio.run(take_both())
    assert len(worker.sent) == 1 and worker.counted("failed") == 1


def wait(number: int, client: str | None = "ada") -> WaitQuestion:
    return WaitQuestion(id=f"{client} {number}", site="alder", cpus=5, walltime=600.0 + number, client_id=client)


def test_clients_take_turns_within_their_quota() -> None:
    worker = QuestionWorker(QuestionSettings(max_pending=100, max_pending_per_client=4))
    flood = [wait(number) for number in range(10)]
    answers = worker.flood([*flood, wait(0, "bob"), wait(0, None)])
    refused = [one for one in answers if isinstance(one, NoAnswer)]
    assert [(one.id, one.reason) for one in refused] == [(f"ada {number}", "quota") for number in range(6)]
    assert all("questions.max_pending_per_client" in one.detail for one in refused)
    answered = [one.id for one in answers if isinstance(one, WaitAnswer)]
    assert answered == ["ada 6", "bob 0", "None 0", "ada 7", "ada 8", "ada 9"], "the latest ones"
    assert (worker.counted("quota"), worker.counted("answered")) == (6, 6)


def test_full_question_queue_answers_by_grid_estimate() -> None:
    worker = QuestionWorker(QuestionSettings(max_pending=1))
    asyncio.run(worker.grids.refresh(worker.grids.handles["alder"]))
    jobs = JobsQuestion(id="jobs", site="alder", user="u1")
    huge = WaitQuestion(id="huge", site="alder", cpus=1000)
    answers = {one.id: one for one in worker.flood([wait(1), jobs, huge, wait(2)])}
    assert answers["ada 2"].source == "what-if", "the latest one"
    grids = answers["ada 1"]
    shape = worker.grids.covering(worker.grids.handles["alder"], 5, 601.0, None, 0)
    assert shape is not None and (shape.cpus, shape.walltime) == (8, 3600.0)
    assert grids.source == "grid" and grids.predicted_wait_s == shape.predicted_wait_s
    assert [answers[name].reason for name in ("jobs", "huge")] == ["busy", "busy"], "no shape is an answer to these"
    assert [worker.counted(status) for status in ("answered", "grid", "busy")] == [1, 1, 2]


def test_expired_question_costs_no_work() -> None:
    worker = QuestionWorker(QuestionSettings(max_wait_seconds=0.05))
    answers = worker.flood([wait(0), wait(1)], after_s=0.1)
    assert [one.reason for one in answers] == ["busy", "busy"] and worker.counted("busy") == 2


def test_same_question_is_computed_once_until_event_or_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, now, worked_out = QuestionWorker(), 0.0, []

    def counting(question: AnyQuestion, *rest: Any) -> AnyAnswer:
        worked_out.append(question.id)
        return answer(question, *rest)

    monkeypatch.setattr(answering, "answer", counting)
    cached = Answering({"alder": SiteHandle(worker.engine, 3)}, clock=lambda: now)

    def ask(name: str, client: str | None = None) -> AnyAnswer:
        return cached.answer(SiteQuestion(id=name, site="alder", client_id=client))

    first, again = ask("a"), ask("b", "bob")
    assert worked_out == ["a"] and again == msgspec.structs.replace(first, id="b")
    worker.engine.apply(Submit(site="alder", time=worker.engine.time, job="new", cpus=1))
    assert isinstance(ask("c"), type(first)) and worked_out == ["a", "c"]
    now += SAME_S + 0.1
    ask("d")
    assert worked_out == ["a", "c", "d"]
    for number in range(2 * MOST_ANSWERED):
        cached.answer(SiteQuestion(id="x", site="alder", limit=number))
    assert len(cached._answered) == MOST_ANSWERED
