"""Access to slurmrestd: renewal of expiring tokens, Unix sockets, private certificates."""

import json
import socketserver
import ssl
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from streams.errors import UserError
from streams.sources.contract import SkippedPart
from streams.sources.slurm.calls import CallFailed
from streams.sources.slurm.rest import SlurmRest, SlurmrestdAccess
from tests.support.certificates import Authority

Refused = list[str]


def token(name: str, lasts_s: float) -> str:
    claims = json.dumps({"exp": time.time() + lasts_s, "sun": name}).encode()
    return f"e30.{urlsafe_b64encode(claims).decode().rstrip('=')}.signature"


@contextmanager
def served(server: Any, refused: Refused, paths: list[str] | None = None) -> Iterator[list[tuple[str, str]]]:
    """Serve requests whose token is not in `refused`; yield the users and tokens received, and add paths to `paths`."""
    sent: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            user, received = (self.headers.get(f"X-SLURM-USER-{name}", "") for name in ("NAME", "TOKEN"))
            sent.append((user, received))
            if paths is not None:
                paths.append(self.path)
            self.send_response(500 if received in refused else 200)
            self.end_headers()
            if received not in refused:
                self.wfile.write(b'{"jobs":[]}')

        def address_string(self) -> str:
            return "client"

        def log_message(self, *_: Any) -> None: ...

    server.RequestHandlerClass = Handler
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield sent
    finally:
        server.shutdown()
        server.server_close()


def no_skips(skipped: SkippedPart) -> None:
    pytest.fail(str(skipped))


def test_token_file_is_reread_and_expired_token_reported(tmp_path: Path) -> None:
    file, old, new = tmp_path / "token", token("ada", -120), token("bob", 3600)
    file.write_text(f"SLURM_JWT={old}\n")
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    calls = SlurmRest(
        f"http://127.0.0.1:{server.server_port}/slurm/v0.0.40", {}, SlurmrestdAccess(token_file=str(file))
    )
    with served(server, [old]) as sent:
        with pytest.raises(CallFailed, match=rf"500 .*; the token of {file} expired 2m ago"):
            calls.queue(no_skips)
        file.write_text(new)
        calls.queue(no_skips)
        assert sent == [("ada", old), ("bob", new)]
        file.unlink()
        with pytest.raises(CallFailed, match=r"the token in .* cannot be read"):
            calls.queue(no_skips)


def test_token_command_renews_before_expiry_and_after_refusal(tmp_path: Path) -> None:
    tokens = [token("ada", seconds) for seconds in (30, 3600, 7200)]
    for number, made in enumerate(tokens):
        (tmp_path / f"{number}").write_text(made)
    (tmp_path / "next").write_text("0")
    command = f"cd {tmp_path}; n=$(cat next); echo $((n + 1)) > next; echo SLURM_JWT=$(cat $n)"
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    calls = SlurmRest(
        f"http://127.0.0.1:{server.server_port}/slurm/v0.0.40", {}, SlurmrestdAccess(token_command=command)
    )
    with served(server, refused := Refused()) as sent:
        for _ in range(3):
            calls.queue(no_skips)
        refused.append(tokens[1])
        with pytest.raises(CallFailed, match="expires in"):
            calls.queue(no_skips)
        calls.queue(no_skips)
        assert [received for _, received in sent] == [tokens[0], tokens[1], tokens[1], tokens[1], tokens[2]]
        with pytest.raises(CallFailed, match="printed no token"):
            SlurmRest(
                f"http://127.0.0.1:{server.server_port}/slurm/v1", {}, SlurmrestdAccess(token_command="exit 3")
            ).queue(no_skips)


def test_slurmrestd_call_missing_token_variable_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JWT", raising=False)
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    with served(server, [""]), pytest.raises(CallFailed, match="no token: SLURM_JWT is not set"):
        SlurmRest(f"http://127.0.0.1:{server.server_port}/slurm/v0.0.40", {}).queue(no_skips)


def test_slurmrestd_unix_socket_serves_queue(tmp_path: Path) -> None:
    class SocketServer(socketserver.UnixStreamServer): ...

    server = SocketServer(str(tmp_path / "rest.sock"), BaseHTTPRequestHandler)
    paths = list[str]()
    with served(server, [], paths) as sent:
        assert SlurmRest(f"unix://{tmp_path}/rest.sock", {}).queue(no_skips).rows == []
        assert len(sent) == 1
        for pinned in ("/slurm/v0.0.39", "/v0.0.39/"):
            SlurmRest(f"unix://{tmp_path}/rest.sock{pinned}", {}).queue(no_skips)
    assert paths == [f"/slurm/v0.0.{version}/jobs" for version in (42, 39, 39)]
    with pytest.raises(CallFailed, match="No such file"):
        SlurmRest(f"unix://{tmp_path}/none", {}).queue(no_skips)


def test_slurmrestd_client_certificate_and_private_ca_are_used(tmp_path: Path) -> None:
    authority = Authority("ours")
    ca, pair = authority.write(tmp_path / "ca.pem"), authority.write_server(tmp_path / "pair.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_REQUIRED
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    address = f"https://localhost:{server.server_port}/slurm/v0.0.40"
    with served(server, []):
        assert SlurmRest(address, {}, SlurmrestdAccess(ca=str(ca), certificate=str(pair))).queue(no_skips).rows == []
        with pytest.raises(CallFailed, match="certificate verify failed"):
            SlurmRest(address, {}).queue(no_skips)
        with pytest.raises(CallFailed):
            SlurmRest(address, {}, SlurmrestdAccess(ca=str(ca))).queue(no_skips)
    with pytest.raises(UserError, match="no usable certificate or key"):
        SlurmRest(address, {}, SlurmrestdAccess(ca=str(tmp_path / "none")))


def test_slurmrestd_access_conflicting_options_raise_user_error() -> None:
    with pytest.raises(UserError, match="token_file and token_command"):
        SlurmrestdAccess(token_file="a", token_command="b")
    with pytest.raises(UserError, match="key is set without certificate"):
        SlurmrestdAccess(key="a")
    with pytest.raises(UserError, match="expected http://HOST:PORT"):
        SlurmRest("http:///slurm", {})
