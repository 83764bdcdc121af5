import logging

import pytest
from kafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
    UnsupportedSaslMechanismError,
)

from streams.broker.admin import kafka_errors
from streams.errors import Unreachable, UserError
from streams.settings import KafkaSettings

NAMED = KafkaSettings(bootstrap="b:1", security="sasl_tls", username="ada", password="hunter2")
UNTRUSTED = KafkaConnectionError(
    "Handshake failed: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1)"
)
REFUSED = r"user 'ada' is refused; is it this username, this password, SCRAM-SHA-512 and sasl_tls\?$"
GIVEN_UP = KafkaTimeoutError("Unable to bootstrap")


def test_kafka_error_without_bootstrap_suggests_up() -> None:
    with pytest.raises(Unreachable, match="start one with `queuecast up`"), kafka_errors(KafkaSettings()):
        raise GIVEN_UP


@pytest.mark.parametrize(
    ("logged", "raised", "message"),
    [
        (None, GIVEN_UP, "no broker answers at b:1; is it running"),
        (KafkaConnectionError("111 ECONNREFUSED"), GIVEN_UP, "no broker answers at b:1"),
        (
            SaslAuthenticationFailedError("invalid"),
            GIVEN_UP,
            REFUSED,
        ),
        (None, SaslAuthenticationFailedError("invalid"), REFUSED),
        (
            KafkaConnectionError("socket disconnected"),
            GIVEN_UP,
            REFUSED,
        ),
        (UnsupportedSaslMechanismError(), GIVEN_UP, "SCRAM-SHA-512 is not supported there; set kafka.mechanism"),
        (UNTRUSTED, GIVEN_UP, "its certificate is not trusted: self-signed certificate; is ca_file the authority"),
        (None, TopicAuthorizationFailedError("x.events"), "user 'ada' may not do this: .*x.events; .*Permissions"),
        (UNTRUSTED, KafkaError("odd"), "not trusted"),
        (None, KafkaError("odd"), "kafka at b:1: .*odd"),
        (None, UnknownBrokerIdError(1), "broker 1 is not registered with all brokers yet; retry later"),
    ],
)
def test_kafka_error_reports_reason_without_password(
    logged: KafkaError | None, raised: KafkaError, message: str
) -> None:
    with pytest.raises(UserError, match=message) as error_info, kafka_errors(NAMED):
        if logged:
            logging.getLogger("kafka.net.manager").warning("Bootstrap connection to %s failed: %s", "b", logged)
        raise raised
    assert "hunter2" not in str(error_info.value)


def test_kafka_errors_removes_its_log_handler() -> None:
    log = logging.getLogger("kafka")
    before = list(log.handlers)
    with kafka_errors(NAMED):
        assert len(log.handlers) == len(before) + 1
    assert log.handlers == before


@pytest.mark.parametrize(
    ("raised", "passes"), [(UnknownBrokerIdError(1), True), (TopicAuthorizationFailedError(), False)]
)
def test_transient_kafka_error_raises_unreachable(raised: KafkaError, passes: bool) -> None:
    """After a start or a rolling upgrade, brokers need time to find each other."""
    with pytest.raises(UserError) as error_info, kafka_errors(NAMED):
        raise raised
    assert isinstance(error_info.value, Unreachable) is passes
