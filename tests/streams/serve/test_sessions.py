"""Browser sign-in by link, token or proxy header; and error pages."""

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from streams.cli.app import main
from streams.errors import UserError
from streams.serve.access import networks
from streams.serve.sessions import LINK_S, SESSION, SESSION_S, OneTimeLinks, name_in, signed
from tests.streams.serve.test_access import TOKENS, Client, client_of
from tests.support.fake_client import USER

ADA = TOKENS["ada"].token


@pytest.fixture
def client() -> Iterator[Client]:
    with client_of(tokens=TOKENS) as found:
        yield found


def _enter(client: Client, name: str = "ada", token: str = ADA, until: float = LINK_S) -> Any:
    key = signed("link", name, token, time.time() + until)
    return client.post("/login", params={"key": key}, follow_redirects=False)


def test_login_link_creates_session_cookie(client: Client) -> None:
    assert client.get("/v1/sites").status_code == 401
    entered = _enter(client)
    assert (entered.status_code, entered.headers["location"]) == (303, "./")
    cookie = entered.headers["set-cookie"].lower()
    assert all(word in cookie for word in ("httponly", "samesite=strict", f"max-age={SESSION_S}"))
    assert "secure" not in cookie
    assert client.get("/v1/sites").status_code == 200
    assert client.get(f"/v1/users/{USER}/jobs").status_code == 200
    assert client.get("/v1/users/bob/jobs").status_code == 403
    assert client.get("/v1/me").json() == {"name": "ada", "rights": "own", "user": USER, "session": True}
    client.delete("/login")
    assert client.get("/v1/sites").status_code == 401


def test_session_cookie_through_tls_proxy_is_secure(client: Client) -> None:
    headers = {"authorization": f"Bearer {ADA}", "x-forwarded-proto": "https"}
    assert "; secure" in client.post("/login", headers=headers).headers["set-cookie"].lower()


def test_link_works_once_and_opening_it_does_not_use_it(client: Client) -> None:
    url = f"/login?key={signed('link', 'ada', ADA, time.time() + LINK_S)}"
    for _ in range(2):
        shown = client.get(url)
        assert shown.status_code == 200 and "<b>ada</b>" in shown.text and SESSION not in client.cookies
        assert client.head(url).status_code == 200
    assert client.get("/v1/sites").status_code == 401
    form = re.search(r'<form method="post" action="([^"]+)">', shown.text)
    assert form is not None
    assert [client.post(f"/{form[1]}", follow_redirects=False).status_code for _ in range(2)] == [303, 403]
    assert client.get(url).status_code == 403


def test_used_link_is_rejected_after_restart(client: Client) -> None:
    url = f"/login?key={signed('link', 'ada', ADA, time.time() + LINK_S)}"
    assert client.post(url, follow_redirects=False).status_code == 303
    with client_of(tokens=TOKENS) as restarted:
        assert restarted.post(url, follow_redirects=False).status_code == 403
        assert restarted.get(url).status_code == 403
        assert _enter(restarted).status_code == 303


@pytest.mark.parametrize(("ahead_s", "restart_s"), [(0.0, 1.0), (3.0, 2.0), (0.5, 0.6), (-20.0, 1.0)])
def test_clock_skew_never_accepts_link_twice(ahead_s: float, restart_s: float) -> None:
    now = 1000.0
    link = signed("link", "ada", ADA, now + ahead_s + LINK_S)
    clock = iter(now + number * restart_s / 4 for number in range(-1, 200))
    accepted = sum(OneTimeLinks(lambda: next(clock)).use(link, TOKENS) == "ada" for _ in range(40))
    assert accepted <= 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin", "origin": "https://proxy.example"}, 303),
        ({"origin": "http://127.0.0.1"}, 303),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "none"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:8080"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_cross_site_login_is_rejected(client: Client, headers: dict[str, str], status: int) -> None:
    key = signed("link", "ada", ADA, time.time() + LINK_S)
    found = client.post("/login", params={"key": key}, headers=headers, follow_redirects=False)
    assert (found.status_code, SESSION in found.cookies) == (status, status == 303)
    if status == 403:
        token = {"authorization": f"Bearer {ADA}"}
        assert client.post("/login", headers=headers | token).status_code == 403
        assert client.delete("/login", headers=headers).status_code == 403
        assert client.post("/login", params={"key": key}, follow_redirects=False).status_code == 303, "it was not used"


