"""Slurm's REST service, slurmrestd, in the versions of its data that there are."""

import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from typing import Any

from streams.errors import UserError
from streams.sources.contract import Calls, OnSkipped
from streams.sources.slurm.access import JsonWebToken, Slurmrestd, SlurmrestdAccess
from streams.sources.slurm.calls import TIMEOUT_S, CallFailed, SlurmCalls, jobs_of
from streams.sources.slurm.json_jobs import JobsDocument
from streams.sources.slurm.machine import words

VERSIONS = (42, 41, 43, 44, 40, 45, 46, 39, 38, 37)
"""The versions of the REST service's data that are tried where none is given, the best known first."""


class Rest(SlurmCalls):
    """slurmrestd.

    Parameters:
        address: `http://host:6820` or `unix:///SOCKET`, or with the data's version behind: `…/slurm/v0.0.42`.

    Raises:
        UserError: it is no such address.
    """

    def __init__(self, address: str, measured: dict[str, Calls], access: SlurmrestdAccess | None = None) -> None:
        super().__init__(measured)
        access = access or SlurmrestdAccess()
        self._server, self._token = Slurmrestd(address, access), JsonWebToken(access)
        self._version = self._server.path.strip("/").removeprefix("slurm").strip("/") or None

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
            return words.read_json(what, data)
        except ValueError as error:
            raise CallFailed(what, str(error)) from None

    def _get(self, service: str, what: str, since: float | None = None) -> bytes:
        name = what if service == "slurm" else f"{service} {what}"

        def path(version: str) -> str:
            return f"/{service}/{version}/{what}{'' if since is None else _query(version, since)}"

        return self._measured(name, lambda: self._of_version(name, path))

    def _of_version(self, name: str, path: Callable[[str], str]) -> bytes:
        """What is served of the version that is known, or that is found now."""
        if self._version is not None:
            return self._fetch(name, path(self._version))
        for number in VERSIONS:
            version = f"v0.0.{number}"
            with suppress(_NotFound):
                data = self._fetch(name, path(version))
                self._version = version
                return data
        raise CallFailed(name, f"no version from {min(VERSIONS)} to {max(VERSIONS)} of the data is served there")

    def _fetch(self, name: str, path: str) -> bytes:
        url = f"{self._server.base}{path}"
        try:
            headers = {"Accept": "application/json"} | self._token.headers()
            with self._server.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise _NotFound(name, f"{url}: not found") from None
            # releases before 23.11 answer 500 to a token that has expired
            told = f"; {self._token.told()}" if error.code in (401, 403, 500, 511) else ""
            raise CallFailed(name, f"{url}: {error.code} {error.reason}{told}") from None
        except UserError as error:  # of the token
            raise CallFailed(name, str(error)) from None
        except (OSError, ValueError, HTTPException) as error:  # the last: the server died in mid-answer
            raise CallFailed(name, f"{url}: {error}") from None


def _query(version: str, since: float) -> str:
    """Asks for all attempts that lived since then; up to v0.0.38 that is the rule, and times are `uts` and seconds."""
    if version in ("v0.0.37", "v0.0.38"):
        return f"?start_time=uts{since:.0f}&skip_steps=true"
    return f"?start_time={since:.0f}&skip_steps=true&show_duplicates=true"


class _NotFound(CallFailed):
    """There is nothing of this version."""
