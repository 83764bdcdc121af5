"""Operator commands, sent among a site's events."""

import msgspec

from models.records.events import VERSION, Count, Name, Text, Time, Version


class Operation(msgspec.Struct, tag_field="type", kw_only=True, frozen=True):
    """An operator command for a site, sent among its events: the operator, the time (Unix seconds) and the reason."""

    v: Version = VERSION
    site: Name
    time: Time
    by: Name
    why: Text = ""


class ForgetJob(Operation, tag="operator_forget", kw_only=True, frozen=True):
    """Remove a live job: it is neither scored nor learned from, and later events do not restore it."""

    job: Name
    attempt: Count = 0


class SetCapacity(Operation, tag="operator_capacity", kw_only=True, frozen=True):
    """Set the size of the site until its next `capacity` event."""

    cpus: Count
    nodes: Count | None = None
    down_nodes: Count = 0


class Rebuild(Operation, tag="operator_rebuild", kw_only=True, frozen=True):
    """Rebuild the state and the histories from the site's events in the topic."""


class ResetSite(Operation, tag="operator_reset", kw_only=True, frozen=True):
    """Discard everything learned about the site, for a new machine under the same name; size and live jobs stay."""


class LoadPrior(Operation, tag="operator_load_prior", kw_only=True, frozen=True):
    """Load pre-trained forests into the site; `prior` is the encoded prior."""

    prior: bytes


AnyOperation = ForgetJob | SetCapacity | Rebuild | ResetSite | LoadPrior


class DoneOperation(msgspec.Struct, kw_only=True, frozen=True):
    """An operator command in the state of a site: its broker timestamp (Unix seconds) and its effect in words."""

    type: str
    at: float
    by: str
    why: str
    done: str
    rebuilt: bool = False
