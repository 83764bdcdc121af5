"""The OpenAPI document of the service, and that the service keeps to it."""

from functools import cache
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings

from tests.support.asked import TOKEN, FakeClient, app_of, engines
from tests.support.documented import ask_readable_constraints


@cache
def served() -> Any:
    return app_of(FakeClient(engines()), token=TOKEN)


async def first_asked(scope: Any, receive: Any, send: Any) -> None:
    """The service, whose engines are made when it is first asked: not while tests are only collected."""
    await served()(scope, receive, send)


schema = schemathesis.openapi.from_asgi("/schema/openapi.json", app_of(FakeClient(), token=TOKEN))
schema.app = first_asked
ask_readable_constraints(schema)
schema.config.generation.with_security_parameters = False  # each request has the token: without it none is wrong


@schema.parametrize()
@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_it_is_as_its_document_says(case: schemathesis.Case) -> None:
    """Every path with parameters that fit and that do not: statuses, types and bodies are those of the document."""
    case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"})


def test_the_document_has_every_path_and_asks_for_the_token() -> None:
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
    asked = {path: bool(operation["get"].get("security")) for path, operation in paths.items()}
    assert asked == {path: path.startswith("/v1/") for path in paths}
