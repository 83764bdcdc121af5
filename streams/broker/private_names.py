"""The names inside aiokafka, Faust and mode that this package assigns, overrides or reads.

No release promises them, and an assignment to an attribute that a release has renamed has no effect and raises nothing.
So the modules that use these names check them when they are imported. Before another version of a library is allowed in
pyproject.toml, compare each use with its source, then enter the version here.
"""

import dis
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import CodeType
from typing import Any, NamedTuple

from streams.errors import UserError

CHECKED = {"aiokafka": "0.14.0", "faust-streaming": "0.15.3", "mode-streaming": "0.7.1"}
"""The version of each library against which the uses were checked."""


class PrivateNames(NamedTuple):
    """Names of a class, or globals that a function reads, as `module:name`, and what they are used for."""

    library: str
    owner: str
    names: tuple[str, ...]
    why: str


AIOKAFKA = (
    PrivateNames("aiokafka", "aiokafka.conn:create_conn", ("AIOKafkaConnection",), "replaced by our connection"),
    PrivateNames(
        "aiokafka",
        "aiokafka.conn:AIOKafkaConnection",
        ("send", "_send_sasl_token", "_writer", "_host", "_port"),
        "a lost connection is reported, not written to",
    ),
    PrivateNames(
        "aiokafka",
        "aiokafka.consumer.consumer:AIOKafkaConsumer",
        ("_fetch_max_wait_ms", "_client", "_coordinator", "_fetcher", "_subscription", "_closed"),
        "fetches wait briefly; new partitions are read; the group's state is read",
    ),
    PrivateNames(
        "aiokafka",
        "aiokafka.client:AIOKafkaClient",
        ("_metadata_update", "_wait_on_metadata"),
        "a pause while a partition has no leader",
    ),
    PrivateNames(
        "aiokafka",
        "aiokafka.consumer.group_coordinator:GroupCoordinator",
        (
            "_pending_exception",
            "_push_error_to_user",
            "_send_req",
            "ensure_active_group",
            "_group_instance_id",
            "_closing",
            "_coordination_task",
            "member_id",
            "generation",
            "group_id",
        ),
        "fatal errors are kept; a member does not replace another of its name, and leaves when it stops",
    ),
    PrivateNames(
        "aiokafka",
        "aiokafka.consumer.fetcher:Fetcher",
        ("_subscriptions", "_closed", "_create_fetch_waiter", "fetched_records"),
        "records of active partitions alone are taken",
    ),
    PrivateNames(
        "aiokafka",
        "aiokafka.consumer.subscription_state:SubscriptionState",
        ("fetch_context", "reassignment_in_progress", "subscription", "partitions_auto_assigned"),
        "records of active partitions alone are taken",
    ),
    PrivateNames(
        "aiokafka",
        "aiokafka.producer.producer:AIOKafkaProducer",
        ("_message_accumulator",),
        "records join an open batch",
    ),
    PrivateNames(
        "aiokafka",
        "aiokafka.producer.message_accumulator:MessageAccumulator",
        ("_batches", "_closed", "_exception"),
        "records join an open batch",
    ),
    PrivateNames(
        "aiokafka",
        "aiokafka.producer.message_accumulator:MessageBatch",
        ("_builder", "future"),
        "records join an open batch",
    ),
)

FAUST = (
    PrivateNames(
        "faust-streaming",
        "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread",
        (
            "start",
            "call_thread",
            "on_start",
            "_gather_remaining_tasks",
            "_create_worker_consumer",
            "_fetch_records",
            "_serve",
            "_thread_started",
            "_thread_running",
            "_consumer",
            "parent_loop",
        ),
        "the consumer runs in the worker's event loop",
    ),
    PrivateNames(
        "faust-streaming",
        "faust.transport.drivers.aiokafka:Consumer",
        (
            "_new_consumer_thread",
            "on_stop",
            "wait_first",
            "perform_seek",
            "_thread",
            "_committed_offset",
            "_read_offset",
            "_is_changelog_tp",
            "_new_topicpartition",
            "_filter_tps_with_pending_acks",
            "_new_offset",
        ),
        "our member of the group, its end, its seek and its acknowledgements",
    ),
    PrivateNames(
        "faust-streaming",
        "faust.transport.drivers.aiokafka:Transport",
        ("Consumer", "Producer"),
        "our consumer and producer",
    ),
    PrivateNames(
        "faust-streaming",
        "faust.transport.drivers.aiokafka:Producer",
        ("_ensure_producer",),
        "records join an open batch",
    ),
    PrivateNames("faust-streaming", "faust.tables.manager:TableManager", ("recovery",), "the end of recovery is kept"),
    PrivateNames(
        "faust-streaming",
        "faust.tables.recovery:Recovery",
        ("_signal_recovery_end", "in_recovery"),
        "the end of recovery is kept",
    ),
    PrivateNames(
        "faust-streaming",
        "faust:Table",
        ("apply_changelog_batch", "send_changelog", "data"),
        "the latest state counts, and writes name their partition",
    ),
    PrivateNames(
        "faust-streaming",
        "faust.web.drivers.aiohttp:Web",
        ("default_blueprints", "production_blueprints", "debug_blueprints", "optional_blueprints"),
        "Faust's own pages are off",
    ),
    PrivateNames(
        "faust-streaming",
        "faust:App",
        ("_new_web", "_new_transport", "stop", "crash"),
        "our transport and web server, and an end within a time limit",
    ),
    PrivateNames("mode-streaming", "mode.worker:Worker", ("_starting_fut",), "a failed start is reported"),
)


def check_private_names(listed: Iterable[PrivateNames]) -> None:
    """Check that the installed libraries have these names.

    Raises:
        UserError: one is missing; names the library, its version and the attribute.
    """
    for one in listed:
        for name in _missing(one):
            raise UserError(
                f"{one.library} {_version(one.library)} has no {one.owner.replace(':', '.')}.{name}, which queuecast "
                f"needs ({one.why}); install {one.library} {CHECKED[one.library]}"
            )


def _version(library: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # 20 ms, for an error alone

    try:
        return version(library)
    except PackageNotFoundError:
        return "of an unknown version"


def _missing(one: PrivateNames) -> Iterator[str]:
    module, _, owner = one.owner.partition(":")
    try:
        found: Any = getattr(import_module(module), owner)
    except (ImportError, AttributeError):
        yield from one.names
        return
    if not isinstance(found, type):
        yield from set(one.names) - set(found.__code__.co_names)
        return
    theirs = [kind for kind in found.__mro__ if not kind.__module__.startswith("streams.")]
    yield from (name for name in one.names if not any(has_attribute(kind, name) for kind in theirs))


def has_attribute(kind: type, name: str) -> bool:
    """Detect an attribute of a class, or one that its methods assign to its instances."""
    if name in vars(kind):
        return True
    codes = (getattr(value, "__code__", None) for value in vars(kind).values())
    return any(_assigns(code, name) for code in codes if code is not None)


def _assigns(code: CodeType, name: str) -> bool:
    return name in code.co_names and any(
        one.opname == "STORE_ATTR" and one.argval == name for one in dis.get_instructions(code)
    )
