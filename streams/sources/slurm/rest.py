"""Slurm's REST service, slurmrestd: its address, the token and TLS that it wants, and the versions of its data."""

import binascii
import http.client
import os
import re
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from base64 import urlsafe_b64decode
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from models.durations import duration
from streams.errors import InvalidInput, UserError
from streams.sources.contract import Calls, OnSkipped
from streams.sources.slurm.calls import TIMEOUT_S, CallFailed, SlurmCalls, jobs_of
from streams.sources.slurm.json_jobs import JobsDocument
from streams.sources.slurm.machine import read_json

RENEW_S = 60.0  # a token that lasts for less is renewed before it is used
COMMAND_TIMEOUT_S = 30.0


class SlurmrestdAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials of slurmrestd. By default the token is in the environment: SLURM_JWT.

    Args:
        token_file: file with the token; it is read again before each call.
        token_command: prints a token, such as `scontrol token lifespan=3600`; it runs again before its token
            expires.
        ca: certificate file to verify the server with.
        certificate, key: files of the client's own certificate; the key may be in the same file.
    """

    token_file: str = ""
    token_command: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        if self.token_file and self.token_command:
            raise InvalidInput("token_file and token_command are both set; set only one")
        if self.key and not self.certificate:
            raise InvalidInput("key is set without certificate; set both")


class _Claims(msgspec.Struct):
    """Claims of a token; Slurm stores the user's name in `sun`."""

    exp: float | None = None
    sun: str | None = None


class JsonWebToken:
    """The token, renewed when necessary."""

    def __init__(self, access: SlurmrestdAccess) -> None:
        self._access = access
        self._made = ""
        self.place = access.token_file or (f"`{access.token_command}`" if access.token_command else "SLURM_JWT")

    def headers(self) -> dict[str, str]:
        """Return the request headers; empty if there is no token.

        Raises:
            UserError: the token cannot be read or created; it is not shown.
        """
        token = self._now()
        if not token:
            return {}
        user = claims_of(token).sun or os.environ.get("SLURM_USER") or os.environ.get("USER") or "root"
        return {"X-SLURM-USER-TOKEN": token, "X-SLURM-USER-NAME": user}

    def _now(self) -> str:
        access = self._access
        if access.token_file:
            try:
                return _bare(Path(access.token_file).read_text())
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(f"the token in {access.token_file} cannot be read: {error}") from None
        if not access.token_command:
            return os.environ.get("SLURM_JWT", "").strip()
        expires = claims_of(self._made).exp
        if not self._made or (expires is not None and expires < time.time() + RENEW_S):
            self._made = self._printed(access.token_command)
        return self._made

    def _printed(self, command: str) -> str:
        try:
            done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise UserError(f"{self.place} printed no token within {COMMAND_TIMEOUT_S:.0f} s") from None
        token = _bare(done.stdout)
        if done.returncode or not token:
            raise UserError(f"{self.place} printed no token: {done.stderr.strip() or f'exit code {done.returncode}'}")
        return token

    def explain_rejection(self) -> str:
        """Explain why the server may have rejected the token, and renew it for the next call."""
        token, self._made = self._made, ""
        try:
            token = token or self._now()
        except UserError as error:
            return str(error)
        if not token:
            return "no token: SLURM_JWT is not set, nor token_file or token_command"
        expires = claims_of(token).exp
        if expires is None:
            return f"the token of {self.place} may have expired"
        remaining_s = expires - time.time()
        if remaining_s <= 0:
            return f"the token of {self.place} expired {duration(-remaining_s)} ago"
        return f"the token of {self.place} expires in {duration(remaining_s)}"


def claims_of(token: str) -> _Claims:
    """Return the unverified claims of a JSON Web Token; empty if it is invalid."""
    parts = token.split(".")
    try:
        return msgspec.json.decode(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), type=_Claims)
    except (IndexError, ValueError, binascii.Error):
        return _Claims()


def _bare(text: str) -> str:
    """Extract the token from the content of a file or of `scontrol token`, which prints `SLURM_JWT=` before it."""
    return text.strip().removeprefix("SLURM_JWT=").strip()


_VERSION = re.compile(r"((?:/slurm)?/v\d+\.\d+\.\d+)/?$")  # what pins the version of the data, behind a socket


def _context(access: SlurmrestdAccess) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.ca or None)
        if access.certificate:
            context.load_cert_chain(access.certificate, access.key or None)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (access.ca, access.certificate, access.key)))
        raise UserError(f"{files}: no usable certificate or key: {error}") from None
    return context


