"""An operator inspects and repairs a site on real servers, and a killed worker keeps the changes."""

import json
import re
import time
from pathlib import Path

import pytest

from deploy.local.up import as_toml
from models.records import Start, Submit
from models.waits.boosted.prior import Prior, shipped
from streams.cli.app import main
from streams.client.blocking import Client
from streams.operate import grid_prior
from tests.support.deployment import Deploy, ready, simulated, sites, until

pytestmark = pytest.mark.long


def test_site_commands_show_and_repair_site(
    deploy: Deploy,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = deploy()
    file = tmp_path_factory.mktemp("settings") / "queuecast.toml"
    file.write_text(as_toml(here.settings))
    monkeypatch.setenv("QUEUECAST_CONFIG", str(file))
    now = time.time()
    here.send([Submit(site="alder", time=now + n, job=str(n), cpus=4, walltime=600.0) for n in range(3)])
    here.send([Start(site="alder", time=now + 9, job="0")])
    misspelt = b'{"type":"submit","site":"alder","time":%f,"job":"9","wallclock":60}' % (now + 10)
    here.send_raw([(b"alder", misspelt)])
    here.worker.start()

    def shown() -> dict[str, object]:
        code = main(["site", "alder", "show", "--json"])
        out = capsys.readouterr().out
        found: dict[str, object] = json.loads(out.splitlines()[-1]) if code == 0 else {}
        return found

    until(lambda: shown().get("history_jobs") == 1)
    found = shown()
    assert found["unknown_fields"] == {"wallclock": 1}
    assert found["stale"] is None and found["as_of"] == pytest.approx(now + 10)

    assert main(["site", "alder", "forget-job", "2", "--why", "lost"]) == 0
    assert main(["site", "alder", "set-capacity", "--cpus", "430"]) == 0
    until(lambda: shown().get("cpus") == 430)
    assert shown()["live"] == {"queued_jobs": 2, "running_jobs": 1, "free_cpus": 426}
    assert main(["site", "alder", "rebuild"]) == 1
    assert main(["site", "alder", "rebuild", "--yes", "--why", "to be sure"]) == 0

    def operations() -> list[str]:
        return [done["type"] for done in shown().get("operations", [])]  # type: ignore[attr-defined]

    kinds = ["operator_forget", "operator_capacity", "operator_rebuild"]
    until(lambda: operations() == kinds)
    here.worker.kill()
    here.worker.start()
    until(lambda: operations() == kinds)
    after = shown()
    assert (after["cpus"], after["live"], after["history_jobs"]) == (
        430,
        {"queued_jobs": 2, "running_jobs": 1, "free_cpus": 426},
        1,
    )
    others = tmp_path_factory.mktemp("prior") / "grid.prior"
    others.write_bytes(shipped().encode())
    assert main(["site", "alder", "load-prior", str(others)]) == 0
    assert main(["site", "alder", "reset"]) == 1
    assert main(["site", "alder", "reset", "--yes"]) == 0
    kinds += ["operator_load_prior", "operator_reset"]
    until(lambda: operations() == kinds)
    here.worker.kill()
    here.worker.start()
    until(lambda: operations() == kinds)
    after = shown()
    assert (after["cpus"], after["history_jobs"], after["live"]) == (
        430,
        0,
        {"queued_jobs": 2, "running_jobs": 1, "free_cpus": 426},
    )
    assert main(["site", "alder", "show"]) == 0
    output = capsys.readouterr().out
    assert "rebuild by" in output and f"the forests start from {shipped().jobs} jobs of other sites" in output


def test_new_site_begins_with_prior_of_the_deployment(
    deploy: Deploy,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = deploy()
    file = tmp_path / "queuecast.toml"
    file.write_text(as_toml(here.settings))
    monkeypatch.setenv("QUEUECAST_CONFIG", str(file))
    young = simulated("birch", 30, seed=2)
    here.send(young)
    here.worker.start()
    assert main(["prior"]) == 1
    assert "expected --out FILE, --send, or both" in capsys.readouterr().err
    assert main(["prior", "--send"]) == 1
    assert "no site has 1000 started jobs in Kafka yet" in capsys.readouterr().err
    monkeypatch.setattr(grid_prior, "MATURE_JOBS", 120)
    here.send(simulated("alder", 180, seed=1))

    def histories() -> dict[str, int]:
        with Client(here.settings, patience_s=0) as grid:
            return {site: known.history_jobs for site, known in grid.every_site().items() if known is not None}

    until(lambda: histories().get("alder", 0) >= 120 and histories().get("birch", 0) > 0)
    out = tmp_path / "grid.prior"
    assert main(["prior", "--send", "--out", str(out)]) == 0
    output = capsys.readouterr().err
    assert re.search(r"trained on 1\d\d jobs of alder; version \d+\nsent to birch\n$", output)
    begins = f"the forests start from {Prior.decode(out.read_bytes()).jobs} jobs of other sites"
    with Client(here.settings, patience_s=0) as grid:
        until(lambda: [one.done for one in grid.site("birch").operations] == [begins])
        assert grid.site("alder").operations == []


def test_removed_site_is_absent_after_restart(deploy: Deploy) -> None:
    """The steps of deploy/README.md. They do not depend on the compaction of the topic."""
    here = deploy()
    events = [event for site in ("alder", "birch") for event in simulated(site, 20)]
    here.send(events)
    here.worker.start()
    here.await_outputs(sum(map(len, here.expected(events).values())))
    here.stop()
    for key in here.redis.scan_iter(f"{here.settings.redis.prefix}:{{alder}}:*"):
        here.redis.delete(key)
    here.producer.send(here.topics.state, key=b"alder", value=None)
    here.producer.flush()

    here.worker.start()
    until(lambda: ready(here.worker) and sites(here.worker) == {"birch"})
    here.send(simulated("alder", 20))
    until(lambda: sites(here.worker) == {"alder", "birch"})
    here.stop()
