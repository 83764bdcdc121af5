"""Grid estimates and answers, from a real worker through a real Kafka."""

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec
import pytest
from kafka import KafkaConsumer, TopicPartition

from models.engine.asking.engine_answers import grid_estimates
from models.engine.engine import Engine
from models.records import AnyAnswer, GridEstimate, NoAnswer, Submit, WaitAnswer, WaitQuestion
from models.site.shapes import WALLTIMES, grid, sizes
from tests.support.deployment import (
    PARTITIONS,
    PATIENCE_S,
    Deploy,
    Deployment,
    interleaved,
    metrics,
    ready,
    simulated,
    until,
)
from tests.support.fake_client import answer_of_worker
from tests.support.topic_messages import messages_of

QUICK = {"refresh_seconds": 1.0, "cpu_share": 0.5}

Key = tuple[str, int, float, str | None]

_estimate = msgspec.json.Decoder(GridEstimate).decode
_answer: Any = msgspec.json.Decoder(AnyAnswer).decode


def picture(here: Deployment) -> dict[Key, GridEstimate]:
    """Return the estimates that a new reader gets from the whole topic."""
    found: dict[Key, GridEstimate] = {}
    for message in messages_of(here.settings.kafka.client_options(), here.topics.estimates):
        site, cpus, walltime, queue = msgspec.json.decode(message.key)
        if message.value is None:
            found.pop((site, cpus, walltime, queue), None)
            continue
        found[site, cpus, walltime, queue] = estimate = _estimate(message.value)
        assert (estimate.site, estimate.cpus, estimate.walltime, estimate.queue) == (site, cpus, walltime, queue)
    return found


def in_time(estimate: GridEstimate) -> GridEstimate:
    """Return an estimate without its worker's lag, which differs between runs."""
    return msgspec.structs.replace(estimate, lag_messages=0, lag_s=0.0)


def engines_after(here: Deployment, events: list[Any]) -> dict[str, Engine]:
    """Return the sites' engines in this process."""
    found: dict[str, Engine] = {}
    for event in events:
        found.setdefault(event.site, Engine(event.site, here.settings.engine)).apply(event)
    return found


@pytest.mark.long
def test_grid_reader_that_starts_late_has_all_shapes_immediately(deploy: Deploy) -> None:
    here = deploy(estimates=QUICK)
    here.worker.start()
    events = interleaved(simulated("alder", 150), simulated("birch", 150, seed=2, policy="fcfs"))
    here.send(events[: len(events) * 2 // 3])
    expected: dict[Key, GridEstimate] = {}
    for engine in engines_after(here, events[: len(events) * 2 // 3]).values():
        shapes = grid(sizes(engine.context.cpus), WALLTIMES, tuple(engine.open_queues(8)))
        for made in grid_estimates(engine, shapes, engine.time):
            expected[made.site, made.cpus, made.walltime, made.queue] = msgspec.structs.replace(made, as_of=engine.time)
    assert len(expected) > 2 * len(WALLTIMES)
    until(lambda: {shape: in_time(estimate) for shape, estimate in picture(here).items()} == expected)


@pytest.mark.long
def test_estimates_follow_a_burst(deploy: Deploy) -> None:
    here = deploy(estimates=QUICK)
    here.worker.start()
    events = simulated("alder", 100)
    here.send(events)
    last = max(event.time for event in events)
    shape = ("alder", 64, 3600.0, "batch")
    until(lambda: shape in (found := picture(here)) and found[shape].made_at == last)
    before = picture(here)[shape]
    here.send(
        Submit(
            site="alder", time=last, job=f"b{number}", user=f"u{number % 50}", cpus=32, walltime=7200.0, queue="batch"
        )
        for number in range(500)
    )
    until(lambda: picture(here)[shape].live.queued_jobs >= 500)
    after = picture(here)[shape]
    assert before.predicted_wait_s is not None and after.predicted_wait_s is not None
    assert after.predicted_wait_s > before.predicted_wait_s + 3600.0


@pytest.mark.long
def test_question_is_answered_and_changes_no_output(deploy: Deploy) -> None:
    here = deploy(estimates=QUICK)
    here.worker.start()
    events = simulated("alder", 120)
    half = len(events) // 2
    here.send(events[:half])
    (engine,) = engines_after(here, events[:half]).values()
    until(lambda: ready(here.worker) and metrics(here.worker)["queuecast_events_total"].get(("alder",)) == half)
    question = WaitQuestion(id="q1", site="alder", cpus=16, walltime=3600.0, user="u1")
    with Questioner(here) as ask:
        assert ask(question) == answer_of_worker(question, engine)
        large = ask(WaitQuestion(id="q2", site="alder", cpus=1000))
        assert isinstance(large, WaitAnswer) and large.predicted_wait_s is None
        assert large.reason == "larger than the site: 1000 of 128 CPUs"
        unknown = ask(WaitQuestion(id="q3", site="nowhere"))
        assert isinstance(unknown, NoAnswer) and unknown.reason == "unknown_site"
        for number in range(50):
            ask(WaitQuestion(id=f"m{number}", site="alder", cpus=1 + number, user="u2"))
        here.producer.send(here.topics.questions, key=b"alder", value=b'{"type":"wait","id":7}')
        here.producer.flush()
        until(lambda: metrics(here.worker)["queuecast_questions_total"].get(("malformed",)) == 1)
    here.send(events[half:])
    expected = here.expected(events)
    here.await_outputs(sum(map(len, expected.values())) + 1)
    here.stop()
    assert here.records() == expected
    (letter,) = here.dead_letters()
    assert letter.topic == here.topics.questions and letter.reason == "malformed"


class Questioner:
    """Send questions one by one with a plain producer and consumer."""

    def __init__(self, here: Deployment) -> None:
        self._here = here
        self._ids: Iterator[int] = count()
        options = here.settings.kafka.client_options()
        self._consumer = KafkaConsumer(**options, fetch_max_wait_ms=20)
        places = [TopicPartition(here.topics.answers, part) for part in range(PARTITIONS)]
        self._consumer.assign(places)
        self._consumer.seek_to_end(*places)
        for place in places:
            self._consumer.position(place)

    def __enter__(self) -> Any:
        return self.ask

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def ask(self, question: WaitQuestion) -> Any:
        """Return the answer; repeat the question each second, as the worker may not read yet."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            value = msgspec.json.encode(question)
            self._here.producer.send(self._here.topics.questions, key=question.site.encode(), value=value)
            self._here.producer.flush()
            again = time.monotonic() + 1
            while time.monotonic() < again:
                for batch in self._consumer.poll(timeout_ms=50).values():
                    for message in batch:
                        answer = _answer(message.value)
                        if answer.id == question.id:
                            return answer
        raise AssertionError(f"no answer to {question}; {self._here.log[-2000:]}")
