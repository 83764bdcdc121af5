"""The OpenAPI document, and conformance of the service to it."""

from functools import cache
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings

from tests.support.documented import ask_readable_constraints
from tests.support.fake_client import TOKEN, FakeClient, app_of, engines


@cache
def served() -> Any:
    return app_of(FakeClient(engines()), token=TOKEN)


async def served_app(scope: Any, receive: Any, send: Any) -> None:
    """Serve the app; create its engines at the first request, not during test collection."""
    await served()(scope, receive, send)


schema = schemathesis.openapi.from_asgi("/schema/openapi.json", app_of(FakeClient(), token=TOKEN))
schema.app = served_app
ask_readable_constraints(schema)
schema.config.generation.with_security_parameters = False  # each generated request already has the token


@schema.parametrize()
@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_service_conforms_to_openapi_document(case: schemathesis.Case) -> None:
    """Query each path with valid and invalid parameters; compare statuses, types and bodies with the document."""
    case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"})


def test_openapi_document_lists_paths_and_requires_token() -> None:
    paths = schema.raw_schema["paths"]
    assert set(paths) == {
        "/v1/sites",
        "/v1/sites/{site}",
        "/v1/sites/{site}/estimates",
        "/v1/sites/{site}/outcomes",
        "/v1/sites/{site}/trends",
        "/v1/sites/{site}/wait",
        "/v1/sites/{site}/jobs/{name}",
        "/v1/rank",
        "/v1/users/{user}/jobs",
        "/v1/status",
        "/v1/accuracy",
        "/v1/me",
        "/healthz",
        "/readyz",
        "/metrics",
    }
    answers = schema.raw_schema["components"]["schemas"]
    types = {
        name: answers[name]["properties"]["type"]["const"]
        for name in ("WaitAnswer", "SiteAnswer", "JobsAnswer", "JobAnswer")
    }
    assert types == {"WaitAnswer": "wait", "SiteAnswer": "site", "JobsAnswer": "jobs", "JobAnswer": "job"}
    requires_token = {path: bool(operation["get"].get("security")) for path, operation in paths.items()}
    assert requires_token == {path: path.startswith("/v1/") for path in paths}
