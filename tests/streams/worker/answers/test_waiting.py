"""Pending questions: turns of clients, limits, and dropping of the oldest."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec

from models.records import BUSY, QUOTA, SiteAnswer, SiteQuestion, WaitAnswer
from streams.worker.answers.question_queue import WINDOW_S, MessageAge, WaitingQuestions
from tests.streams.worker.answers.test_questions import STAMP_MS, QuestionWorker, message_of, wait

MESSAGE: Any = SimpleNamespace(timestamp=0)


class Clock:
    """A clock (s) that the test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def put(waiting: WaitingQuestions, name: str, client: str = "ada", age_s: float = 0.0) -> tuple[str, str] | None:
    """Return the question dropped for a new one, with the reason."""
    dropped = waiting.put(SiteQuestion(id=name, site="alder", client_id=client), MESSAGE, age_s)
    return None if dropped is None else (dropped.waited.question.id, dropped.reason)


def in_order(waiting: WaitingQuestions) -> list[str]:
    async def take_all() -> list[str]:
        return [(await waiting.next()).question.id for _ in range(len(waiting))]

    return asyncio.run(take_all())


def test_full_queue_drops_oldest_question_of_busiest_client() -> None:
    waiting = WaitingQuestions(4, 4, 1.0, Clock())
    assert [put(waiting, name, client) for name, client in (("b", "bob"), ("1", "ada"), ("2", "ada"))] == [None] * 3
    assert [put(waiting, "3"), put(waiting, "4"), put(waiting, "c", "eve")] == [None, ("1", BUSY), ("2", BUSY)]
    assert in_order(waiting) == ["b", "3", "c", "4"]


def test_full_client_quota_drops_oldest_question() -> None:
    waiting = WaitingQuestions(100, 2, 1.0, Clock())
    assert [put(waiting, name) for name in "1234"] == [None, None, ("1", QUOTA), ("2", QUOTA)]
    assert in_order(waiting) == ["3", "4"]


def test_full_queue_of_many_clients_drops_oldest_question() -> None:
    clock = Clock()
    waiting = WaitingQuestions(3, 3, 1.0, clock)
    dropped = []
    for number in range(6):
        clock.now += 0.01
        dropped.append(put(waiting, str(number), f"client {number}"))
    assert dropped == [None, None, None, ("0", BUSY), ("1", BUSY), ("2", BUSY)]


def test_repeated_question_is_queued_once() -> None:
    waiting = WaitingQuestions(10, 10, 1.0, Clock())
    assert [put(waiting, "1"), put(waiting, "1")] == [None, None]
    assert in_order(waiting) == ["1"] and put(waiting, "1") is None and len(waiting) == 1


def test_expired_questions_are_removed() -> None:
    clock = Clock()
    waiting = WaitingQuestions(10, 10, 1.0, clock)
    for name, client in (("1", "ada"), ("2", "bob"), ("3", "ada")):
        put(waiting, name, client)
        clock.now += 0.4
    assert put(waiting, "old", age_s=2.1) == ("old", BUSY)
    assert put(waiting, "young", "eve", age_s=1.5) is None
    assert [dropped.waited.question.id for dropped in waiting.expired()] == ["1"]
    clock.now += 0.7
    assert {dropped.waited.question.id for dropped in waiting.expired()} == {"2", "3", "young"}
    assert len(waiting) == 0


def test_question_expires_after_wait_set_by_client() -> None:
    waiting = WaitingQuestions(10, 10, 1.0, Clock())
    patient = SiteQuestion(id="1", site="alder", wait_s=25.0)
    assert waiting.put(patient, MESSAGE, 20.0) is None
    late = waiting.put(msgspec.structs.replace(patient, id="2"), MESSAGE, 26.0)
    assert late is not None and late.reason == BUSY


