"""Sites that stay in memory over a rebalance, in case their partition stays with this worker.

Faust revokes all partitions of a worker in each rebalance, and then assigns the new ones. A worker keeps the sites of a
revoked partition until the assignment. It continues with a kept site only if no other process can have written its data
in between:

- The last checkpoint of the partition included everything that was applied to its sites.
- The stored state in the table, read again from the changelog after this worker has claimed the site, has the same
  bytes as after that checkpoint.
- The claim in Redis, read in the transaction that renews it, was still that of this worker, with all of its writes.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from streams.worker.checkpoint.claims import Lease
from streams.worker.checkpoint.owned_table import OwnedTable
from streams.worker.checkpoint.store import SiteStore
from streams.worker.checkpoint.stored_site import IN_BOTH, SiteHandle, decode_stored


class KeptSite(NamedTuple):
    """A site in memory, its stored state, and its claim in Redis."""

    handle: SiteHandle
    head: bytes
    lease: Lease


_COMPARED = [name for name in IN_BOTH if name != "claim"]  # a claim is stored with the next change only

KeptSites = Mapping[str, KeptSite]


def kept_sites(
    handles: Mapping[str, SiteHandle], table: OwnedTable, store: SiteStore, preparing: Collection[str]
) -> dict[str, KeptSite]:
    """Return the sites whose stored states are those in memory, after the last checkpoint of their partition.

    Args:
        preparing: Sites whose engines have begun, but not applied, an event.
    """
    found = {}
    for site, handle in handles.items():
        head, lease = table.get(site.encode()), store.claims.lease(site)
        if head is not None and lease is not None and site not in preparing and _is_stored(handle, head):
            found[site] = KeptSite(handle, head, lease)
    return found


def _is_stored(handle: SiteHandle, head: bytes) -> bool:
    stored = decode_stored(head)
    return all(getattr(handle, name) == getattr(stored, name) for name in _COMPARED)
