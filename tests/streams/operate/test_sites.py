"""Doctor's checks of the sites by the answers of their workers."""

import msgspec

from models.engine.asking.engine_answers import answer
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import DoneOperation, OrderFit, SiteAnswer, SiteQuestion
from streams.operate.checks import MAX_LISTED, changes, fields, freshness
from streams.operate.site import lines


def site_answer(site: str, stale: str | None = None, **unknown: int) -> SiteAnswer:
    engine = Engine(site, EngineSettings(method="median", shadows=(), bounds=""))
    found = answer(SiteQuestion(id="q", site=site), engine, 0.0)
    assert isinstance(found, SiteAnswer)
    return msgspec.structs.replace(found, stale=stale, unknown_fields=unknown)


def test_stale_sites_are_named_with_the_reason() -> None:
    found = freshness([site_answer("alder"), site_answer("birch", "its last event came 5h ago")], ["elm"])
    assert (found.state, found.found) == ("warn", "1 of 2 are stale: birch: its last event came 5h ago")
    many = freshness([site_answer(f"s{number}", "old") for number in range(MAX_LISTED + 3)])
    assert many.found.endswith("s7: old and 3 more")


def test_sites_without_a_worker_are_named() -> None:
    found = freshness([site_answer("alder")], ["elm"])
    assert (found.state, found.found) == ("warn", "no worker answers for elm")
    assert freshness([site_answer("alder")]).state == "ok"
    assert freshness([]).found == "none has sent events yet"


def test_unknown_fields_are_named() -> None:
    found = fields([site_answer("alder", wallclock=7), site_answer("birch")])
    assert (found.state, found.found) == ("warn", "unknown: 'wallclock' of alder 7 times")
    assert fields([site_answer("alder")]).state == "ok"


def test_doctor_reports_operator_changes() -> None:
    done = DoneOperation(type="operator_forget", at=1e9, by="ada", why="lost", done="job 4, queued, is forgotten")
    found = changes([msgspec.structs.replace(site_answer("alder"), operations=[done])])
    assert found.found == "2001-09-09 01:46:40 UTC alder: job 4, queued, is forgotten, by ada lost"
    assert changes([site_answer("alder")]).found == "none"


def test_site_description_names_the_strongest_features() -> None:
    site = msgspec.structs.replace(site_answer("alder"), features={f"f{place}": 0.9 - place / 10 for place in range(6)})
    (line,) = (line for line in lines(site) if line.startswith("waits"))
    assert line == "waits correlate with: f0 0.90, f1 0.80, f2 0.70, f3 0.60"
    assert not any(line.startswith("waits") for line in lines(msgspec.structs.replace(site, features={"cpus": 0.0})))
    assert not any(line.startswith("waits") for line in lines(site_answer("alder")))


def test_site_description_states_the_fit_of_the_order() -> None:
    learned = OrderFit(order="learned", share=0.931, pairs=900, kinds={"up to 1 h": 0.95, "over 12 h": 0.8})
    site = msgspec.structs.replace(site_answer("alder"), order_fit=learned)
    explained = "the learned order explains 93 % of recent starts (95 % up to 1 h, 80 % over 12 h)"
    assert f"queue order: {explained}" in lines(site)
    by_priority = OrderFit(order="priorities", share=1.0, pairs=300)
    site = msgspec.structs.replace(site, order_fit=by_priority)
    assert "queue order: the scheduler's priorities explain 100 % of recent starts" in lines(site)
    assert not any(line.startswith("queue order") for line in lines(site_answer("alder")))
