"""Command `ask`: output, exit codes and HTTP queries."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from models.ranking import ExcludedSite, JobRequest, RankedSite, Ranking
from models.records import Alternative, LiveState, Why
from streams.cli.app import main
from streams.client import listing
from streams.client.http import HttpClient
from streams.client.listing import check_ranking, parsed_request, show_ranking
from streams.errors import Unreachable, UserError
from tests.support.answering import Answer, HttpRequest, answering

JOB = JobRequest(cpus=64, walltime=14_400.0, user="ada")


def site(name: str, wait_s: float | None = 5400.0, **fields: Any) -> RankedSite:
    defaults = {
        "predicted_response_s": None if wait_s is None else wait_s + 3600.0,
        "predicted_run_s": 3600.0,
        "predicted_start": None if wait_s is None else 835_823_160.0,
        "bounds": None if wait_s is None else {"0.5": 5400.0, "0.9": 31_000.0},
        "method": "qespera",
        "reason": "120 jobs like it of the last 6000",
    }
    place = {"speed": 1.0, "degraded": None, "live": LiveState(queued_jobs=12, running_jobs=340, free_cpus=7)}
    values = defaults | place | {"site_cpus": 430, "source": "what-if"} | fields
    return RankedSite(site=name, predicted_wait_s=wait_s, **values)


def ranking(*sites: RankedSite, left_out: tuple[tuple[str, str], ...] = ()) -> Ranking:
    out = [ExcludedSite(site=name, reason=reason) for name, reason in left_out]
    return Ranking(job=JOB, reference_run_s=3600.0, ranking=list(sites), left_out=out)


GRID = ranking(
    site("ctc"),
    site("kth", 7200.0, source="grid"),
    site("sdsc", None, reason="no history", degraded="histories began anew"),
    left_out=(("elm", "unknown site: no event of it has been seen"), ("tiny", "has 4 CPUs")),
)


def test_ranking_table_shows_probability_of_best_site(capsys: pytest.CaptureFixture[str]) -> None:
    show_ranking(ranking(site("ctc", p_best=0.724), site("kth", p_best=None), site("elm", p_best=1.0)))
    rows = capsys.readouterr().out.splitlines()[2:7]
    assert [row[-5:].strip() for row in (rows[0], *rows[2:])] == ["best", "72 %", "–", "100 %"]


def test_ranking_table_shows_stale_reason_one_time(capsys: pytest.CaptureFixture[str]) -> None:
    show_ranking(
        ranking(site("ctc", stale="silent; it is stale", degraded="stale: silent; it is stale", low_confidence="new"))
    )
    shown = capsys.readouterr().out
    assert shown.count("stale: silent") == 1 and "[ranked behind: new]" in shown


def test_ranking_table_fits_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show_ranking(GRID)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    ctc = next(line for line in out.splitlines() if line.startswith("ctc"))
    for cell in ("2h30m", "1h30m", "8h37m", "1h", "1996-06-26 21:06"):
        assert cell in ctc
    assert [line.split()[0] for line in out.splitlines() if line.split()[:1] in (["ctc"], ["kth"], ["sdsc"])][:3] == [
        "ctc",
        "kth",
        "sdsc",
    ]
    text = " ".join(out.split())
    assert text.startswith("64 cpus for 4h, user ada ")
    for words in (
        "12 jobs queued, 340 running, 7 of 430 CPUs free",
        "qespera: 120 jobs like it",
        "its worker is silent",
        "no history",
        "has 4 CPUs",
        "left out:",
    ):
        assert words in text
    assert "–" in next(line for line in out.splitlines() if line.startswith("sdsc"))


def test_ranking_shows_wait_reason_and_alternatives(capsys: pytest.CaptureFixture[str]) -> None:
    instead = [
        Alternative(walltime=7200.0, predicted_wait_s=3000.0, sooner_s=2400.0),
        Alternative(queue="short", predicted_wait_s=4000.0, sooner_s=1400.0),
    ]
    show_ranking(ranking(site("ctc", why=Why(text="12 jobs ahead of it", free_cpus=0, instead=instead))))
    output = capsys.readouterr().out
    assert "12 jobs ahead of it" in output
    assert "request 2h: 40m sooner; queue short: 23m sooner" in output


def test_ranking_table_escapes_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    show_ranking(ranking(site("\x1b[2Jevil", reason="[red]\x1b]"), left_out=(("\x07", "\x9b"),)))
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    assert "[red]" in out


def test_check_ranking_accepts_ranking_with_estimates() -> None:
    check_ranking(GRID)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (ranking(), "no site is registered yet: is a worker running, and has it received events?"),
        (ranking(site("ctc", None, reason="no history")), "no site has an estimate for this job"),
        (ranking(left_out=(("elm", "unknown site"), ("fir", "silent"))), "no site has an estimate for this job"),
    ],
)
def test_check_ranking_of_empty_ranking_raises_user_error(found: Ranking, reason: str) -> None:
    with pytest.raises(UserError) as error:
        check_ranking(found)
    assert str(error.value).endswith(reason)


@contextmanager
def service(status: int, body: bytes, length: int | None = None) -> Iterator[tuple[str, list[Any]]]:
    """Run a service with a fixed response; yield its URL and the queries received: path, query, token.

    Args:
        status: HTTP status of the response.
        body: Body of the response.
        length: Content-Length of the response; by default the size of `body`.
    """
    requests: list[Any] = []

    def answer(request: HttpRequest) -> Answer:
        url = urlsplit(request.path)
        requests.append((url.path, parse_qs(url.query), request.headers.get("Authorization")))
        return Answer(body, status, {} if length is None else {"Content-Length": str(length)})

    with answering(answer) as found:
        yield found, requests


def test_http_client_sends_rank_query_and_token() -> None:
    with service(200, msgspec.json.encode(GRID)) as (url, requests):
        assert HttpClient(f"{url}/", "to&ken").rank(JOB, sites=["ctc", "k&h"], run_s=60.0, why=True) == GRID
    query = {"cpus": ["64"], "walltime": ["14400s"], "user": ["ada"], "gpus": ["0"], "run": ["60s"], "why": ["true"]}
    assert requests == [("/v1/rank", query | {"site": ["ctc", "k&h"]}, "Bearer to&ken")]
    with service(200, msgspec.json.encode(GRID)) as (url, requests):
        HttpClient(url).rank(JobRequest(partition="gpu", gpu_type="a100", exclusive=True, memory=1 << 30))
    (_, query, _) = requests[0]
    parameters = {"partition": ["gpu"], "gpu_type": ["a100"], "exclusive": ["true"], "memory": [str(1 << 30)]}
    assert {name: query[name] for name in parameters} == parameters


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, b'{"status_code":401,"detail":"the token is missing"}', "the token is missing"),
        (503, b"gone", "status 503"),
        (200, b"<html>", "the server is not a queuecast service"),
    ],
)
def test_http_client_error_status_raises_user_error(status: int, body: bytes, reason: str) -> None:
    with service(status, body) as (url, requests), pytest.raises(UserError, match=reason):
        HttpClient(url).rank(JOB)
    assert requests[0][2] is None


@pytest.mark.parametrize("status", [200, 503])
def test_http_client_truncated_response_raises_user_error(status: int) -> None:
    with service(status, b'{"job":', length=1000) as (url, _), pytest.raises(UserError, match=f"^{url}: "):
        HttpClient(url).rank(JOB)


def test_http_client_unreachable_or_invalid_url_raises() -> None:
    with service(200, b"") as (url, _):
        pass
    with pytest.raises(Unreachable, match="is `queuecast serve` running there"):
        HttpClient(url).rank(JOB)
    for wrong in ("file:///etc/passwd", "localhost:6067"):
        with pytest.raises(UserError, match="expected http://"):
            HttpClient(wrong).rank(JOB)


class TestCommand:
    @pytest.fixture
    def requests(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """Record the rank queries to a fake Kafka client that returns GRID."""
        found: list[Any] = []

        def rank(
            job: JobRequest, *, sites: Any, run_s: Any, why: bool, start_within: float | None, **_: Any
        ) -> Ranking:
            found.append((job, tuple(sites), run_s))
            shown = [msgspec.structs.replace(one, p_start=0.72 if one.bounds else None) for one in GRID.ranking]
            return (
                GRID
                if start_within is None
                else msgspec.structs.replace(GRID, ranking=shown, start_within_s=start_within)
            )

        grid = SimpleNamespace(rank=rank)
        monkeypatch.setattr(listing, "Client", lambda *_, **__: nullcontext(grid))
        return found

    def test_options_describe_job(self, requests: list[Any]) -> None:
        options = "--cpus 4 --walltime 1-00:00:00 --nodes 2 --queue q --user u --group g --account a --executable x"
        assert main(["ask", *options.split(), "--gpus", "1", "--memory", "4G", "--run", "90m", "--site", "ctc"]) == 0
        job = JobRequest(cpus=4, walltime=86_400.0, nodes=2, gpus=1, memory=4 << 30, queue="q", user="u", group="g")
        assert requests == [(msgspec.structs.replace(job, account="a", executable="x"), ("ctc",), 5400.0)]

    def test_gpu_partition_and_memory_options_describe_job(
        self, requests: list[Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        options = "--gpus 4 --gpu-type a100 --partition gpu,old --mem 64G --qos high --tasks 8 --exclusive"
        more = ["--reservation", "course", "--account", "lab", "--constraint", "ib|hdr"]
        assert main(["ask", *options.split(), *more]) == 0
        job = JobRequest(gpus=4, gpu_type="a100", partition="gpu,old", memory=64 << 30, qos="high", tasks=8)
        job = msgspec.structs.replace(job, exclusive=True, reservation="course", account="lab", constraint="ib|hdr")
        assert requests == [(job, (), None)]
        description = "1 cpu and 4 gpus of type a100 without a walltime, whole nodes, tasks 8, memory 64G"
        assert (
            parsed_request(job)
            == f"{description}, partition gpu,old, account lab, qos high, reservation course, constraint ib|hdr"
        )

    def test_start_before_option_shows_probability_in_time(
        self, requests: list[Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["ask", "--start-before", "3h"]) == 0
        head, _, heads, _, ctc, *_, sdsc = capsys.readouterr().out.splitlines()[:7]
        assert head.endswith(", to start within 3h")
        assert heads.endswith("in time  best") and "72 %" in ctc and sdsc.endswith("–")
        assert main(["ask", "--start-before", "1999-01-01"]) == 2
        assert "--start-before: '1999-01-01' is in the past; expected a time of day as 17:00" in capsys.readouterr().err

    def test_json_option_prints_ranking(self, requests: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["ask", "--json"]) == 0
        assert msgspec.convert(json.loads(capsys.readouterr().out), Ranking) == GRID
        assert requests == [(JobRequest(), (), None)]

    @pytest.mark.parametrize(
        ("arguments", "code", "reason"),
        [
            (
                ("--walltime", "soon"),
                2,
                "walltime: 'soon' is not a valid duration; expected a time with its unit, not 0: 90m",
            ),
            (("--walltime", "4"), 2, "walltime: '4' is not a valid duration without a unit; expected 4m, 4h or 4s"),
            (("--cpus", "0"), 2, "cpus: expected a whole number >= 1"),
            (
                ("--mem", "64X"),
                2,
                "memory: '64X' is not a valid memory size; expected bytes, or a number with K, M, G or T",
            ),
            (("--gpu-type", ""), 2, "gpu_type: expected text, not an empty one"),
            (("--user", ""), 2, "user: expected text, not an empty one"),
        ],
    )
    def test_invalid_option_is_reported_in_one_line(
        self,
        requests: list[Any],
        capsys: pytest.CaptureFixture[str],
        arguments: tuple[str, ...],
        code: int,
        reason: str,
    ) -> None:
        assert main(["ask", *arguments]) == code
        assert reason in capsys.readouterr().err
        assert not requests

    def test_token_option_overrides_settings(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("QUEUECAST_SERVE_TOKEN", "of-the-settings")
        with service(200, msgspec.json.encode(GRID)) as (url, requests):
            assert main(["ask", "--url", url]) == 0
            assert main(["ask", "--url", url, "--token", "given"]) == 0
        assert [token for _, _, token in requests] == ["Bearer of-the-settings", "Bearer given"]
        assert "left out:" in capsys.readouterr().out


def test_serve_missing_extra_prints_install_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "streams.serve.http_server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve"]) == 1
    expected = "queuecast: uvicorn is not installed; install it with pip install 'queuecast[serve]'\n"
    assert capsys.readouterr().err == expected
