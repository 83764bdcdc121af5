from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.method_registry import method_named
from models.papers.ibl.distance import JOB, POLICY, STATE, Category, CategoryState, Instance, Request
from models.papers.ibl.instance_based import Ibl, IblParameters
from models.papers.search.genetic import Generation, Individual, SearchPlan, evolve
from models.papers.search.ibl import (
    Bench,
    Chromosomes,
    Examples,
    Query,
    Target,
    collect,
    decode,
    encode,
    settings_of,
)
from models.papers.search.tuning import ActualTimes
from models.records import AnyEvent, Prediction
from tests.support.events import cancel, capacity, end, start, submit


def planted_runs(jobs: int = 200) -> Examples:
    """Run times depend on the executable only; the other attributes are random."""
    random = np.random.default_rng(1)
    made = []
    for _ in range(jobs):
        executable = int(random.integers(6))
        names = [f"{kind}{random.integers(6)}" for kind in ("g", "u", "q")]
        request = Request(
            names[0], names[1], f"e{executable}", names[2], int(random.integers(6)), *(1e5 + random.random(2)).tolist()
        )
        made.append((Instance(request), 1000.0 * executable + float(random.random())))
    queries = [Query(seen, number, value_s) for number, (seen, value_s) in enumerate(made)][-30:]
    return Examples("run", made, queries)


def planted_waits(jobs: int = 300) -> Examples:
    """Waits depend on the queued demand of the job's group only."""
    random = np.random.default_rng(2)
    made = []
    for _ in range(jobs):
        names = [f"{kind}{random.integers(6)}" for kind in ("g", "u", "e", "q")]
        request = Request(
            names[0], names[1], names[2], names[3], int(random.integers(6)), *(1e5 + random.random(2)).tolist()
        )
        demand = random.integers(1, 5, 2) * 100
        categories: list[Category] = [
            (group, f"u{random.integers(9)}", f"q{random.integers(9)}") for group in ("g0", "g1")
        ]
        noise = random.integers(0, 400, (2, 6))
        noise[:, 5] = demand
        state = CategoryState(POLICY, int(random.integers(64)), categories, noise.tolist())
        made.append((Instance(request, state), 60.0 * float(demand[0] - demand[1] + 400)))
    queries = [Query(seen, number, value_s) for number, (seen, value_s) in enumerate(made)][-30:]
    return Examples("wait", made, queries)


def searched(examples: Examples, *plan: int, founders: Iterable[Individual] = ()) -> list[Generation]:
    chromosomes = Chromosomes(examples.target, lambda tried: map(Bench(examples).error_s, tried))
    return list(evolve(chromosomes, SearchPlan(*plan), founders=founders))


def best_of(generation: Generation, target: Target) -> IblParameters:
    return decode(generation.ranked()[0][0], target)


def test_ibl_search_finds_the_attribute_that_determines_run_time() -> None:
    generations = searched(planted_runs(), 20, 20, 0)
    found = best_of(generations[-1], "run")
    assert "executable" in found.run_attributes
    assert min(generations[-1].errors) < 25.0  # the mean is 2500 s; other attributes add little error
    assert [generation.number for generation in generations] == list(range(1, 21))


@pytest.mark.long
def test_search_finds_the_informative_policy_and_state() -> None:
    generations = searched(planted_waits(), 20, 20, 0)
    found = best_of(generations[-1], "wait")
    assert found.policy == ("group",)
    assert "queued_demand" in found.state
    assert found.job_share < 1.0
    bench = Bench(planted_waits())
    assert (
        min(generations[-1].errors) < 0.35 * bench.mean_s
    )  # the mean of all has error 0.4; the rest of the state is random


def test_ibl_search_is_a_function_of_its_seed() -> None:
    assert searched(planted_runs(), 8, 4, 3) == searched(planted_runs(), 8, 4, 3)
    assert searched(planted_runs(), 8, 1, 4) != searched(planted_runs(), 8, 1, 3)


def test_ibl_search_evaluates_each_individual_once() -> None:
    bench, tried = Bench(planted_runs()), list[IblParameters]()

    def evaluate(some: Sequence[IblParameters]) -> Iterable[float]:
        tried.extend(some)
        return map(bench.error_s, some)

    found = list(evolve(Chromosomes("run", evaluate), SearchPlan(8, 4)))
    assert len(tried) == len({one for generation in found for one in generation.individuals})


def test_founders_are_in_the_first_generation() -> None:
    founder = encode(IblParameters(run_attributes=("executable",), run_neighbours=3), "run")
    (first,) = searched(planted_runs(), 8, 1, founders=[(founder,)])
    assert first.individuals[0] == (founder,) and len(first.individuals) == 8


def test_bench_without_queries_raises_value_error() -> None:
    with pytest.raises(ValueError, match="no job to predict"):
        Bench(Examples("run", planted_runs(9).learnt))


def test_examples_fingerprint_differs_for_other_examples() -> None:
    examples = planted_runs(9)
    assert examples.fingerprint == planted_runs(9).fingerprint != planted_runs(10).fingerprint
    fewer = Examples("run", examples.learnt, examples.queries[1:])
    assert len({examples.fingerprint, fewer.fingerprint, Examples("wait", examples.learnt).fingerprint}) == 3


