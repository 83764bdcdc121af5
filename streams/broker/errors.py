"""What goes wrong with Kafka, in one line that says what to do.

kafka-python goes on trying where it is refused, until its time is up, and tells the reason to its log alone: so that is
where the reason is taken from.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kafka.errors import (
    AuthorizationError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    UnknownBrokerIdError,
    UnsupportedSaslMechanismError,
)

from streams.errors import UNTRUSTED, Unreachable, UserError
from streams.settings import KafkaSettings

PERMISSIONS = "what each needs is in deploy/README.md, Locked doors"


class _Heard(logging.Handler):
    """Keeps the errors that are told to a log, each kind and text once, however often it is tried."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.errors: dict[str, KafkaError] = {}

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args if isinstance(record.args, tuple) else ()
        self.errors |= {repr(error): error for error in arguments if isinstance(error, KafkaError)}


@contextmanager
def kafka_errors(settings: KafkaSettings) -> Iterator[None]:
    """What Kafka refuses in the block becomes a `UserError`; that it does not answer, an `Unreachable`."""
    heard, log = _Heard(), logging.getLogger("kafka")
    log.addHandler(heard)
    try:
        yield
    except KafkaError as error:
        said = explain(error, heard.errors.values(), settings)
        passing = isinstance(error, UnknownBrokerIdError) or (
            error.retriable and said in (_away(settings), f"{_place(settings)}: {error}")
        )
        raise (Unreachable if passing else UserError)(said) from None
    finally:
        log.removeHandler(heard)


def explain(error: KafkaError, heard: Iterable[KafkaError], settings: KafkaSettings) -> str:
    """One line about an error.

    Parameters:
        heard: errors that the client tried to get over before it gave up.
    """
    place = _place(settings)
    errors = [error, *heard]
    for known in errors:
        if isinstance(known, SaslAuthenticationFailedError):
            return _refused(settings)
        if isinstance(known, UnsupportedSaslMechanismError):
            return f"{place}: {settings.mechanism} is not spoken there; set kafka.mechanism to what is"
        if found := UNTRUSTED.search(str(known)):
            return f"{place}: its certificate is not trusted: {found[1]}; is ca_file the authority that signed it?"
    if isinstance(error, AuthorizationError):
        return f"{place}: {who(settings)} may not do this: {error}; {PERMISSIONS}"
    if isinstance(error, UnknownBrokerIdError):
        return f"{place}: brokers come and go: broker {error.args[0]} is not known to all of them yet; try again"
    if not isinstance(error, KafkaTimeoutError):
        return f"{place}: {error}"
    if any(sign in str(known) for known in errors for sign in ("Handshake failed", "frame length", "disconnected")):
        return _refused(settings)
    return _away(settings)


def _place(settings: KafkaSettings) -> str:
    return f"kafka at {settings.bootstrap}"


def _refused(settings: KafkaSettings) -> str:
    """A broker that refuses a user says so and hangs up; which of the two the client sees first is a matter of chance.

    So both have the same message, which names all that may be wrong.
    """
    login = f"this username, this password, {settings.mechanism} and " if settings.sasl else ""
    return f"{_place(settings)}: {who(settings)} is refused; is it {login}{settings.security}?"


def _away(settings: KafkaSettings) -> str:
    unset = settings.bootstrap == KafkaSettings().bootstrap
    ask = "is it running, and is it this address?"
    todo = "`queuecast up` runs one here, and kafka.bootstrap says where another is" if unset else ask
    return f"kafka: no broker answers at {settings.bootstrap}; {todo}"


def who(settings: KafkaSettings) -> str:
    """As whom we come to the broker."""
    if settings.sasl:
        return f"user {settings.username!r}"
    return "the owner of cert_file" if settings.cert_file else "a client without a name"
