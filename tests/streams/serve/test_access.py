"""Access to the service: tokens, rights, host names, rate limits and the access log."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient
from prometheus_client import REGISTRY

from streams.errors import UserError
from streams.serve import access as access_module
from streams.serve.access import Access, address_of, follow
from streams.serve.middleware import is_ours, names_of
from streams.serve.service import Service
from streams.serve.web import build_app
from streams.settings import ServeSettings, Settings, load_settings
from streams.settings.sections import ServeToken, check_secret, read_tokens
from tests.support.fake_client import USER, FakeClient, engine

Client = TestClient[Any]

TOKENS = {
    "meta": ServeToken(token="rank-rank-rank", rights="rank"),
    "ada": ServeToken(token="ada's own token", rights="own", user=USER),
    "admin": ServeToken(token="everything-is-seen"),
}


def client_of(**serve: Any) -> Client:
    """Return a client of a service with the given settings; its base URL is an IP address."""
    settings = Settings(serve=ServeSettings(**serve))
    app = build_app(Service(FakeClient([engine("alder", 1)]), settings), settings)
    return TestClient(app, base_url="http://127.0.0.1")


@pytest.fixture
def client() -> Iterator[Client]:
    with client_of(tokens=TOKENS) as found:
        yield found


def status(client: Client, path: str, name: str | None = "admin", **headers: str) -> int:
    if name is not None:
        headers["authorization"] = f"Bearer {TOKENS[name].token}"
    return client.get(path, headers=headers).status_code


RANKING = ["/v1/sites", "/v1/sites/alder", "/v1/sites/alder/estimates", "/v1/rank?cpus=2"]
EVERYBODYS = ["/v1/sites/alder/outcomes", "/v1/users/bob/jobs"]


class TestRights:
    @pytest.mark.parametrize("name", TOKENS)
    def test_token_of_any_rights_can_rank(self, client: Client, name: str) -> None:
        for path in (*RANKING, "/v1/sites/alder/wait?cpus=2"):
            assert status(client, path, name) == 200, path

    @pytest.mark.parametrize(("name", "expected"), [("meta", 403), ("ada", 403), ("admin", 200), (None, 401)])
    def test_jobs_of_all_users_require_full_rights(self, client: Client, name: str | None, expected: int) -> None:
        for path in EVERYBODYS:
            assert status(client, path, name) == expected, path

    @pytest.mark.parametrize(("name", "expected"), [("meta", 403), ("ada", 200), ("admin", 200)])
    def test_user_jobs_are_readable_by_own_and_full_rights(self, client: Client, name: str, expected: int) -> None:
        assert status(client, f"/v1/users/{USER}/jobs", name) == expected

    @pytest.mark.parametrize(("user", "expected"), [(USER, 200), ("", 200), ("bob", 403)])
    def test_own_rights_reject_prediction_for_other_user(self, client: Client, user: str, expected: int) -> None:
        for path in ("/v1/rank", "/v1/sites/alder/wait"):
            assert status(client, f"{path}?cpus=2&user={user}", "ada") == expected
            assert status(client, f"{path}?cpus=2&user={user}", "meta") == 200

    def test_site_queue_lists_own_jobs_only(self, client: Client) -> None:
        def queued(name: str) -> list[Any]:
            headers = {"authorization": f"Bearer {TOKENS[name].token}"}
            return list(client.get("/v1/sites/alder", headers=headers).json()["queued"])

        assert queued("admin") and queued("admin") == queued("ada") and not queued("meta")

    def test_single_token_setting_grants_full_rights(self) -> None:
        with client_of(token=TOKENS["admin"].token) as client:
            assert [status(client, path) for path in (*RANKING, *EVERYBODYS)] == [200] * 6

    def test_missing_rights_hide_existence_of_site(self, client: Client) -> None:
        assert status(client, "/v1/sites/elm/outcomes", "meta") == 403


class TestTokens:
    @pytest.mark.parametrize(
        "value",
        [
            "change-me",
            "CHANGE_ME",
            "changeme!",
            "password",
            "your-token-here",
            "secret",
            "<token>",
            "${TOKEN}",
            "$TOKEN",
            "xxxxxxxx",
            "...",
            "…",
            "12345678",
            "{{ token }}",
        ],
    )
    def test_public_example_secret_is_rejected(self, value: str) -> None:
        with pytest.raises(UserError, match=r"serve\.token: this is a public example value") as raised:
            check_secret("serve.token", value)
        assert value not in str(raised.value)

    @pytest.mark.parametrize("value", ["correct horse battery", "s3cret-of-mine-77", "xXx9yyQ2", None])
    def test_private_secret_is_accepted(self, value: str | None) -> None:
        check_secret("serve.token", value)

    @pytest.mark.parametrize(
        ("variable", "value"),
        [
            ("SERVE_TOKEN", "change-me"),
            ("KAFKA_PASSWORD", "change-me"),
            ("REDIS_PASSWORD", "change-me"),
            ("REDIS_URL", "redis://:change-me@there:6379/0"),
            ("SERVE_TOKEN", ""),
            ("SERVE_TOKEN", "short"),
            ("SERVE_TOKENS_FILE", ""),
        ],
    )
    def test_invalid_secret_in_any_setting_is_rejected(self, tmp_path: Path, variable: str, value: str) -> None:
        (tmp_path / "none.toml").touch()
        with pytest.raises(UserError, match=r"public example value|length"):
            load_settings(tmp_path / "none.toml", {f"QUEUECAST_{variable}": value})

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ('[ada]\ntoken = "short"', "ada.token: expected `str` of length >= 8"),
            ('[ada]\ntoken = "long enough"\nrights = "some"', "ada.rights: invalid enum value 'some'"),
            ('[ada]\ntokn = "long enough"', "ada: object"),
            ("", "the file contains no tokens"),
            ("[", "is not TOML"),
        ],
    )
    def test_tokens_file_error_names_problem(self, tmp_path: Path, text: str, problem: str) -> None:
        file = tmp_path / "tokens.toml"
        file.write_text(text)
        with pytest.raises(UserError) as raised:
            read_tokens(file)
        assert problem in str(raised.value)

    @pytest.mark.parametrize(
        ("tokens", "problem"),
        [
            ({"ada": ServeToken(token="long enough", rights="own")}, "needs a user"),
            ({"ada": ServeToken(token="long enough", user="ada")}, "needs a user"),
            ({"a": ServeToken(token="long enough"), "b": ServeToken(token="long enough")}, "a and b have the same"),
            ({"a": ServeToken(token="change-me")}, "this is a public example value"),
        ],
    )
    def test_inconsistent_tokens_raise_user_error(self, tokens: dict[str, ServeToken], problem: str) -> None:
        with pytest.raises(UserError, match=problem):
            ServeSettings(tokens=tokens).all_tokens()

    def test_tokens_of_settings_and_file_are_merged_and_masked(self, tmp_path: Path) -> None:
        (tmp_path / "tokens.toml").write_text('[bob]\ntoken = "the token of bob"\nrights = "own"\nuser = "bob"')
        config = tmp_path / "queuecast.toml"
        config.write_text(
            f'[serve]\ntoken = "everything"\ntokens_file = "{tmp_path}/tokens.toml"\n'
            '[serve.tokens.meta]\ntoken = "the meta-scheduler\'s"\nrights = "rank"\n'
        )
        settings = load_settings(config, {})
        tokens = settings.serve.all_tokens()
        assert {name: token.rights for name, token in tokens.items()} == {"meta": "rank", "bob": "own", "token": "all"}
        shown = f"{settings!r} {tokens!r}"
        assert not [token for token in tokens.values() if token.token in shown]


class TestRotation:
    def test_app_checks_replaced_tokens(self) -> None:
        access = Access(TOKENS)
        settings = Settings()
        app = build_app(Service(FakeClient([engine("alder", 1)]), settings), settings, access=access)
        with TestClient(app, base_url="http://127.0.0.1") as client:
            paths = ("/v1/sites", f"/v1/users/{USER}/jobs", "/v1/sites/alder/outcomes")
            assert [status(client, path) for path in paths] == [200] * 3
            access.replace({"admin": ServeToken(token="another one now")})
            assert [status(client, path) for path in paths] == [401] * 3
            headers = {"authorization": "Bearer another one now"}
            assert [client.get(path, headers=headers).status_code for path in paths] == [200] * 3
            assert client.get("/v1/sites/alder", headers=headers).json()["queued"]

    def test_changed_tokens_are_loaded_during_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(access_module, "LOOK_S", 0.01)
        file = tmp_path / "tokens.toml"
        serve = ServeSettings(tokens_file=str(file))
        file.write_text('[ada]\ntoken = "the first one"')
        access = Access(serve.all_tokens())

        async def rotate() -> None:
            following = asyncio.create_task(follow(access, [file], serve.all_tokens))
            await asyncio.sleep(0.05)
            file.write_text('[ada]\ntoken = "the second one"')
            await _until(lambda: access.find("Bearer the second one") is not None)
            assert access.find("Bearer the first one") is None
            for text in ("[", "", '[ada]\ntoken = "change-me"'):
                caplog.clear()
                file.write_text(text)
                await _until(lambda: "Kept the current tokens" in caplog.text)
            file.unlink()
            await asyncio.sleep(0.05)
            assert access.find("Bearer the second one") is not None
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

        asyncio.run(rotate())
        assert "second one" not in caplog.text

    def test_emptied_token_settings_keep_authentication(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(access_module, "LOOK_S", 0.01)
        file = tmp_path / "queuecast.toml"
        file.write_text('[serve.tokens.ada]\ntoken = "the first one"')
        access = Access(load_settings(file, {}).serve.all_tokens())

        async def take_away() -> None:
            following = asyncio.create_task(follow(access, [file], lambda: load_settings(file, {}).serve.all_tokens()))
            await asyncio.sleep(0.05)
            file.write_text("")
            await _until(lambda: "it would disable authentication" in caplog.text)
            following.cancel()

        asyncio.run(take_away())
        assert access.requires_token


async def _until(true: Any) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.01)


class TestHosts:
    @pytest.mark.parametrize(
        "host", ["127.0.0.1:6067", "[::1]:6067", "[::1]", "10.1.2.3", "localhost", "LOCALHOST.:6067", "hpc.example.org"]
    )
    def test_host_header_of_address_or_own_name_is_accepted(self, host: str) -> None:
        assert is_ours(host, names_of(ServeSettings(hosts=("hpc.example.org",))))

    @pytest.mark.parametrize(
        "host",
        ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "evil:80@localhost", "[::1]x", "[]"],
    )
    def test_host_header_of_other_name_is_rejected(self, host: str) -> None:
        assert not is_ours(host, names_of(ServeSettings(hosts=("hpc.example.org",))))

    def test_request_with_foreign_host_header_returns_421(self, client: Client) -> None:
        for path in ("/", "/static/app.js", "/v1/sites", "/schema/openapi.json"):
            assert status(client, path, host="evil.example:6067") == 421, path
            assert status(client, path, host="localhost:6067") == 200, path

    def test_probes_accept_any_host_header(self, client: Client) -> None:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert status(client, path, None, host="serve:6067") == 200


class TestRate:
    def test_rate_limit_is_per_token_and_address(self) -> None:
        with client_of(tokens=TOKENS, requests_per_minute=3) as client:
            for name, right in (("admin", 200), ("meta", 200), (None, 401)):
                assert [status(client, "/v1/sites", name) for _ in range(3)] == [right] * 3
                headers = {} if name is None else {"authorization": f"Bearer {TOKENS[name].token}"}
                refused = client.get("/v1/sites", headers=headers)
                assert refused.status_code == 429
                assert 1 <= int(refused.headers["retry-after"]) <= 60
                assert refused.json()["status_code"] == 429
            for path in ("/", "/healthz", "/metrics"):
                assert status(client, path, None) == 200

    @pytest.mark.parametrize(
        ("address", "expected"),
        [
            ("192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("testclient", "testclient"),
        ],
    )
    def test_ipv6_addresses_of_a_network_are_one_client(self, address: str, expected: str) -> None:
        assert address_of({"client": (address, 1)}) == expected


class TestLog:
    def test_access_log_records_client_user_and_status(self, client: Client, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "streams.serve.access")
        status(client, f"/v1/users/{USER}/jobs", "ada")
        status(client, "/v1/users/bob/jobs", "ada")
        status(client, "/v1/rank?cpus=2&user=bob", "meta")
        status(client, "/v1/users/bob/jobs", None)
        status(client, "/healthz", None)
        names = ("client", "path", "user", "status")
        entries = [tuple(getattr(record, name, None) for name in names) for record in caplog.records]
        assert entries == [
            ("ada", f"/v1/users/{USER}/jobs", USER, 200),
            ("ada", "/v1/users/bob/jobs", "bob", 403),
            ("meta", "/v1/rank", "bob", 200),
            (None, "/v1/users/bob/jobs", "bob", 401),
        ]
        text = "".join(str(vars(record)) for record in caplog.records)
        assert not [token for token in TOKENS.values() if token.token in text]


def answered() -> Counter[str]:
    """Count the answered requests to API paths in this process, by status."""
    found = Counter[str]()
    for family in REGISTRY.collect():
        for sample in family.samples:
            if sample.name == "queuecast_http_requests_total" and sample.labels["path"].startswith("/v1/"):
                found[sample.labels["status_code"]] += int(sample.value)
    return found


def test_rejected_requests_are_counted_by_status() -> None:
    requests = answered()
    hosts = ("testserver", "testserver.local")
    settings = Settings(serve=ServeSettings(tokens=TOKENS, requests_per_minute=2, hosts=hosts))
    with TestClient(build_app(Service(FakeClient(), settings), settings)) as client:
        assert client.get("/v1/sites", headers={"Host": "evil.example"}).status_code == 421
        assert status(client, "/v1/sites", None) == 401
        for expected in (403, 403, 429):
            assert status(client, "/v1/users/bob/jobs", "ada") == expected
    assert answered() - requests == {"401": 1, "403": 2, "421": 1, "429": 1}
