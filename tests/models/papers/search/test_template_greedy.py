from itertools import pairwise

from models.papers.search.templates import greedy
from tests.support.template_searches import in_turn, workload


def test_greedy_step_adds_best_template_with_one_more_attribute() -> None:
    work = workload(80)
    evaluate = in_turn(work)
    steps = list(greedy(work, evaluate, "surest"))
    sizes = len(work.attributes) + 2
    assert len(steps) == 4 * sizes
    for begin in range(0, len(steps), sizes):
        grown = steps[begin : begin + sizes]
        assert [[len(t.attributes) for t in step.templates] for step in grown] == [
            list(range(size + 1)) for size in range(sizes)
        ]
        for before, after in pairwise(grown):
            assert after.templates[:-1] == before.templates
        assert len({(t.predictor, t.relative) for t in grown[-1].templates}) == 1
    assert len({(s.templates[0].predictor, s.templates[0].relative) for s in steps}) == 4


def test_greedy_search_picks_the_best_single_attribute() -> None:
    work = workload(80)
    found = list(greedy(work, in_turn(work), "surest"))
    site, first = found[0].templates[0], found[1]
    site_estimates = work.estimates(site)
    for name in (*work.attributes, *(f"cpus/{2**exponent}" for exponent in range(10))):
        other = type(site).of([name], site.predictor, site.relative, site.history, site.elapsed)
        assert work.error_s([site_estimates, work.estimates(other)], "surest") >= first.error_s
    assert work.error_s([site_estimates, work.estimates(first.templates[1])], "surest") == first.error_s
