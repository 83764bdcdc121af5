"""A log that a site may share: names replaced by keyed hashes, times moved if asked, sizes as they are.

What is hidden are names: of users, groups, accounts, jobs, queues, pools, programs and their arguments, GPU types, the
scheduler and the site. The same name has the same hash wherever it means the same, so that what is predicted stays the
same; a user and a group of one name have different ones. Without the key nobody can try names out. When jobs came, how
large they were and how long they ran stays: who knows that of somebody can still recognise them.
"""

import gzip
import secrets
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from models.records import AnyEvent
from models.site.reasons import is_known, word_of
from streams.errors import UserError, of_file
from streams.sources.logs.fields import by_name

KEY_BYTES = 32

STATES = frozenset(
    by_name(
        "completed failed cancelled timeout preempted node_fail out_of_memory boot_fail deadline unknown requeued"
        " revoked"
    )
)
"""Words for how a job ended that are kept: they name nobody."""

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
"""What the names in a field are, where the field is not called so itself."""

KEPT = frozenset(("type", "per"))
TIMES = frozenset(("time", "eligible", "expected", "start", "end"))


class Anonymiser:
    """Replaces the names in events and makes all times `earlier_s` seconds earlier. Whoever has the key can find out
    names by trying; by default it is random and kept nowhere.
    """

    def __init__(self, key: bytes | None = None, earlier_s: float = 0.0) -> None:
        self._key = blake2b(key).digest() if key else secrets.token_bytes(KEY_BYTES)
        self._earlier_s = earlier_s

    def event(self, event: AnyEvent) -> dict[str, Any]:
        """The event with other names, as JSON has it."""
        return self._struct(msgspec.to_builtins(event), "")

    def name(self, kind: str, name: str) -> str:
        """What stands for a name of this kind: its first letter and 16 digits."""
        digest = blake2b(f"{kind}\n{name}".encode(), digest_size=8, key=self._key).hexdigest()
        return f"{kind[0]}{digest}"

    def _struct(self, fields: dict[str, Any], kind: str) -> dict[str, Any]:
        """A record; its `name`, where it has one, is of this kind."""
        if kind == "limits":
            kind = fields["per"]
        return {field: self._value(kind if field == "name" else field, value) for field, value in fields.items()}

    def _value(self, field: str, value: Any) -> Any:
        kind = KINDS.get(field, field)
        if isinstance(value, str):
            if field in KEPT or not value or (field == "state" and value in STATES):
                return value
            if field == "pending_reason" and is_known(value):
                return word_of(value)
            return self.name(kind, value)
        if isinstance(value, list):
            return [self._struct(one, kind) if isinstance(one, dict) else self._value(field, one) for one in value]
        if isinstance(value, dict):  # how many of each
            return {self.name(kind, name): count for name, count in value.items()}
        return value - self._earlier_s if field in TIMES and value is not None else value


def write_anonymous(path: Path, events: Iterable[AnyEvent], anonymiser: Anonymiser) -> int:
    """Write events as lines of JSON, zipped where the file is called so; gives how many.

    Raises UserError: the file cannot be written, or a time would be before 1970.
    """
    encode, count = msgspec.json.Encoder().encode, 0
    try:
        with path.open("wb") as plain:
            zipped = path.suffix == ".gz"
            file = cast(IO[bytes], gzip.GzipFile("", "wb", fileobj=plain, mtime=0)) if zipped else plain
            for event in events:
                hidden = anonymiser.event(event)
                if hidden["time"] < 0:
                    raise UserError(f"{path}: times would be before 1970; move them by less")
                file.write(encode(hidden) + b"\n")
                count += 1
            if zipped:
                file.close()
    except OSError as error:
        raise of_file(path, error, "written") from None
    return count


def key_of(path: Path | None) -> bytes | None:
    """The key in a file; None without one. Raises UserError: the file cannot be read, or holds less than 16 bytes."""
    if path is None:
        return None
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise of_file(path, error) from None
    if len(key) < 16:
        raise UserError(f"{path}: a key has 16 bytes at least, such as of `openssl rand -hex 32`")
    return key
