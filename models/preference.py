"""A preferred site stays first in a ranking unless another site starts the job sooner by a margin."""

import msgspec

from models.ranking import RankedSite, Ranking


class Preference(msgspec.Struct, frozen=True):
    """The preferred site, and the margin in seconds by which another must start the job sooner to go first."""

    site: str
    unless_sooner_s: float = 0.0


def preferring(ranking: Ranking, preference: Preference) -> Ranking:
    """Return the ranking with the preferred site first, unless another starts sooner by more than the margin.

    Starts are compared by the cautious waits. Sites whose estimate is stale, of low confidence or unverified are
    skipped. A preferred site without a reliable estimate stays in its place.
    """
    one = next((ranked for ranked in ranking.ranking if ranked.site == preference.site), None)
    if one is None or not _counts(one):
        return ranking
    others = [ranked for ranked in ranking.ranking if ranked is not one]
    limit_s = _wait_s(one) - preference.unless_sooner_s
    sooner = [ranked for ranked in others if _counts(ranked) and _wait_s(ranked) < limit_s]
    if sooner:
        first = min(sooner, key=_wait_s)
        order = [first, *(ranked for ranked in ranking.ranking if ranked is not first)]
    else:
        order = [one, *others]
    return msgspec.structs.replace(ranking, ranking=order)


def _counts(ranked: RankedSite) -> bool:
    doubts = (ranked.stale, ranked.low_confidence, ranked.unverified)
    return ranked.predicted_wait_s is not None and not any(doubts)


def _wait_s(ranked: RankedSite) -> float:
    wait_s = ranked.predicted_wait_s if ranked.cautious_wait_s is None else ranked.cautious_wait_s
    assert wait_s is not None
    return wait_s
