"""Events sent again for a site that moves to another partition."""

from types import SimpleNamespace

import msgspec

from models.records import Submit, bundled
from streams.operate import repartition
from streams.worker.checkpoint.stored_site import StoredState
from streams.worker.intake.messages import read_site_message


def test_repartition_partly_applied_bundle_resends_rest() -> None:
    old = [Submit(site="alder", time=float(n), job=str(n), historical=True, old=True) for n in range(5)]
    value = bundled("alder", map(msgspec.json.encode, old))
    message = SimpleNamespace(partition=3, offset=17, value=value, headers=[])
    for offset, begun, left in ((16, 0, old), (16, 2, old), (17, 2, old[2:]), (17, 0, None), (18, 1, None)):
        state = StoredState(2, 3, offset, b"", applied_parts=begun)
        is_to_move = repartition._is_to_move(message, state, home=1, count=4)
        assert is_to_move == (left is not None), (offset, begun)
        if is_to_move:
            parts = read_site_message(b"alder", repartition._unapplied(message, state)).parts
            assert [part.event for part in parts] == left
