"""States are read only after the group coordinator confirmed the membership."""

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest
from aiokafka.errors import GroupCoordinatorNotAvailableError, IllegalGenerationError

from models.engine.settings import EngineSettings
from streams.worker.checkpoint import owned_table
from streams.worker.checkpoint.loader import SiteLoader
from streams.worker.checkpoint.owned_table import Retries


def test_unconfirmed_membership_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned_table, "RETRY_S", (0.0, 0.0))
    failures = [GroupCoordinatorNotAvailableError(), IllegalGenerationError()]

    async def confirm() -> None:
        if failures:
            raise failures.pop()

    unused: Any = Mock()
    loader = SiteLoader(unused, EngineSettings(), Retries(lambda: None), unused, unused, unused, confirm=confirm)
    asyncio.run(loader.confirm_membership())
    assert not failures
