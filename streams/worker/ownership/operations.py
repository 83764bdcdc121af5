"""Apply an operator's change to a site, or keep the result of a rebuild for it."""

import logging
from typing import NamedTuple

from models.engine.operator_commands import operate
from models.records import ForgetJob, LoadPrior, SetCapacity
from streams.worker.checkpoint.stored_site import SiteHandle
from streams.worker.intake.messages import Unreadable

log = logging.getLogger(__name__)


class RebuildResult(NamedTuple):
    """Result of recreating a site for the operation at an offset."""

    offset: int
    detail: str
    failed: bool = False

    def describe(self) -> str:
        """Return the description of the result.

        Raises:
            Unreadable: The operation failed.
        """
        if self.failed:
            raise Unreadable("engine_failed", self.detail)
        return self.detail


def change_site(handle: SiteHandle, operation: ForgetJob | SetCapacity | LoadPrior) -> str:
    """Apply an operation to a site, and return a description of the change.

    Raises:
        Unreadable: The operation failed with any error. An operation must not stop a worker.
    """
    try:
        return operate(handle.engine, operation)
    except Exception as error:
        log.exception("Rejected an operation of site %s", handle.engine.site)
        raise Unreadable("operation_failed", f"{type(error).__name__}: {error}"[:500]) from None
