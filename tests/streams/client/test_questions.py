"""How questions wait for their answers."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from models.records import AnyQuestion, NoAnswer, WaitQuestion
from streams.client.questions import Busy, Desk, Silent
from streams.errors import Unreachable

QUESTION = WaitQuestion(id="7", site="alder")
ANSWER = NoAnswer(id="7", site="alder", reason="unknown_site", detail="")


def desk(on_send: Callable[[Desk, int], None], seconds: float = 5.0, most: int = 5) -> tuple[Desk, list[AnyQuestion]]:
    """A desk, and what it sends; `on_send` is told the how-manieth it is."""
    sent: list[AnyQuestion] = []

    async def send(question: AnyQuestion) -> None:
        sent.append(question)
        on_send(made, len(sent))

    made = Desk(send, seconds, most)
    return made, sent


class TestDesk:
    def test_an_answer_goes_to_who_asked(self) -> None:
        made, sent = desk(lambda desk, _: desk.take(msgspec.json.encode(ANSWER)))
        assert asyncio.run(made.ask(QUESTION)) == ANSWER
        assert sent == [QUESTION]

    def test_others_answers_and_repeats_are_passed_over(self) -> None:
        def answer(desk: Desk, _: int) -> None:
            for number in ("6", "7", "7"):
                desk.take(msgspec.json.encode(msgspec.structs.replace(ANSWER, id=number)))
            desk.take(b'{"id":"8","type":"of another kind"}')

        made, _ = desk(answer)
        assert asyncio.run(made.ask(QUESTION)) == ANSWER
        made.take(msgspec.json.encode(ANSWER))  # that nobody waits for any longer

    def test_a_question_without_an_answer_is_sent_once_more(self) -> None:
        def answer(desk: Desk, number: int) -> None:
            if number == 2:
                desk.take(msgspec.json.encode(ANSWER))

        made, sent = desk(answer, seconds=0.09)
        assert asyncio.run(made.ask(QUESTION)) == ANSWER
        assert sent == [QUESTION, QUESTION]

    def test_after_its_time_a_question_has_failed(self) -> None:
        made, sent = desk(lambda *_: None, seconds=0.03)
        with pytest.raises(Silent, match="no worker answers for the site 'alder'"):
            asyncio.run(made.ask(QUESTION))
        assert len(sent) == 2

    def test_a_broker_that_takes_no_question_is_away(self) -> None:
        async def hang(_: AnyQuestion) -> None:
            await asyncio.Event().wait()

        with pytest.raises(Unreachable, match="no broker took the question"):
            asyncio.run(Desk(hang, 0.03).ask(QUESTION))

    def test_open_questions_are_bounded_and_closed_whatever_becomes_of_them(self) -> None:
        async def run() -> None:
            made, _ = desk(lambda *_: None, seconds=0.05, most=2)
            questions = [msgspec.structs.replace(QUESTION, id=str(number)) for number in range(3)]
            for _ in range(2):
                found = await asyncio.gather(*map(made.ask, questions), return_exceptions=True)
                assert [type(one) for one in found] == [Silent, Silent, Busy]

        asyncio.run(run())
