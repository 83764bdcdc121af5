"""What few jobs ask for, and what befalls few of them: kept apart, so that the others take no room for it."""

from operator import attrgetter
from typing import Any, Self

import msgspec


class _Rare(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Fields that are mostly as usual; it is stored as a map of those that are not, and takes a byte without any."""

    def but(self, **changes: Any) -> Self:
        return msgspec.structs.replace(self, **changes)


class Extras(_Rare, frozen=True, omit_defaults=True, gc=False):
    """What a job asks for beside what most do, and what the scheduler says of it; the fields are those of a submit.

    >>> EXTRAS.but(qos="high").qos
    'high'
    """

    partitions: list[str] | None = None
    tasks: int | None = None
    gpu_types: dict[str, int] | None = None
    exclusive: bool = False
    qos: str | None = None
    reservation: str | None = None
    licences: dict[str, int] | None = None
    dependency: str | None = None
    array: str | None = None
    array_size: int | None = None
    array_limit: int | None = None
    het_group: str | None = None
    priority: float | None = None
    pending_reason: str | None = None
    node_features: list[list[str]] | None = None

    @property
    def again(self) -> "Extras":
        """Those of the next attempt: what it waited for is over, and what the scheduler said of it too."""
        return EXTRAS if self is EXTRAS else self.but(dependency=None, priority=None, pending_reason=None)


class Progress(_Rare, frozen=True, omit_defaults=True, gc=False):
    """What has befallen a job beside coming, starting and ending.

    It has stood still since `suspended_at` (None: it does not), and for `suspended_s` seconds before; `suspend_time` is
    when it was last suspended or resumed. Times are Unix seconds. `held` says that it is held beside waiting for its
    dependency. `partition`, `nodes` and `gpus` are where it runs and what it was given there. `requeued` is why it
    queues again, `interrupted` how an end that came before its start cut it short, `late` that
    its submit was told only when it started, `past` that it is of the site's history, `old` that it is not predicted.

    Of an array that queues as one row, `tasks_gone` have left it; the first that started names the `row` (id, attempt).
    """

    suspended_at: float | None = None
    suspended_s: float = 0.0
    suspend_time: float = 0.0
    held: bool = False
    partition: str | None = None
    nodes: int | None = None
    gpus: int | None = None
    requeued: str | None = None
    interrupted: str | None = None
    late: bool = False
    past: bool = False
    old: bool = False
    tasks_gone: int = 0
    row: tuple[str, int] | None = None


EXTRAS, PROGRESS = Extras(), Progress()
"""Those of a job that has none: nearly all share these."""

_EXTRAS = Extras.__struct_fields__
_extras_of = attrgetter(*_EXTRAS)
_USUAL = _extras_of(EXTRAS)


def extras_of(submit: Any) -> Extras:
    """The extras that a submit event names; 0.3 µs where it names none. An empty text says nothing."""
    found = _extras_of(submit)
    if found == _USUAL:
        return EXTRAS
    extras = Extras(**dict(zip(_EXTRAS, found, strict=True)))
    return extras.but(dependency=extras.dependency or None, pending_reason=extras.pending_reason or None)


def progress_at_start(start: Any, before: Progress) -> Progress:
    """What a start event says of where a job runs, beside its processors."""
    given = start.partition, start.nodes, start.gpus
    if given == (None, None, None):
        return before
    partition, nodes, gpus = given
    return before.but(partition=partition, nodes=nodes, gpus=gpus)
