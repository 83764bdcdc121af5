"""What the dispatcher needs of a Kubernetes API server: lists, and server-side apply to a status."""

import json
import ssl
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from streams.errors import UserError
from streams.sources.logs.fields import Object, inside
from streams.sources.schedulers.kueue import GROUP, VERSIONS

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_S, PAGE = 30.0, 500


class Conflict(UserError):
    """An object has changed since it was read."""


class KueueApi:
    """Kueue's objects at an API server.

    Parameters:
        url: the server, such as https://kubernetes.default.svc, or what `kubectl proxy` shows.
        account: the folder of a service account with `token`, which is renewed, and `ca.crt`; need not be there.

    Every method may raise a `UserError`: the server cannot be reached, or refuses.
    """

    def __init__(self, url: str, account: Path = SERVICE_ACCOUNT) -> None:
        self._url, self._token = f"{url.rstrip('/')}/apis/{GROUP}", account / "token"
        ca = account / "ca.crt"
        self._context = ssl.create_default_context(cafile=str(ca) if ca.exists() else None)
        self.version = ""

    def items(self, plural: str) -> list[Object]:
        """All objects of a kind, in all namespaces."""
        found, more = list[Object](), ""
        while True:
            page = self._call("GET", f"{self._of_version()}/{plural}?{urlencode({'limit': PAGE, 'continue': more})}")
            found += page.get("items") or []
            more = inside(page, "metadata").get("continue") or ""
            if not more:
                return found

    def apply(self, workload: Object, manager: str, status: Object, version: str | None = None) -> None:
        """Have these fields in a workload's status, as this manager's; those that it had and are not here go.

        Raises Conflict where it is another `version` than was read.
        """
        known = inside(workload, "metadata")
        names = {"name": known.get("name"), "namespace": known.get("namespace")}
        metadata = names if version is None else {**names, "resourceVersion": version}
        body = {
            "apiVersion": f"{GROUP}/{self._of_version()}",
            "kind": "Workload",
            "metadata": metadata,
            "status": status,
        }
        place = f"{self._of_version()}/namespaces/{names['namespace']}/workloads/{names['name']}/status"
        self._call("PATCH", f"{place}?{urlencode({'fieldManager': manager, 'force': 'true'})}", body)

    def _of_version(self) -> str:
        if not self.version:
            served = [inside(one).get("version") for one in self._call("GET", "").get("versions") or []]
            self.version = next((version for version in VERSIONS if version in served), "")
            if not self.version:
                raise UserError(f"{self._url}: has none of {GROUP} {', '.join(VERSIONS)}")
        return self.version

    def _call(self, method: str, path: str, body: Object | None = None) -> Object:
        headers = {"Content-Type": "application/apply-patch+yaml", "Accept": "application/json"}
        if self._token.exists():
            headers["Authorization"] = f"Bearer {self._token.read_text().strip()}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/{path}".rstrip("/"), data, headers, method=method)
        context = self._context if self._url.startswith("https:") else None
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
                found: Any = json.load(answer)
        except urllib.error.HTTPError as error:
            kind = Conflict if error.code == 409 else UserError
            raise kind(f"{self._url}: {error.code} {error.reason}") from None
        except (OSError, ValueError, HTTPException) as error:
            raise UserError(f"{self._url}: {error}") from None
        return inside(found)
