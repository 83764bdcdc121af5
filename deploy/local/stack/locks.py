"""Access control of the local servers on a shared machine: passwords, and files that only their owner can read.

Loopback is open to every user of a machine. Without a password any user could have Redis write files as the owner of
the server (`CONFIG SET dir`), and publish events of any site through Kafka.
"""

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from streams.errors import UserError

USER = "queuecast"  # the only user of the servers

REDIS_COMMANDS = "+@read +@write +@transaction +@connection -@dangerous +info +time +config|get"
"""Redis commands of that user: none that changes the server or accesses other keys."""


def make_private(directory: Path) -> None:
    """Create the directory if it is missing, and restrict it to its owner.

    Raises:
        UserError: the directory belongs to another user.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if directory.stat().st_uid != os.geteuid():
        raise UserError(f"{directory} belongs to another user; choose another directory, or change its owner")
    directory.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, atomically: readers see the old file or the complete new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # which has mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def password_in(directory: Path, name: str) -> str:
    """Return the password in this directory; generate one if there is none.

    The password is kept, so that client programs continue after a restart of the servers. It is generated again if its
    file was deleted, belongs to another user, or is accessible to other users.
    """
    path = directory / f"{name}.password"
    with suppress(OSError):
        found = path.lstat()
        ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
        if ours and (known := path.read_text(encoding="utf-8").strip()):
            return known
    made = secrets.token_urlsafe(32)
    write_private(path, f"{made}\n")
    return made


def redis_users(password: str, keys: str) -> str:
    """Return a Redis ACL file with one user, restricted to keys of this pattern, and no access without a password."""
    known = sha256(password.encode()).hexdigest()
    return f"user default off\nuser {USER} on #{known} ~{keys} {REDIS_COMMANDS}\n"


def kafka_properties(password: str) -> dict[str, str]:
    """Return broker properties that require the password on all listeners: for clients, brokers and the controller."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="{USER}" password="{password}" user_{USER}="{password}";'
    listeners = ("sasl_plaintext", "controller")
    return {
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        **{f"listener.name.{listener}.plain.sasl.jaas.config": jaas for listener in listeners},
    }
