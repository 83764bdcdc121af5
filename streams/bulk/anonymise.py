"""Anonymise a log that a site may share: keyed hashes for names, optionally shifted times, unchanged sizes.

Hidden are the names of users, groups, accounts, jobs, queues, pools, programs and their arguments, GPU types, the
scheduler and the site. The same name of the same kind always has the same hash, so predictions stay the same. A user
and a group of one name have different hashes. Without the key, names cannot be found by trying candidates. Submission
times, job sizes and run times stay. A reader who has these of a person can still identify that person.
"""

import gzip
import secrets
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from models.records import AnyEvent
from models.site.pending_reasons import is_known, keyword_of
from streams.errors import UserError, file_error
from streams.sources.logs.fields import by_name

KEY_BYTES = 32

STATES = frozenset(
    by_name(
        "completed failed cancelled timeout preempted node_fail out_of_memory boot_fail deadline unknown requeued"
        " revoked"
    )
)
"""Final job states that are kept: they identify no person."""

KINDS = {
    "array": "job",
    "users": "user",
    "groups": "group",
    "accounts": "account",
    "partition": "queue",
    "partitions": "queue",
    "pools": "pool",
    "reservations": "reservation",
    "gpu_types": "gpu",
    "gpus": "gpu",
}
"""Kind of the names in a field, if it differs from the field's name."""

KEPT = frozenset(("type", "per"))
TIMES = frozenset(("time", "eligible", "expected", "start", "end"))


class Anonymiser:
    """Replace the names in events and shift all times `earlier_s` seconds into the past.

    A holder of the key can recover names by trying candidates. The default key is random and is not stored.
    """

    def __init__(self, key: bytes | None = None, earlier_s: float = 0.0) -> None:
        self._key = blake2b(key).digest() if key else secrets.token_bytes(KEY_BYTES)
        self._earlier_s = earlier_s

    def event(self, event: AnyEvent) -> dict[str, Any]:
        """Return the anonymised event as JSON-compatible fields."""
        return self._struct(msgspec.to_builtins(event), "")

    def name(self, kind: str, name: str) -> str:
        """Return the pseudonym of a name: the first letter of its kind and 16 hexadecimal digits."""
        digest = blake2b(f"{kind}\n{name}".encode(), digest_size=8, key=self._key).hexdigest()
        return f"{kind[0]}{digest}"

    def _struct(self, fields: dict[str, Any], kind: str) -> dict[str, Any]:
        """Anonymise a record whose field `name`, if present, is of this kind."""
        if kind == "limits":
            kind = fields["per"]
        return {field: self._value(kind if field == "name" else field, value) for field, value in fields.items()}

    def _value(self, field: str, value: Any) -> Any:
        kind = KINDS.get(field, field)
        if isinstance(value, str):
            if field in KEPT or not value or (field == "state" and value in STATES):
                return value
            if field == "pending_reason" and is_known(value):
                return keyword_of(value)
            return self.name(kind, value)
        if isinstance(value, list):
            return [self._struct(one, kind) if isinstance(one, dict) else self._value(field, one) for one in value]
        if isinstance(value, dict):  # how many of each
            return {self.name(kind, name): count for name, count in value.items()}
        return value - self._earlier_s if field in TIMES and value is not None else value


def write_anonymous(path: Path, events: Iterable[AnyEvent], anonymiser: Anonymiser) -> int:
    """Write anonymised events as JSON lines, with gzip if the path ends in `.gz`.

    Returns:
        The number of events.

    Raises:
        UserError: the file cannot be written, or a time would be before 1970.
    """
    encode, count = msgspec.json.Encoder().encode, 0
    try:
        with path.open("wb") as plain:
            zipped = path.suffix == ".gz"
            file = cast(IO[bytes], gzip.GzipFile("", "wb", fileobj=plain, mtime=0)) if zipped else plain
            for event in events:
                hidden = anonymiser.event(event)
                if hidden["time"] < 0:
                    raise UserError(f"{path}: times would be before 1970; use a smaller --shift-time")
                file.write(encode(hidden) + b"\n")
                count += 1
            if zipped:
                file.close()
    except OSError as error:
        raise file_error(path, error, "written") from None
    return count


def key_of(path: Path | None) -> bytes | None:
    """Read the key from a file; None without a file.

    Raises:
        UserError: the file cannot be read, or holds less than 16 bytes.
    """
    if path is None:
        return None
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise file_error(path, error) from None
    if len(key) < 16:
        raise UserError(f"{path}: a key must have at least 16 bytes; create one with `openssl rand -hex 32`")
    return key