def test_bench_predicts_zero_for_a_job_before_all_others() -> None:
    stretch = Examples("run", queries=[Query(planted_runs(1).learnt[0][0], 0, 10.0)])
    assert Bench(stretch).error_s(IblParameters()) == 10.0


def test_decode_of_chromosome_returns_its_parameters() -> None:
    job, model, history, middle = "0100100", "011", "111", "1"
    found = decode("101" + "1000001" + job + "01" + model + history + middle, "wait")
    assert found == IblParameters()._replace(
        policy=("group", "queue"),
        state=("free_cpus", "queued_demand"),
        attributes=("user", "cpus"),
        job_share=0.5,
        neighbours=10,
        history=8000,
        middle="median",
    )
    run = decode(job + model + history + middle, "run", IblParameters()._replace(neighbours=7))
    assert (run.run_attributes, run.run_neighbours, run.run_history) == (("user", "cpus"), 10, 8000)
    assert (run.run_middle, run.neighbours) == ("median", 7)


@pytest.mark.parametrize("target", ["wait", "run"])
def test_decoded_parameters_equal_those_of_the_ibl_method(target: Target) -> None:
    parameters = decode("1" * Chromosomes(target, list).bits, target)
    settings = settings_of(parameters, target)
    method = method_named("ibl", settings)
    assert isinstance(method, Ibl) and method.parameters == parameters != IblParameters()
    assert settings["attributes" if target == "wait" else "run_attributes"] == list(JOB)
    assert target == "run" or (method.parameters.policy, method.parameters.state) == (POLICY, STATE)


@pytest.mark.parametrize("target", ["wait", "run"])
def test_chromosome_is_encoded_as_decoded(target: Target) -> None:
    dice = np.random.default_rng(4)
    for _ in range(50):
        gene = "".join(map(str, dice.integers(0, 2, Chromosomes(target, list).bits)))
        assert encode(decode(gene, target), target) == gene
    assert decode(encode(IblParameters(), target), target) == IblParameters()
    with pytest.raises(ValueError):
        encode(IblParameters(neighbours=7, run_neighbours=7), target)


def test_bench_error_equals_error_of_the_engine_predictions() -> None:
    random = np.random.default_rng(3)
    events: list[AnyEvent] = [capacity(16)]
    jobs: dict[str, ActualTimes] = {}
    for number, time in enumerate(np.cumsum(random.exponential(300.0, 250)).tolist()):
        job, cpus, user = str(number), int(random.integers(1, 9)), f"u{random.integers(5)}"
        wait_s, run_s = random.exponential(600.0, 2).tolist()
        events.append(submit(job, time, user=user, queue="day", cpus=cpus, walltime=600.0))
        events.append(start(job, time + wait_s))
        events.append(end(job, time + wait_s + run_s))
        if number >= 50:
            jobs[job] = ActualTimes(wait_s, run_s)
    events.sort(key=lambda event: event.time)
    parameters: dict[str, bool | int | float | str | list[str]]
    parameters = {"history": 1000, "neighbours": 5, "run_history": 1000, "run_neighbours": 7, "policy": ["user"]}
    settings = EngineSettings(method="ibl", shadows=(), runtimes="ibl", parameters={"ibl": parameters})
    engine = Engine("s", settings)
    predictions = [record for event in events for record in engine.apply(event) if isinstance(record, Prediction)]
    queries = [(record, jobs[record.job]) for record in predictions if record.job in jobs]
    waits = [abs((record.predicted_wait_s or 0.0) - truth.wait_s) for record, truth in queries]
    runs = [abs((record.predicted_run_s or 0.0) - truth.run_s) for record, truth in queries]
    examples = collect(events, jobs, settings)
    tuned = Ibl(**parameters).parameters._replace(policy=("user",))
    found = [Bench(stretch).error_s(tuned) for stretch in examples]
    assert found == [pytest.approx(np.mean(waits)), pytest.approx(np.mean(runs))]


def test_examples_are_collected_as_they_became_known() -> None:
    queries = {"user": "ada", "queue": "day", "cpus": 2, "walltime": 600.0}
    events: list[AnyEvent] = [
        capacity(8),
        submit("1", 10.0, **queries),
        start("1", 20.0),
        submit("2", 30.0, **queries),
        submit("3", 40.0, **queries),
        start("2", 50.0),
        cancel("3", 55.0),
        end("1", 60.0),
        submit("4", 70.0, **queries),
    ]
    jobs = {"2": ActualTimes(20.0, 100.0), "3": ActualTimes(15.0, 0.0), "4": ActualTimes(5.0, 30.0)}
    waits, runs = collect(events, jobs)
    assert [value_s for _, value_s in waits.learnt] == [10.0, 20.0]
    assert [(queries.learnt, queries.value_s) for queries in waits.queries] == [(1, 20.0), (1, 15.0), (2, 5.0)]
    assert [value_s for _, value_s in runs.learnt] == [40.0]
    assert [(queries.learnt, queries.value_s) for queries in runs.queries] == [(0, 100.0), (1, 30.0)]
    found = waits.queries[1].instance.state
    assert found is not None
    assert found.categories == [(None, "ada", "day")] and found.values[0][:2] == [1, 1]
    assert found.free_cpus == 6
