"""What keeps other users of this machine out of the local servers: passwords, and files that nobody else may read.

Loopback is open to every user of a machine. Without a password any of them could have Redis write files in the name of
whoever runs it (`CONFIG SET dir`), and speak for any site through Kafka.
"""

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from streams.errors import UserError

USER = "queuecast"  # the one user that the servers know

REDIS_COMMANDS = "+@read +@write +@transaction +@connection -@dangerous +info +time +config|get"
"""What that user may do in Redis: nothing that changes the server or reaches beyond its keys."""


def make_private(directory: Path) -> None:
    """Make the directory where it is missing, and its owner's alone. Raises UserError: it is another user's."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if directory.stat().st_uid != os.geteuid():
        raise UserError(f"{directory} belongs to another user; choose another directory, or change its owner")
    directory.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, in one step: readers see the former file or the whole new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # which has mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def password_in(directory: Path, name: str) -> str:
    """The password in this directory, the one of last time or, where there is none, a new one.

    It lasts, so that programs that use the servers go on when these are started again. Who deletes its file has a new
    one at the next start; so has one whose file others could read or have written.
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
    """An ACL file for Redis: one user, who may touch keys of this pattern only, and nobody without a password."""
    known = sha256(password.encode()).hexdigest()
    return f"user default off\nuser {USER} on #{known} ~{keys} {REDIS_COMMANDS}\n"


def kafka_properties(password: str) -> dict[str, str]:
    """A broker's properties that ask for the password on its every listener: clients', its own, the controller's."""
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
