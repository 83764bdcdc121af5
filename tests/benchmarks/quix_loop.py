"""A stateful map with a changelog in quix-streams: store each site's last event, and forward every event.

python quix_loop.py BOOTSTRAP PREFIX PARTITIONS DIRECTORY
"""

import logging
import sys
from typing import Any


def quix_loop(bootstrap: str, prefix: str, partitions: int, directory: str) -> Any:
    """Return the application for the topics whose names begin with `prefix`."""
    from quixstreams import Application  # optional, and pytest imports this module
    from quixstreams.models import TopicConfig

    app = Application(
        broker_address=bootstrap,
        consumer_group=f"{prefix}quix",
        auto_offset_reset="earliest",
        state_dir=directory,
        producer_extra_config={"linger.ms": 5},
    )
    config = TopicConfig(num_partitions=partitions, replication_factor=1)
    raw: dict[str, Any] = {"key_serializer": "bytes", "value_serializer": "bytes", "config": config}
    outputs = app.topic(f"{prefix}bare-outputs", **raw)
    events = app.topic(f"{prefix}events", key_deserializer="bytes", value_deserializer="bytes", config=config)

    def keep(value: bytes, state: Any) -> bytes:
        state.set("last", value.decode())
        return value

    app.dataframe(events).apply(keep, stateful=True).to_topic(outputs)
    return app


if __name__ == "__main__":
    logging.disable(logging.INFO)
    quix_loop(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]).run()
