"""Makes what followed from events durable, in the order in which no crash does harm."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor

from streams.worker.checkpoint.histories import Histories
from streams.worker.checkpoint.pending import Acknowledgements, PendingBatch
from streams.worker.checkpoint.stored import SiteHandle
from streams.worker.checkpoint.table import OwnedTable, Token
from streams.worker.checkpoint.writing import SiteCut, compressed


class Checkpoint:
    """One checkpoint of a partition: its sites as they are when this is made, which is between two events.

    The invariant has two halves:

    - *An event's offset is committed only after everything that followed from it is durable:* its outputs in Kafka,
      its entries in Redis, and a state that includes it in the table.
    - *A state that is read back is exactly the state at the offset that is stored with it.*

    It holds because `run` does these steps in this order, and a partition has one checkpoint at a time:

    1. Wait until the outputs of the pending events are delivered.
    2. Write the new entries of the histories to Redis. After a crash here Redis is ahead of the state. That does no
       harm: entries are numbered by the fold and the state says how many it counts, so a reader ignores the rest. The
       same events, seen again, write the same entries to the same places.
    3. Write state and offset to the table, as one value, so that neither can be there without the other. Of the live
       jobs it holds those that have changed lately and names the segments that hold the others (`JobLog`). New ones are
       durable before it is written. After a crash in between nothing names them: they are deleted later.
    4. Delete from Redis, and of the segments, what the new state no longer needs. Not earlier: until step 3 a reader
       may need it.
    5. Acknowledge the events, so that Faust may commit their offsets: in their order, with none left out before them.

    Each write asks the partition's token. So when the partition is revoked, at any step, the rest is left out: the next
    owner continues from the state that is there. It has claimed the sites in Redis, so nothing more can be written
    there either (`claims`).

    After a crash at any step Kafka delivers again what was not committed. Events that the stored state already includes
    are skipped by their offset. The others go through the engine again and give the same bytes again.

    It costs what has changed since the one before, whatever is live. Compressing is done in another thread.
    """

    def __init__(self, batch: PendingBatch, sites: Mapping[str, SiteHandle], token: Token) -> None:
        self.batch = batch
        self._token = token
        self._states = [SiteCut.of(sites[site]) for site in sorted(batch.sites) if site in sites]

    async def run(
        self, table: OwnedTable, histories: Histories, compressing: Executor, acknowledgements: Acknowledgements
    ) -> None:
        """Do the steps.

        Raises:
            Revoked: the partition is another worker's.
        """
        batch, states, token = self.batch, self._states, self._token
        packed = asyncio.get_running_loop().run_in_executor(compressing, compressed, states, token.partition)
        await asyncio.gather(*batch.sends)
        for one in states:
            await histories.write(one.changes)
        heads, segments = await packed
        await table.put({key: None for site, gone in batch.gone.items() for key in (site.encode(), *gone.keys)})
        await table.put(segments)
        await table.put(heads)
        for one in states:
            await histories.trim(one.changes)
        await table.put({key: None for one in states for key in one.jobs.freed})
        for site, gone in batch.gone.items():
            await histories.forget(site, gone.generation)
        token.check()
        acknowledgements.durable(batch.events)
