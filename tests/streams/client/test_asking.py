"""What stands of the sites, and how questions wait for their answers."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from models.ranking import JobRequest
from models.records import AnyAnswer, AnyQuestion, LiveState, NoAnswer, StandingEstimate, WaitQuestion
from models.site.shapes import Shape
from streams.client.asking import KEPT_OUTCOMES, Board, Busy, Desk, Silent, ask_all, ask_ranking
from streams.errors import Unreachable
from streams.settings import SiteSettings
from tests.support.asked import NOW, FakeAsker, engine, key, outcome

HOUR = 3600.0


def estimate(site: str, shape: Shape, **fields: Any) -> bytes:
    told = {"made_at": 1.0, "predicted_wait_s": 2.0, "predicted_run_s": 3.0, "predicted_start": 4.0, "method": "easy"}
    live = LiveState(queued_jobs=1, running_jobs=2, free_cpus=3)
    values = {**told, "reason": "", "live": live, "site_cpus": 16, **fields}
    return msgspec.json.encode(StandingEstimate(site=site, **shape._asdict(), **values))


class TestBoard:
    def put(self, board: Board, site: str, shape: Shape, updated: float = NOW, **fields: Any) -> None:
        board.put_estimate(key(site, shape), estimate(site, shape, **fields), 3, updated)

    def board(self) -> Board:
        return Board(hours=24, clock=lambda: NOW)

    def test_the_latest_estimate_of_a_shape_counts(self) -> None:
        board = self.board()
        for wait_s in (1.0, 5.0):
            self.put(board, "alder", Shape(4, 600.0), predicted_wait_s=wait_s)
        self.put(board, "alder", Shape(8, 600.0), made_at=9.0)
        self.put(board, "birch", Shape(4, 600.0, "long"))
        assert board.sites == ["alder", "birch"]
        stood = board.estimates("alder")
        assert stood is not None
        assert [(one.cpus, one.predicted_wait_s) for one in stood.estimates] == [(4, 5.0), (8, 2.0)]
        assert stood.latest.cpus == 8
        assert board.partition("alder") == 3
        assert (board.estimates("elm"), board.partition("elm"), board.knows("elm")) == (None, None, False)

    def test_an_estimate_may_be_taken_back(self) -> None:
        board = self.board()
        self.put(board, "alder", Shape(4, 600.0))
        board.put_estimate(key("alder", Shape(4, 600.0)), None, 3, NOW)
        assert (board.sites, board.estimates("alder")) == ([], None)
        board.put_estimate(key("elm", Shape(4, 600.0)), None, 3, NOW)
        assert board.sites == []

    def test_what_is_older_by_hours_than_the_newest_of_its_site_is_dropped(self) -> None:
        board = self.board()
        self.put(board, "alder", Shape(4, 600.0), NOW - 3 * HOUR)
        self.put(board, "birch", Shape(4, 600.0), NOW - 3 * HOUR)
        self.put(board, "alder", Shape(8, 600.0), NOW - 2 * HOUR)
        self.put(board, "alder", Shape(16, 600.0), NOW)
        alder, birch = board.estimates("alder"), board.estimates("birch")
        assert alder is not None
        assert birch is not None
        assert [one.cpus for one in alder.estimates] == [8, 16]
        assert alder.updated == NOW
        assert len(birch.estimates) == 1

    def test_a_site_whose_estimates_have_not_been_made_anew_for_a_day_is_forgotten(self) -> None:
        board = self.board()
        self.put(board, "alder", Shape(4, 600.0), NOW - 25 * HOUR)
        assert board.sites == []

    def test_a_job_is_taken_for_the_least_shape_that_it_fits_into(self) -> None:
        board = self.board()
        for cpus in (4, 8, 16):
            self.put(board, "alder", Shape(cpus, 600.0))
        found = board.covering("alder", 5, 60.0, None)
        assert found is not None
        assert found.cpus == 8
        assert board.covering("alder", 17, 60.0, None) is None
        assert board.covering("elm", 1, 60.0, None) is None

    def test_the_latest_outcomes_are_kept_each_job_once_the_newest_first(self) -> None:
        board = self.board()
        for job in range(KEPT_OUTCOMES + 5):
            board.put_outcome(outcome("alder", str(job)))
        board.put_outcome(outcome("alder", "20", actual_run_s=7.0))
        board.put_outcome(outcome("alder", "1", "zero"))
        found = board.outcomes("alder", "qespera")
        assert [one.job for one in found[:3]] == ["20", "54", "53"]
        assert found[0].actual_run_s == 7.0
        assert len(found) == KEPT_OUTCOMES
        assert [one.job for one in board.outcomes("alder", "zero")] == ["1"]
        assert board.outcomes("alder", "ibl") == found  # which nobody runs there
        assert board.outcomes("elm", "qespera") == []

    @pytest.mark.parametrize(
        ("given", "value"), [(b"", None), (b'["alder"]', b"{}"), (b'["a",1,2.0,null]', b"{}"), (b"\xff", b"")]
    )
    def test_what_is_no_estimate_is_refused(self, given: bytes, value: bytes | None) -> None:
        with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
            self.board().put_estimate(given, value, 0, NOW)


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


def test_sites_are_asked_all_at_once_and_the_silent_ones_give_none() -> None:
    asker = FakeAsker([engine("alder", 1), engine("birch", 2)], silent=["birch"])
    questions = [WaitQuestion(id=site, site=site) for site in ("alder", "birch", "elm")]
    found: dict[str, AnyAnswer | None] = asyncio.run(ask_all(asker, questions))
    assert found["birch"] is None
    assert isinstance(found["elm"], NoAnswer)
    assert found["alder"] is not None


class TestRanking:
    def rank(self, asker: FakeAsker, job: JobRequest, limits: dict[str, SiteSettings], *sites: str) -> Any:
        return asyncio.run(ask_ranking(asker, job, limits, sites))

    def test_every_site_of_which_estimates_stand_is_asked(self) -> None:
        asker = FakeAsker([engine("alder", 1), engine("birch", 2)])
        found = self.rank(asker, JobRequest(cpus=4, walltime=HOUR), {})
        assert {(one.site, one.source) for one in found.ranking} == {("alder", "what-if"), ("birch", "what-if")}
        assert found.left_out == []

    def test_a_silent_site_is_taken_by_what_stands_of_a_job_like_it(self) -> None:
        asker = FakeAsker([engine("alder", 1), engine("birch", 2)], silent=["birch", "elm"])
        found = self.rank(asker, JobRequest(cpus=5, walltime=HOUR), {}, "alder", "birch", "elm", "fir")
        told = {one.site: one for one in found.ranking}
        assert told["birch"].source == "standing"
        standing = asker.board.covering("birch", 5, HOUR, None)
        assert standing is not None
        assert told["birch"].predicted_wait_s == standing.predicted_wait_s
        assert [(out.site, out.reason) for out in found.left_out] == [
            ("elm", "no worker answers for this site"),
            ("fir", "unknown site: no event of it has been seen"),
        ]

    def test_a_silent_site_that_is_too_small_is_left_out_for_that(self) -> None:
        asker = FakeAsker([engine("alder", 1)], silent=["alder"])
        assert self.rank(asker, JobRequest(cpus=65), {}).left_out[0].reason == "has 64 processors"

    def test_a_site_to_which_the_job_cannot_go_is_not_asked(self) -> None:
        asker = FakeAsker([engine("alder", 1), engine("birch", 2)])
        found = self.rank(asker, JobRequest(cpus=4), {"alder": SiteSettings(max_cpus=3)})
        assert [question.site for question in asker.asked] == ["birch"]
        assert [out.site for out in found.left_out] == ["alder"]

    def test_a_site_is_asked_for_the_walltime_at_its_speed(self) -> None:
        asker = FakeAsker([engine("alder", 1)])
        self.rank(asker, JobRequest(cpus=4, walltime=HOUR), {"alder": SiteSettings(speed=4.0)})
        assert [question.walltime for question in asker.asked if isinstance(question, WaitQuestion)] == [900.0]

    def test_a_site_is_asked_once_however_often_it_is_named(self) -> None:
        asker = FakeAsker([engine("alder", 1)])
        self.rank(asker, JobRequest(), {}, "alder", "alder")
        assert len(asker.asked) == 1
