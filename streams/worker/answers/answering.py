"""Answer questions from the site's engine, from a recent identical answer, or from a grid estimate."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from weakref import ref

import msgspec

from models.engine.asking.engine_answers import answer
from models.engine.asking.partitions import considered, never_runs_reason
from models.engine.engine import Engine
from models.records import (
    BUSY,
    QUOTA,
    UNKNOWN_SITE,
    AnyAnswer,
    AnyQuestion,
    GridEstimate,
    NoAnswer,
    SiteAnswer,
    WaitAnswer,
    WaitQuestion,
    WorkerState,
)
from streams.worker.answers.answer_scores import AnswerScores
from streams.worker.answers.estimate_grid import EstimateGrids, site_time
from streams.worker.answers.freshness import Freshness
from streams.worker.checkpoint.stored_site import SiteHandle

log = logging.getLogger(__name__)
SAME_S = 5.0  # lifetime of a cached answer, seconds, if its site has no new event
MOST_ANSWERED = 256  # maximum number of cached answers
AWAITS_MODEL = "its events wait for a model that is being trained"

LATER_DETAILS = {
    BUSY: "too many pending questions (`questions.max_pending`), or this one is too old; retry later",
    QUOTA: "too many pending questions of this client (`questions.max_pending_per_client`); retry later",
}


class _CachedAnswer(NamedTuple):
    """A cached answer with its engine (a weak reference), the engine's event count and the time of the answer (s)."""

    answer: AnyAnswer
    engine: "ref[Engine]"
    events: int
    made: float

    def serves(self, engine: Engine, now: float) -> bool:
        """Return whether the engine would give the same answer now."""
        return self.engine() is engine and self.events == engine.events and now - self.made <= SAME_S


_encode = msgspec.json.Encoder().encode


@dataclass(eq=False)
class Answering:
    """Answer questions about sites; a question changes no state.

    Args:
        handles: Sites by name.
        freshness: Provides the freshness of sites.
        grids: Provides the grid estimates.
        unknown_fields: Returns a site's counts of unknown event fields.
        scores: Records the answers to score them.
        is_restoring: Returns whether a site is stored but not in memory yet, and starts to restore it.
        worker: Returns the state of this worker.
        clock: Monotonic clock, seconds.
    """

    handles: Mapping[str, SiteHandle]
    freshness: Freshness = field(default_factory=Freshness)
    grids: EstimateGrids | None = None
    unknown_fields: Callable[[str], dict[str, int]] = lambda _: {}
    scores: AnswerScores = field(default_factory=AnswerScores)
    is_restoring: Callable[[str], bool] = lambda _: False
    worker: Callable[[], WorkerState | msgspec.UnsetType] = lambda: msgspec.UNSET
    clock: Callable[[], float] = time.monotonic
    _answered: OrderedDict[bytes, _CachedAnswer] = field(default_factory=OrderedDict, init=False)

    def answer(self, question: AnyQuestion) -> AnyAnswer:
        """Answer with the current state of the site's engine."""
        return self._surely(question, self._answer)

    def without_work(self, question: AnyQuestion, reason: str) -> AnyAnswer:
        """Answer a question without the engine, for this reason: with a grid estimate, or a refusal."""
        return self._surely(question, partial(self._without_work, reason=reason))

    def _surely(self, question: AnyQuestion, answer: Callable[[AnyQuestion], AnyAnswer]) -> AnyAnswer:
        try:
            reply = answer(question)
            if isinstance(question, WaitQuestion) and isinstance(reply, WaitAnswer):
                self.scores.answered(question, reply)
            return reply
        except Exception as error:  # a bug must not stop other answers, but must be logged
            log.exception("Cannot answer question", extra={"site": question.site})
            return NoAnswer(id=question.id, site=question.site, reason="failed", detail=repr(error))

    def _answer(self, question: AnyQuestion) -> AnyAnswer:
        handle = self.handles.get(question.site)
        if handle is None and self.is_restoring(question.site):
            detail = "the site is being restored; retry later"
            return NoAnswer(id=question.id, site=question.site, reason=BUSY, detail=detail)
        if handle is None:
            detail = f"no event of a site {question.site!r} has been seen"
            return NoAnswer(id=question.id, site=question.site, reason=UNKNOWN_SITE, detail=detail)
        reply = self.freshness.marked(_marked(self._of_now(question, handle.engine), handle.engine), handle)
        if not isinstance(reply, SiteAnswer):
            return reply
        return msgspec.structs.replace(
            reply,
            unknown_fields=self.unknown_fields(question.site),
            operations=handle.operations,
            answers=[*reply.answers, *self.scores.accuracy(question.site)],
            worker=self.worker(),
        )

    def _of_now(self, question: AnyQuestion, engine: Engine) -> AnyAnswer:
        """Return the engine's answer, or the cached answer to the same question if nothing has changed."""
        same = _encode(msgspec.structs.replace(question, id="-", client_id=None, wait_s=None))
        kept, now = self._answered.get(same), self.clock()
        if kept is None or not kept.serves(engine, now):
            reply = answer(question, engine, site_time(engine))
            self._answered[same] = kept = _CachedAnswer(reply, ref(engine), engine.events, now)
            self._answered.move_to_end(same)
            if len(self._answered) > MOST_ANSWERED:
                self._answered.popitem(last=False)
        return msgspec.structs.replace(kept.answer, id=question.id)

    def _without_work(self, question: AnyQuestion, reason: str) -> AnyAnswer:
        handle = self.handles.get(question.site)
        if handle is not None and isinstance(question, WaitQuestion) and self.grids is not None:
            queue = question.queue or next(iter(question.partitions or ()), None)
            found = self.grids.covering(handle, question.cpus, question.walltime, queue, question.gpus)
            if found is not None:
                return _as_answer(question, found, handle.engine)
        return NoAnswer(id=question.id, site=question.site, reason=reason, detail=LATER_DETAILS[reason])


def _marked(reply: AnyAnswer, engine: Engine) -> AnyAnswer:
    """Mark an answer as degraded if the site's events wait for a model, as its state is then out of date."""
    if engine.pending() is None or "degraded" not in reply.__struct_fields__:
        return reply
    reasons = filter(None, (AWAITS_MODEL, reply.degraded))  # type: ignore[union-attr]
    return msgspec.structs.replace(reply, degraded="; ".join(reasons))


def _as_answer(question: WaitQuestion, found: GridEstimate, engine: Engine) -> WaitAnswer:
    """Convert a grid estimate to the answer for a job that its shape covers."""
    same = {name: getattr(found, name) for name in found.__struct_fields__ if name in WaitAnswer.__struct_fields__}
    cannot_run = never_runs_reason(engine, considered(question, found.made_at)) or msgspec.UNSET
    return WaitAnswer(**same | {"id": question.id, "source": "grid", "cannot_run": cannot_run})
