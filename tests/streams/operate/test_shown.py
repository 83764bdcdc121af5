"""A page of metrics that cannot be read whole."""

import urllib.request
from collections.abc import Callable
from http.client import IncompleteRead

import pytest

from streams.operate.checks import CheckResult, check_notifier, check_source


@pytest.mark.parametrize("check", [check_notifier, check_source])
def test_a_page_that_breaks_off_is_a_failed_check(
    check: Callable[[str], CheckResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_off(*_: object, **__: object) -> None:
        raise IncompleteRead(b"queue", 100)

    monkeypatch.setattr(urllib.request, "urlopen", broken_off)
    found = check("127.0.0.1:1")
    assert found.state == "fail" and "broke off" in found.found