def test_message_age_is_independent_of_broker_clock() -> None:
    clock = Clock()
    for skew_s in (-100.0, 0.0, 100.0):
        age = MessageAge(clock)

        def aged(age_s: float, age: MessageAge = age, skew_s: float = skew_s) -> float:
            message: Any = SimpleNamespace(timestamp=(clock.now - age_s + skew_s) * 1000, timestamp_type=1)
            return round(age.of(message), 3)

        assert [aged(0.0), aged(2.0), aged(0.5), aged(0.0)] == [0.0, 2.0, 0.5, 0.0]
        clock.now += WINDOW_S + 1
        assert aged(3.0) == 3.0, "what was measured before still holds"


def test_message_age_ignores_client_timestamps_in_future() -> None:
    clock = Clock()
    age = MessageAge(clock)
    ahead: Any = SimpleNamespace(timestamp=(clock.now + 86_400) * 1000, timestamp_type=0)
    assert age.of(ahead) == 0.0
    now: Any = SimpleNamespace(timestamp=clock.now * 1000, timestamp_type=1)
    assert age.of(now) == 0.0


def test_message_age_adapts_to_changed_broker_clock() -> None:
    clock = Clock()
    age, skew_s = MessageAge(clock), 5.0
    message: Any = SimpleNamespace(timestamp=clock.now * 1000, timestamp_type=1)
    assert age.of(message) == 0.0
    for _ in range(3):
        clock.now += WINDOW_S + 1
        message.timestamp = (clock.now - skew_s) * 1000
        last = age.of(message)
    assert last == 0.0


def test_questions_expired_in_topic_are_not_computed() -> None:
    """After a busy time, expired questions are rejected immediately and the latest are answered."""
    worker = QuestionWorker()
    stamps = {"new": 10_000, **{f"old {number}": 5_000 for number in range(300)}, "last": 9_900}

    async def scenario() -> None:
        for name, stamp in stamps.items():
            value = b'{"type":"site","id":"%s","site":"alder","client_id":"%s"}' % (name.encode(), name.encode())
            await worker.questions.take(message_of(value, stamp))
        assert len(worker.questions._waiting) == 2
        await worker.answer_those_that_wait()

    asyncio.run(scenario())
    assert [answer.id for _, _, answer, _ in worker.sent if isinstance(answer, SiteAnswer)] == ["new", "last"]
    assert worker.counted("busy") == 300


def test_overloaded_worker_answers_questions_in_time() -> None:
    """190 questions a second arrive, 50 can be answered, and events are always pending."""
    worker = QuestionWorker()
    worker.turns.waiting = lambda: True
    delays: dict[str, tuple[float, bool]] = {}

    async def flood() -> None:
        loop, begun = asyncio.get_running_loop(), dict[str, float]()
        real = worker.questions.answering.answer

        def slow(question: Any) -> Any:
            end = loop.time() + 0.005
            while loop.time() < end:
                pass
            return real(question)

        worker.questions.answering.answer = slow  # type: ignore[method-assign]
        send_answer = worker.questions._send_answer

        async def noting(message: Any, answer: Any) -> None:
            delays[answer.id] = (loop.time() - begun[answer.id], isinstance(answer, WaitAnswer))
            await send_answer(message, answer)

        worker.questions._send_answer = noting  # type: ignore[method-assign]
        tasks = [asyncio.create_task(work) for work in (worker.questions._answer_all(), worker.questions._shed_all())]
        first = loop.time()
        for number in range(570):
            question = wait(number, f"client {number}")
            begun[question.id] = loop.time()
            await worker.questions.take(message_of(msgspec.json.encode(question), STAMP_MS + 1000 * loop.time()))
            await asyncio.sleep(max(0.0, first + number / 190 - loop.time()))
        await asyncio.sleep(1.5)
        for task in tasks:
            task.cancel()

    asyncio.run(flood())
    assert len(delays) == 570
    assert max(delay for delay, _ in delays.values()) < 2.0, "the client's patience"
    assert sum(answered for _, answered in delays.values()) > 50
