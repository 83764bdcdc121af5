"""What operators do to a site, sent among its events."""

import msgspec

from models.records.events import VERSION, Count, Name, Text, Time, Version


class Operation(msgspec.Struct, tag_field="type", kw_only=True, frozen=True):
    """A change that an operator makes to a site, sent among its events: who made it, when (Unix seconds), and why."""

    v: Version = VERSION
    site: Name
    time: Time
    by: Name
    why: Text = ""


class ForgetJob(Operation, tag="operator_forget", kw_only=True, frozen=True):
    """A live job is taken out: neither scored nor learnt, and no later event revives it."""

    job: Name
    attempt: Count = 0


class SetCapacity(Operation, tag="operator_capacity", kw_only=True, frozen=True):
    """The site's size, until its next `capacity` event."""

    cpus: Count
    nodes: Count | None = None
    down_nodes: Count = 0


class Rebuild(Operation, tag="operator_rebuild", kw_only=True, frozen=True):
    """The state and the histories are made anew from what the topic still has of the site's events."""


class BeginAnew(Operation, tag="operator_begin", kw_only=True, frozen=True):
    """All that was learnt of the site is forgotten: it is another machine. Its size and its live jobs stay."""


class UsePrior(Operation, tag="operator_prior", kw_only=True, frozen=True):
    """From now on the site's forests start from what these sites taught: the prior itself, as it is stored."""

    prior: bytes


AnyOperation = ForgetJob | SetCapacity | Rebuild | BeginAnew | UsePrior


class DoneOperation(msgspec.Struct, kw_only=True, frozen=True):
    """An operation as a site remembers it: when it came to the broker (Unix seconds), and what was done, in words."""

    type: str
    at: float
    by: str
    why: str
    done: str
    rebuilt: bool = False
