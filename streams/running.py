"""Find the `queuecast up` that runs on this machine, and connect to it.

`up` stores the path of its settings in a file of its user and holds a lock on this file while it runs. Commands without
explicit settings read this file. Programs can use `settings_here` and `kafka_options`:

    consumer = KafkaConsumer("queuecast.predictions", **kafka_options())
"""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from streams.errors import UserError
from streams.settings import PREFIX, ServeSettings, Settings, load_settings, settings_file

LOCK_TRIES, LOCK_PAUSE_S = 10, 0.02  # attempts to lock, because commands that look for `up` hold the lock briefly


def note_path(environment: Mapping[str, str] | None = None) -> Path:
    """Return the file where `up` stores its settings path. It has the host name, as a home directory may be shared."""
    environment = os.environ if environment is None else environment
    state = environment.get("XDG_STATE_HOME")
    home = Path(state) if state else Path.home() / ".local" / "state"
    return home / "queuecast" / f"up-{socket.gethostname()}"


@contextmanager
def announced(config: Path) -> Iterator[bool]:
    """Make these settings available to this user's commands in the block.

    Yields False and changes nothing if another `up` is running or the file cannot be written.
    """
    path = note_path()
    note = _own_note(path)
    if note is None:
        yield False
        return
    with note:
        note.write(str(config.absolute()))
        note.flush()
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)


def _starting_path() -> Path:
    path = note_path()
    return path.with_name(f"{path.name}.starting")


@contextmanager
def starting() -> Iterator[None]:
    """Mark `up` as starting for this user's commands in the block."""
    path = _starting_path()
    note = _own_note(path)
    if note is None:
        yield
        return
    with note:
        note.write(str(time.time()))
        note.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def starting_since_s() -> float | None:
    """Return the seconds since an `up` of this user began to start here; None if none is starting."""
    with suppress(OSError, ValueError), _starting_path().open(encoding="utf-8") as note:
        if not _lock(note, fcntl.LOCK_SH):
            return max(time.time() - float(note.read()), 0.0)
    return None


def _own_note(path: Path) -> IO[str] | None:
    """Open the file and lock it; None if another process holds the lock or the file is not writable."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(LOCK_TRIES):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            note = os.fdopen(handle, "r+", encoding="utf-8")
            if _lock(note, fcntl.LOCK_EX) and path.exists() and path.stat().st_ino == os.fstat(handle).st_ino:
                note.truncate()
                return note
            note.close()
            time.sleep(LOCK_PAUSE_S)
    return None


def _lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def running_config() -> Path | None:
    """Return the settings file of this user's `up` on this machine; None if none is running."""
    with suppress(OSError), note_path().open(encoding="utf-8") as note:
        ours = os.fstat(note.fileno()).st_uid == os.geteuid()
        if ours and not _lock(note, fcntl.LOCK_SH) and (config := Path(note.read())).is_file():
            return config
    return None


def config_here(file: Path | None = None) -> Path | None:
    """Return the settings file: the given one, QUEUECAST_CONFIG or the local one, else that of the running `up`.

    The running `up` is ignored if an environment variable configures Kafka or Redis, so that no password is sent to
    another server.
    """
    if (named := settings_file(file)) is not None:
        return named
    from_environment = any(name.startswith((f"{PREFIX}_KAFKA_", f"{PREFIX}_REDIS_")) for name in os.environ)
    return None if from_environment else running_config()


def settings_here(file: Path | None = None) -> Settings:
    """Load the settings in force; without a settings file, those of the `up` that runs on this machine.

    Raises:
        UserError: The settings are unreadable or invalid.
    """
    return load_settings(config_here(file))


def kafka_options() -> dict[str, Any]:
    """Return connection options for kafka-python clients: the address, and the password if one is required."""
    return settings_here().kafka.client_options()


def service_url(serve: ServeSettings) -> str:
    """Return the URL of the HTTP service as seen from this machine."""
    host = "127.0.0.1" if serve.web_host in ("0.0.0.0", "::", "") else serve.web_host
    return f"http://{f'[{host}]' if ':' in host else host}:{serve.web_port}"


def serves(serve: ServeSettings, url: str) -> bool:
    """Return whether `url` is the address of this local HTTP service."""
    own = urlsplit(service_url(serve))
    try:
        given = urlsplit(url)
        same_port = given.port == own.port
    except ValueError:  # not a valid URL
        return False
    return same_port and given.hostname in (own.hostname, "localhost")


def curl_config(settings: Settings) -> str:
    """Return input for `curl --config` with the HTTP token. On a command line other users could read the token."""
    token = settings.serve.token
    if token is None:
        return "# the HTTP service requires no token\n"
    return f"header = {json.dumps(f'Authorization: Bearer {token}')}\n"


def kafka_properties(settings: Settings, java: bool) -> str:
    """Return properties for Kafka's own tools (`--command-config`) or for librdkafka clients (`kcat -F`).

    Raises:
        UserError: TLS for Java, which needs key stores that the settings do not contain.
    """
    kafka = settings.kafka
    found = {"bootstrap.servers": kafka.bootstrap, "security.protocol": kafka.protocol}
    if java and kafka.protocol.endswith("SSL"):
        raise UserError("kafka: with TLS, Java clients need key stores, which the settings do not contain")
    if kafka.sasl:
        found["sasl.mechanism"] = kafka.mechanism
        found |= _java_login(kafka.mechanism, kafka.username, kafka.password) if java else {}
        found |= {} if java else {"sasl.username": kafka.username or "", "sasl.password": kafka.password or ""}
    files = {"ssl.ca": kafka.ca_file, "ssl.certificate": kafka.cert_file, "ssl.key": kafka.key_file}
    found |= {f"{name}.location": file for name, file in files.items() if file and kafka.protocol.endswith("SSL")}
    return "".join(f"{name}={value}\n" for name, value in found.items())


def _java_login(mechanism: str, username: str | None, password: str | None) -> dict[str, str]:
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    login = f"org.apache.kafka.common.security.{kind}LoginModule required"
    return {"sasl.jaas.config": f"{login} username={json.dumps(username)} password={json.dumps(password)};"}
