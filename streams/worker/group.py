"""A worker's place in its group: that it is lost is found out, where aiokafka would wait or take it back for ever."""

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka.errors import GroupAuthorizationFailedError, KafkaError
from faust.transport.drivers import aiokafka

from streams.errors import Unreachable, UserError
from streams.faults import PERMISSIONS

FETCH_WAIT_MS = 100
"""For how long the broker holds its answer back while there are no events; whatever it is asked next waits for that."""

AGAIN_S = 1.0
"""Before it is asked again who is in the group, where nobody answers."""


class NameTaken(KafkaError):  # type: ignore[misc]  # aiokafka's classes are untyped
    """Another process has joined the group under this worker's name."""


class ConsumerThread(aiokafka.AIOKafkaConsumerThread):  # type: ignore[misc]  # faust's classes are untyped
    """The thread that talks to Kafka.

    To a member that the broker no longer knows aiokafka gives a new identity. Where it was replaced by a namesake it
    would replace that in turn, and so on; so before it joins anew it looks who has its name.
    """

    holder_of: Callable[[str], str | None]
    """Gives the member that has a name in the group; None where nobody has. It may block."""

    async def on_start(self) -> None:
        """Begin, and from then on keep an eye on the identities that the broker gives."""
        await super().on_start()
        coordinator = self._consumer._coordinator
        send, join, own = coordinator._send_req, coordinator.ensure_active_group, set()

        async def noting(request: Any) -> Any:
            response = await send(request)
            if member := getattr(response, "member_id", None):
                own.add(member)
            return response

        async def unless_replaced(*arguments: Any) -> Any:
            if own and not coordinator.member_id and not await self._is_free(coordinator._group_instance_id, own):
                return None
            return await join(*arguments)

        async def keep(error: KafkaError) -> None:
            coordinator._pending_exception = error
            await asyncio.wait([coordinator._closing])

        coordinator._send_req, coordinator.ensure_active_group = noting, unless_replaced
        coordinator._push_error_to_user = keep  # for `lost`; whoever waits for events is left to wait

    async def _is_free(self, name: str, own: set[str]) -> bool:
        """Whether nobody else has this name; False where that can't be found out now."""
        try:
            holder = await asyncio.to_thread(self.holder_of, name)
        except Unreachable:
            await asyncio.sleep(AGAIN_S)
            return False
        if holder is not None and holder not in own:
            raise NameTaken(name)
        return True

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS  # of which Faust makes 1.5 s, several times in each rebalance
        return consumer

    def leave(self) -> None:
        """Leave the group when this stops, though this worker's name is a lasting one."""
        if self._consumer is not None:
            self._consumer._coordinator._group_instance_id = None

    def lost(self) -> UserError | None:
        """Why this worker is no longer of its group and will not be again; None where it is, or is about to be."""
        coordinator = self._consumer and self._consumer._coordinator
        if coordinator is None:
            return None
        error, task = coordinator._pending_exception, coordinator._coordination_task
        if error is None and task.done() and not task.cancelled():
            error = task.exception()
        return None if error is None else UserError(_explained(error, coordinator.group_id))


def _explained(error: BaseException, group: str) -> str:
    if isinstance(error, NameTaken):
        return f"another worker was started as {error.args[0]!r}; give each a worker.instance of its own"
    if isinstance(error, GroupAuthorizationFailedError):
        return f"kafka: this worker may no longer use the group {group}; {PERMISSIONS}"
    return f"kafka: this worker has lost its place in the group {group}: {error!r}"
