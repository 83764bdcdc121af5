"""The `queuecast up` that runs on this machine: how it is found, and how programs enter it.

`up` notes where its settings are in a file of its user's, and holds a lock on it for as long as it runs. Commands that
are given no settings look there. So do `settings_here` and `kafka_options`, for programs:

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

LOCK_TRIES, LOCK_PAUSE_S = 10, 0.02  # how often the lock is tried: who looks for `up` holds it for a moment


def note_path(environment: Mapping[str, str] | None = None) -> Path:
    """Where `up` notes its settings: by host, since a home may be on several machines."""
    environment = os.environ if environment is None else environment
    state = environment.get("XDG_STATE_HOME")
    home = Path(state) if state else Path.home() / ".local" / "state"
    return home / "queuecast" / f"up-{socket.gethostname()}"


@contextmanager
def announced(config: Path) -> Iterator[bool]:
    """Let this user's commands find these settings meanwhile.

    Gives False, and changes nothing, where another `up` is found already, or where no note can be left.
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
    """Let this user's commands know meanwhile that an `up` is starting here."""
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
    """For how many seconds an `up` of this user has been starting here; None where none is."""
    with suppress(OSError, ValueError), _starting_path().open(encoding="utf-8") as note:
        if not _lock(note, fcntl.LOCK_SH):
            return max(time.time() - float(note.read()), 0.0)
    return None


def _own_note(path: Path) -> IO[str] | None:
    """The file, empty and locked; None where another process has it, or it cannot be written."""
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
    """The settings of the `up` that this user runs on this machine; None where none runs."""
    with suppress(OSError), note_path().open(encoding="utf-8") as note:
        ours = os.fstat(note.fileno()).st_uid == os.geteuid()
        if ours and not _lock(note, fcntl.LOCK_SH) and (config := Path(note.read())).is_file():
            return config
    return None


def config_here(file: Path | None = None) -> Path | None:
    """The settings' file: the one given, named by QUEUECAST_CONFIG or here, else that of the `up` that runs.

    Where a variable says where Kafka or Redis is, none is looked for: passwords are not for other servers.
    """
    if (named := settings_file(file)) is not None:
        return named
    told = any(name.startswith((f"{PREFIX}_KAFKA_", f"{PREFIX}_REDIS_")) for name in os.environ)
    return None if told else running_config()


def settings_here(file: Path | None = None) -> Settings:
    """The settings in force, of the `up` that runs on this machine where none are named.

    Raises:
        UserError: the settings cannot be read, or are wrong.
    """
    return load_settings(config_here(file))


def kafka_options() -> dict[str, Any]:
    """What kafka-python's clients need to enter Kafka: its address, and the password where it asks for one."""
    return settings_here().kafka.client_options()


def service_url(serve: ServeSettings) -> str:
    """The HTTP service's address, seen from this machine."""
    host = "127.0.0.1" if serve.web_host in ("0.0.0.0", "::", "") else serve.web_host
    return f"http://{f'[{host}]' if ':' in host else host}:{serve.web_port}"


def serves(serve: ServeSettings, url: str) -> bool:
    """Whether this HTTP service, which runs on this machine, is the one at this address."""
    own = urlsplit(service_url(serve))
    try:
        given = urlsplit(url)
        same_port = given.port == own.port
    except ValueError:  # no address at all
        return False
    return same_port and given.hostname in (own.hostname, "localhost")


def curl_config(settings: Settings) -> str:
    """What `curl --config` reads: the HTTP service's token, which on a command line other users would see."""
    token = settings.serve.token
    if token is None:
        return "# the HTTP service asks for no token\n"
    return f"header = {json.dumps(f'Authorization: Bearer {token}')}\n"


def kafka_properties(settings: Settings, java: bool) -> str:
    """What Kafka's own tools read (`--command-config`), or what clients on librdkafka do (`kcat -F`).

    Raises:
        UserError: TLS for Java, which reads certificates from stores of its own.
    """
    kafka = settings.kafka
    found = {"bootstrap.servers": kafka.bootstrap, "security.protocol": kafka.protocol}
    if java and kafka.protocol.endswith("SSL"):
        raise UserError("kafka: where there is TLS, Java's clients need stores of keys, which are not in the settings")
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
