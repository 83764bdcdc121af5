"""A minimal Faust worker that writes a table and sends a record per event; the benchmark runs it as a process.

python bare_loop.py BOOTSTRAP PREFIX PARTITIONS DIRECTORY
"""

import sys
from contextlib import suppress
from typing import Any

import faust
from mode import loop


def bare_loop(bootstrap: str, prefix: str, partitions: int, directory: str) -> Any:
    """Return the app for the topics whose names begin with `prefix`."""
    app = faust.App(
        f"{prefix}bare",
        broker=f"kafka://{bootstrap}",
        store="memory://",
        datadir=directory,
        topic_partitions=partitions,
        topic_disable_leader=True,
        web_enabled=False,
        consumer_auto_offset_reset="earliest",
        stream_wait_empty=False,
        producer_linger=0.005,
        producer_max_batch_size=65_536,
    )
    raw = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
    outputs = app.topic(f"{prefix}bare-outputs", **raw)
    table = app.Table("last", key_type=bytes, value_type=bytes, partitions=partitions)

    @app.agent(app.topic(f"{prefix}events", **raw), concurrency=1)
    async def forward(stream: Any) -> None:
        """Store the last event of each site, and forward every event."""
        async for event in stream.events():
            table[event.key] = event.value
            await outputs.send(key=event.key, value=event.value)

    return app


if __name__ == "__main__":
    with suppress(ImportError):
        loop.use("uvloop")  # as a worker does
    app = bare_loop(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
    faust.Worker(app, loglevel="error", redirect_stdouts=False, quiet=True).execute_from_commandline()