def test_sign_in_page_lets_the_browser_send_its_origin(client: Client) -> None:
    shown = client.get(f"/login?key={signed('link', 'ada', ADA, time.time() + LINK_S)}")
    assert shown.headers.get_list("referrer-policy") == ["same-origin"]
    assert client.get("/").headers.get_list("referrer-policy") == ["no-referrer"]


@pytest.mark.parametrize(
    "wrong", [{"until": -1.0}, {"token": "another token of ada"}, {"name": "nobody"}, {"name": "admin"}]
)
def test_invalid_login_link_is_rejected(client: Client, wrong: dict[str, Any]) -> None:
    assert _enter(client, **wrong).status_code == 403
    assert client.get("/v1/sites").status_code == 401


def test_session_ends_on_token_removal(client: Client) -> None:
    assert _enter(client).status_code == 303
    client.app.state.access.replace({"admin": TOKENS["admin"]})
    assert client.get("/v1/sites").status_code == 401


@pytest.mark.parametrize("given", ["", "x", "a.b", "ada.x.y.z", "ada.9e9.n.", "é.1.2.3", "ada.9e9.n.é"])
def test_key_missing_valid_signature_has_no_name(given: str) -> None:
    assert name_in("session", given, TOKENS, 0.0) is None
    assert name_in("session", signed("link", "ada", ADA, 10.0), TOKENS, 0.0) is None
    assert name_in("link", signed("link", "a.b é", ADA, 10.0), {"a.b é": TOKENS["ada"]}, 0.0) == "a.b é"


def test_bearer_token_login_creates_session(client: Client) -> None:
    assert client.post("/login", headers={"authorization": "Bearer wrong horse"}).status_code == 401
    entered = client.post("/login", headers={"authorization": f"Bearer {TOKENS['admin'].token}"})
    assert entered.status_code == 204 and SESSION in entered.cookies
    assert client.get("/v1/users/bob/jobs").status_code == 200


@pytest.mark.parametrize(("trusted", "expected"), [(["10.0.0.0/8", "192.0.2.7"], 200), (["192.0.2.8"], 401)])
def test_user_header_of_trusted_proxy_authenticates(trusted: list[str], expected: int) -> None:
    async def statuses() -> list[int]:
        transport = httpx.ASGITransport(inner.app, client=("192.0.2.7", 4711))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            paths = ((f"/v1/users/{USER}/jobs", {"X-Remote-User": USER}), ("/v1/sites", {}))
            return [(await client.get(path, headers=headers)).status_code for path, headers in paths]

    with client_of(user_header="X-Remote-User", user_header_from=tuple(trusted)) as inner:
        assert asyncio.run(statuses()) == [expected, 401]
        assert inner.get("/v1/sites", headers={"X-Remote-User": USER}).status_code == 401


def test_invalid_proxy_network_raises_user_error() -> None:
    with pytest.raises(UserError, match=r"serve\.user_header_from: .*10\.0\.0\.0/8"):
        networks(["10.0.0.300"])


def test_credentials_command_creates_login_link(
    client: Client, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "queuecast.toml"
    settings.write_text(f'[serve.tokens.ada]\ntoken = "{ADA}"\nrights = "own"\nuser = "{USER}"\n')
    command = ["--config", str(settings), "credentials", "--link"]
    assert main([*command, "--for", "ada", "--url", "https://q.example.org/"]) == 0
    link = capsys.readouterr().out.strip()
    assert link.startswith("https://q.example.org/login?key=ada.")
    assert client.post(link.removeprefix("https://q.example.org"), follow_redirects=False).status_code == 303
    assert main([*command, "--for", "bob"]) == 1
    assert "cannot create a link: the settings have tokens of: ada" in capsys.readouterr().err


def test_error_is_html_for_browsers_and_json_for_programs(client: Client) -> None:
    html = client.get("/no/page", headers={"accept": "text/html,*/*"})
    assert (html.status_code, html.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "There is no such page" in html.text and 'href="../static/style.css"' in html.text
    assert not re.search(r'(href|src)="(?!\.\./|#)', html.text)
    assert client.get("/no/page").json()["status_code"] == 404
    assert client.get("/v1/nothing", headers={"accept": "text/html"}).json()["status_code"] == 404
    refused = client.get("/login?key=<b>", headers={"accept": "text/html"})
    assert refused.status_code == 403 and "queuecast credentials --link" in refused.text
