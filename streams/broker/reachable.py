"""Whether a Kafka broker answers now: the one check of the worker and of the client."""

import asyncio
import ssl

from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError


async def broker_answers(bootstrap: str, tls: ssl.SSLContext | None, seconds: float) -> bool:
    """Whether at least one broker answers within this time. No connection stays open.

    Parameters:
        bootstrap: addresses, host:port, several with commas.
        tls: None where there is no TLS.
    """
    answers = await asyncio.gather(*(_answers(address.strip(), tls, seconds) for address in bootstrap.split(",")))
    return any(answers)


async def _answers(address: str, tls: ssl.SSLContext | None, seconds: float) -> bool:
    """Whether the broker at this address answers.

    When aiokafka 0.14 opens a connection, it asks for the broker's API versions, which needs no login. An accepted
    connection alone would say little: the machine of a broker that hangs still accepts it. aiokafka's public clients
    would log in, read the cluster's metadata and log an error, each time that they are asked.
    """
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(seconds):
            connection = await create_conn(
                host.strip("[]"), int(port), ssl_context=tls, security_protocol="SSL" if tls else "PLAINTEXT"
            )
    except (OSError, KafkaError):  # TimeoutError is an OSError
        return False
    connection.close()
    return True
