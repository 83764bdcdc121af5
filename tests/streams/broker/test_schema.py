import json
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.records import (
    Alter,
    AnyEvent,
    Cancel,
    Capacity,
    DeadLetter,
    End,
    Hold,
    JobAnswer,
    JobQuestion,
    JobsAnswer,
    JobsQuestion,
    LiveJob,
    LiveState,
    MethodAccuracy,
    NoAnswer,
    Outcome,
    Prediction,
    Release,
    Requeue,
    SiteAnswer,
    SiteQuestion,
    StandingEstimate,
    Start,
    Submit,
    WaitAnswer,
    WaitQuestion,
    WeekAccuracy,
)
from streams.broker.schema import RECORDS, schema
from streams.errors import UserError

VALIDATORS = {name: jsonschema.Draft202012Validator(schema(name)) for name in RECORDS}

name = st.text(st.characters(codec="utf-8"), min_size=1, max_size=256)
time = st.floats(0, 1e11)
count = st.integers(0, 1_000_000_000)
cpus = st.integers(1, 1_000_000_000)
number = st.floats(allow_nan=False, allow_infinity=False)
bounds = st.none() | st.dictionaries(st.sampled_from(("0.1", "0.5", "0.9")), number)
part = number.filter(lambda value: not value.is_integer())  # 1.0 is an integer to a schema, and not to the reader
anything = st.none() | st.booleans() | st.integers(-5, 5) | part | st.text(max_size=3) | st.just([]) | st.just({})


