"""Pending questions and their answers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
import pytest

from models.records import AnyQuestion, NoAnswer, WaitQuestion
from streams.client.pending_questions import AnswerTimeout, PendingQuestions, TooManyQuestions, unknown_site
from streams.errors import Unreachable

T = TypeVar("T")

QUESTION = WaitQuestion(id="7", site="alder")
ANSWER = NoAnswer(id="7", site="alder", reason="unknown_site", detail="")


def pending(
    on_send: Callable[[PendingQuestions, int], None], seconds: float = 5.0, max_open: int = 5
) -> tuple[PendingQuestions, list[AnyQuestion]]:
    """Return pending questions and the list of sent ones; `on_send` receives the number sent so far."""
    sent: list[AnyQuestion] = []

    async def send(question: AnyQuestion) -> None:
        sent.append(question)
        on_send(made, len(sent))

    made = PendingQuestions(send, seconds, max_open)
    return made, sent


def run_in_virtual_time(awaited: Coroutine[Any, Any, T]) -> T:
    """Run on an event loop whose clock jumps to the next timer, for exact time limits."""
    loop = asyncio.new_event_loop()
    selector, now = loop._selector, 0.0  # type: ignore[attr-defined]
    select = selector.select

    def jump(timeout: float | None) -> Any:
        nonlocal now
        now += timeout or 0.0
        return select(0)

    selector.select, loop.time = jump, lambda: now  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(awaited)


class TestPendingQuestions:
    def test_answer_resolves_its_question(self) -> None:
        made, sent = pending(lambda questions, _: questions.resolve(msgspec.json.encode(ANSWER)))
        assert run_in_virtual_time(made.ask(QUESTION)) == ANSWER
        assert sent == [QUESTION]

    def test_foreign_and_repeated_answers_are_ignored(self) -> None:
        def answer(questions: PendingQuestions, _: int) -> None:
            for number in ("6", "7", "7"):
                questions.resolve(msgspec.json.encode(msgspec.structs.replace(ANSWER, id=number)))
            questions.resolve(b'{"id":"8","type":"of another kind"}')

        made, _ = pending(answer)
        assert run_in_virtual_time(made.ask(QUESTION)) == ANSWER
        made.resolve(msgspec.json.encode(ANSWER))  # the question is no longer pending

    def test_unanswered_question_is_resent_one_time(self) -> None:
        def answer(questions: PendingQuestions, number: int) -> None:
            if number == 2:
                questions.resolve(msgspec.json.encode(ANSWER))

        made, sent = pending(answer, seconds=3.0)
        assert run_in_virtual_time(made.ask(QUESTION)) == ANSWER
        assert sent == [QUESTION, QUESTION]

    def test_question_beyond_time_limit_raises_answer_timeout(self) -> None:
        made, sent = pending(lambda *_: None, seconds=3.0)
        with pytest.raises(AnswerTimeout, match="no worker answers for the site 'alder'"):
            run_in_virtual_time(made.ask(QUESTION))
        assert len(sent) == 2

    def test_question_not_accepted_by_broker_raises_unreachable(self) -> None:
        async def hang(_: AnyQuestion) -> None:
            await asyncio.Event().wait()

        with pytest.raises(Unreachable, match="no broker accepted the question"):
            run_in_virtual_time(PendingQuestions(hang, 3.0).ask(QUESTION))

    def test_open_questions_are_limited_and_always_closed(self) -> None:
        async def run() -> None:
            made, _ = pending(lambda *_: None, seconds=3.0, max_open=2)
            questions = [msgspec.structs.replace(QUESTION, id=str(number)) for number in range(3)]
            for _ in range(2):
                found = await asyncio.gather(*map(made.ask, questions), return_exceptions=True)
                kinds = [type(one) for one in found]
                assert kinds == [TooManyQuestions, AnswerTimeout, AnswerTimeout], "the oldest goes first"
            assert not made._open

        run_in_virtual_time(run())

    def test_full_queue_fails_oldest_and_answers_new_question(self) -> None:
        def answer(questions: PendingQuestions, number: int) -> None:
            if number == 3:
                questions.resolve(msgspec.json.encode(msgspec.structs.replace(ANSWER, id="2")))

        async def run() -> None:
            made, _ = pending(answer, seconds=3.0, max_open=2)
            begun = asyncio.get_running_loop().time()
            tasks = [
                asyncio.create_task(made.ask(msgspec.structs.replace(QUESTION, id=str(number)))) for number in range(3)
            ]
            with pytest.raises(TooManyQuestions):
                await tasks[0]
            assert (await tasks[2]).id == "2"
            assert asyncio.get_running_loop().time() - begun < 0.1
            tasks[1].cancel()

        run_in_virtual_time(run())


@pytest.mark.parametrize(
    ("site", "known", "message"),
    [
        ("kht", ["kth", "ctc"], "there is no site 'kht'; did you mean 'kth'? There are: ctc, kth"),
        ("KTH", ["kth", "ctc"], "there is no site 'KTH'; did you mean 'kth'? There are: ctc, kth"),
        ("other", ["kth", "ctc"], "there is no site 'other'; there are: ctc, kth"),
        ("kth", [], "there is no site 'kth'; no event of any site has come yet"),
    ],
)
def test_unknown_site_message_lists_registered_sites(site: str, known: list[str], message: str) -> None:
    assert str(unknown_site(site, known)) == message
    many = str(unknown_site("x", [f"site {number:03}" for number in range(100)]))
    assert many.endswith(", site 019, …")