class _UnixHandler(urllib.request.HTTPHandler):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_UnixConnection, self._path), req)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, host: str, timeout: float | None = None, **_: Any) -> None:
        super().__init__(host, timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


VERSIONS = (42, 41, 43, 44, 40, 45, 46, 39, 38, 37)
"""The versions of the REST service's data that are tried where none is given, the best known first."""


class SlurmRest(SlurmCalls):
    """slurmrestd.

    Parameters:
        address: `http://host:6820`, `https://…` or `unix:///SOCKET`, or with the data's version behind:
            `…/slurm/v0.0.42`.

    Raises:
        UserError: it is no such address, or a file of certificates cannot be read.
    """

    def __init__(self, address: str, measured: dict[str, Calls], access: SlurmrestdAccess | None = None) -> None:
        super().__init__(measured)
        access = access or SlurmrestdAccess()
        self._token, parts = JsonWebToken(access), urlsplit(address)
        handlers: list[urllib.request.BaseHandler] = []
        if parts.scheme == "unix":
            place, *pinned = _VERSION.split(parts.path)[:2]
            self._base, path, missing = "http://localhost", "".join(pinned), not place
            handlers.append(_UnixHandler(place))
        else:
            self._base, path, missing = f"{parts.scheme}://{parts.netloc}", parts.path, not parts.netloc
        if missing:
            raise InvalidInput(
                f"{address}: expected http://HOST:PORT, unix:///SOCKET or http://HOST:PORT/slurm/v0.0.42"
            )
        if parts.scheme == "https":
            handlers.append(urllib.request.HTTPSHandler(context=_context(access)))
        self._open = urllib.request.build_opener(*handlers).open
        self._version = path.strip("/").removeprefix("slurm").strip("/") or None

    def queue(self, on_skipped: OnSkipped) -> JobsDocument:
        """`GET /slurm/…/jobs`."""
        return jobs_of(self._get("slurm", "jobs"), on_skipped, "jobs")

    def accounting(self, since: float, on_skipped: OnSkipped) -> JobsDocument:
        """`GET /slurmdb/…/jobs`."""
        data = self._get("slurmdb", "jobs", since)
        return jobs_of(data, on_skipped, "slurmdb jobs")

    def machine(self, what: str) -> Any:
        """`GET /slurm/…/nodes` and the like, `GET /slurmdb/…/qos` and `…/associations`."""
        data = self._get("slurmdb" if what in ("qos", "associations") else "slurm", what)
        try:
            return read_json(what, data)
        except ValueError as error:
            raise CallFailed(what, str(error)) from None

    def _get(self, service: str, what: str, since: float | None = None) -> bytes:
        name = what if service == "slurm" else f"{service} {what}"

        def path(version: str) -> str:
            return f"/{service}/{version}/{what}{'' if since is None else _query(version, since)}"

        return self._measured(name, lambda: self._of_version(name, path))

    def _of_version(self, name: str, path: Callable[[str], str]) -> bytes:
        """Query a path of the API version, which is detected at the first call."""
        if self._version is not None:
            return self._fetch(name, path(self._version))
        for number in VERSIONS:
            version = f"v0.0.{number}"
            with suppress(_NotFound):
                data = self._fetch(name, path(version))
                self._version = version
                return data
        raise CallFailed(name, f"no version from {min(VERSIONS)} to {max(VERSIONS)} of the API is available")

    def _fetch(self, name: str, path: str) -> bytes:
        url = f"{self._base}{path}"
        try:
            headers = {"Accept": "application/json"} | self._token.headers()
            with self._open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise _NotFound(name, f"{url}: not found") from None
            # releases before 23.11 answer 500 to a token that has expired
            reason = f"; {self._token.explain_rejection()}" if error.code in (401, 403, 500, 511) else ""
            raise CallFailed(name, f"{url}: {error.code} {error.reason}{reason}") from None
        except UserError as error:  # of the token
            raise CallFailed(name, str(error)) from None
        except (OSError, ValueError, HTTPException) as error:  # the last: the server died in mid-answer
            raise CallFailed(name, f"{url}: {error}") from None


def _query(version: str, since: float) -> str:
    """Return the query for all attempts that were live since a time.

    Until v0.0.38 this is the default, and times are named `uts` and in seconds.
    """
    if version in ("v0.0.37", "v0.0.38"):
        return f"?start_time=uts{since:.0f}&skip_steps=true"
    return f"?start_time={since:.0f}&skip_steps=true&show_duplicates=true"


class _NotFound(CallFailed):
    """There is nothing of this version."""
