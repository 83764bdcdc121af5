"""The least that a Faust worker can do with an event: write a table, send a record. Run as a process by the benchmark.

python bare_loop.py BOOTSTRAP PREFIX PARTITIONS DIRECTORY
"""

import sys
from typing import Any

import faust

BOOTSTRAP, PREFIX, PARTITIONS, DIRECTORY = sys.argv[1:]

app = faust.App(
    f"{PREFIX}bare",
    broker=f"kafka://{BOOTSTRAP}",
    store="memory://",
    datadir=DIRECTORY,
    topic_partitions=int(PARTITIONS),
    topic_disable_leader=True,
    web_enabled=False,
    consumer_auto_offset_reset="earliest",
    stream_wait_empty=False,
    producer_linger=0.005,
    producer_max_batch_size=65_536,
)
raw = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
events = app.topic(f"{PREFIX}events", **raw)
outputs = app.topic(f"{PREFIX}bare-outputs", **raw)
table = app.Table("last", key_type=bytes, value_type=bytes, partitions=int(PARTITIONS))


@app.agent(events, concurrency=1)
async def forward(stream: Any) -> None:
    """Keep the last event of each site, and send every event on."""
    async for event in stream.events():
        table[event.key] = event.value
        await outputs.send(key=event.key, value=event.value)


faust.Worker(app, loglevel="error", redirect_stdouts=False, quiet=True).execute_from_commandline()