def job(kind: type[msgspec.Struct], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(kind, site=name, time=time, job=name, attempt=count, **fields)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


request: dict[str, st.SearchStrategy[Any]] = {
    **{field: maybe(name) for field in ("user", "group", "account", "queue", "executable")},
    "cpus": cpus,
    "nodes": maybe(count),
    "gpus": count,
    "memory": maybe(st.integers(0, 1 << 60)),
    "walltime": maybe(time),
}
submits = job(Submit, **request, eligible=maybe(time))
events = st.one_of(
    submits,
    job(Start, cpus=maybe(cpus)),
    job(End, state=st.sampled_from(("completed", "failed", "timeout"))),
    job(Alter, queue=maybe(name), cpus=maybe(cpus), nodes=maybe(count), walltime=maybe(time), eligible=maybe(time)),
    *(job(kind) for kind in (Cancel, Hold, Release, Requeue)),
    st.builds(Capacity, site=name, time=time, cpus=count, nodes=maybe(count), down_nodes=count),
)
said = {"site": name, "job": name, "attempt": count, "made_at": time, "method": name, "bounds": bounds}
estimated = {"predicted_wait_s": maybe(number), "predicted_run_s": maybe(number)}
live = st.builds(LiveState, queued_jobs=count, running_jobs=count, free_cpus=count)
answered = {"predicted_start": maybe(time), "reason": st.text(), "degraded": maybe(st.text()), "live": live}
about = {"site": name, "made_at": time, "method": name, "bounds": bounds, "site_cpus": count} | estimated | answered
live_job = st.builds(
    LiveJob,
    job=name,
    attempt=count,
    phase=st.sampled_from(("queued", "running")),
    queue=maybe(name),
    cpus=count,
    walltime=maybe(time),
    submit=time,
    start=maybe(time),
    **estimated,
    predicted_start=maybe(time),
    expected_start=maybe(time),
    bounds=bounds,
    method=name,
    reason=st.text(),
)
live_jobs = st.lists(live_job, max_size=2)
accuracies = st.builds(
    MethodAccuracy,
    method=name,
    jobs=count,
    mean_error_s=maybe(number),
    mean_error_share=maybe(number),
    within_factor_2=maybe(number),
    coverage=st.dictionaries(st.sampled_from(("0.5", "0.9")), number),
)
weeks = st.lists(st.builds(WeekAccuracy, begin=time, end=time, methods=st.lists(accuracies, max_size=2)), max_size=2)
EXAMPLES: dict[str, st.SearchStrategy[Any]] = {
    "event": events,
    "prediction": st.builds(
        Prediction, **said, **estimated, predicted_start=maybe(time), reason=st.text(), degraded=maybe(st.text())
    ),
    "outcome": st.builds(
        Outcome,
        **said,
        **estimated,
        observed_at=time,
        actual_wait_s=number,
        actual_run_s=maybe(number),
        error_s=number,
        run_error_s=maybe(number),
        wait_from=st.sampled_from(("submit", "eligible")),
        censored=st.booleans(),
    ),
    "dead-letter": st.builds(
        DeadLetter,
        reason=name,
        detail=st.text(),
        site=maybe(name),
        topic=name,
        partition=count,
        offset=count,
        value=st.text(),
        value_bytes=count,
    ),
    "estimate": st.builds(StandingEstimate, **about, cpus=cpus, walltime=time, queue=maybe(name)),
    "question": st.one_of(
        st.builds(WaitQuestion, id=name, site=name, **request),
        st.builds(JobsQuestion, id=name, site=name, user=name, most=st.integers(1, 1000)),
        st.builds(JobQuestion, id=name, site=name, job=name),
        st.builds(SiteQuestion, id=name, site=name, most=st.integers(0, 1000)),
    ),
    "answer": st.one_of(
        st.builds(WaitAnswer, id=name, **about, run_interval=st.none() | st.tuples(number, number)),
        st.builds(
            JobAnswer,
            id=name,
            site=name,
            made_at=time,
            job=name,
            text=st.text(),
            live=st.none() | live_job,
        ),
        st.builds(JobsAnswer, id=name, site=name, made_at=time, user=name, jobs=live_jobs, more=count),
        st.builds(
            SiteAnswer,
            id=name,
            site=name,
            made_at=time,
            cpus=count,
            down_nodes=count,
            live=live,
            held_jobs=count,
            queued_cpus=count,
            running_cpus=count,
            work_left_s=maybe(number),
            queues=st.lists(name, max_size=2),
            method=name,
            degraded=maybe(st.text()),
            history_jobs=count,
            weeks=weeks,
            queued=live_jobs,
        ),
        st.builds(NoAnswer, id=name, site=name, reason=name, detail=st.text()),
    ),
}
examples = st.sampled_from(list(EXAMPLES)).flatmap(lambda kind: st.tuples(st.just(kind), EXAMPLES[kind]))


def as_json(record: Any) -> Any:
    return json.loads(msgspec.json.encode(record))


@pytest.mark.parametrize("record", [None, *RECORDS])
def test_a_schema_is_one_of_draft_2020_12(record: str | None) -> None:
    found = schema(record)
    jsonschema.Draft202012Validator.check_schema(found)
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert found["$id"] == f"urn:queuecast:{record or 'records'}:v1"
    assert found["title"] == f"queuecast {record or 'records'}"
    assert json.loads(json.dumps(found)) == found


def test_every_reference_leads_somewhere() -> None:
    for found in (schema(), *map(schema, RECORDS)):
        references = {part.split('"')[0] for part in json.dumps(found).split('"#/$defs/')[1:]}
        assert references <= set(found["$defs"])
    assert set(RECORDS) <= set(schema()["$defs"])


@given(examples)
def test_what_is_written_is_valid(example: tuple[str, Any]) -> None:
    kind, record = example
    VALIDATORS[kind].validate(as_json(record))
    jsonschema.Draft202012Validator(schema()).validate(as_json(record))


@given(examples, st.data())
def test_the_schema_takes_what_the_reader_takes(example: tuple[str, Any], data: st.DataObject) -> None:
    kind, record = example
    document = as_json(record)
    field = data.draw(st.sampled_from(sorted(document)))
    if data.draw(st.booleans()):
        del document[field]
    else:
        document[field] = data.draw(anything)
    try:
        msgspec.json.decode(json.dumps(document), type=RECORDS[kind])
        readable = True
    except msgspec.ValidationError:
        readable = False
    assert VALIDATORS[kind].is_valid(document) == readable


SUBMIT = {"v": 1, "site": "s", "type": "submit", "time": 5.0, "job": "1"}


@pytest.mark.parametrize(
    "change",
    [
        {"type": "vanish"},
        {"type": None},
        {"site": ""},
        {"time": "now"},
        {"time": -1},
        {"job": 4711},
        {"cpus": 0},
        {"v": 2},
        {"user": "x" * 300},
    ],
)
def test_a_malformed_event_is_not_valid(change: dict[str, Any]) -> None:
    assert VALIDATORS["event"].is_valid(SUBMIT)
    assert not VALIDATORS["event"].is_valid(SUBMIT | change)


@pytest.mark.parametrize("field", ["site", "type", "time", "job"])
def test_what_is_required_is_required(field: str) -> None:
    assert not VALIDATORS["event"].is_valid({name: value for name, value in SUBMIT.items() if name != field})


def test_fields_that_come_later_are_valid() -> None:
    assert VALIDATORS["event"].is_valid(SUBMIT | {"colour": "green"})


def test_every_type_of_event_is_there() -> None:
    kinds = {"bundle", *(kind.kind for kind in AnyEvent.__args__)}
    assert set(schema("event")["discriminator"]["mapping"]) == kinds


def test_an_unknown_record_is_an_error() -> None:
    with pytest.raises(UserError, match="no record 'weather'; there are: event, prediction, outcome, dead-letter"):
        schema("weather")
