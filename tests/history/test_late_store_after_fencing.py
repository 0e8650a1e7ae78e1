"""A writer that stalled goes on after its epoch was fenced and recovered.

There: BookKeeper's recovery read the end of a ledger from bookies of which not all were fenced. A bookie that had missed the fence took an
entry in between; the old writer reached its quorum and acknowledged an entry beyond the end at which the ledger was closed. The hole was
found with TLA+: https://github.com/apache/bookkeeper/issues/2614

Here: recovery asks what shards hold only after they have answered SEAL, and a SEALED shard refuses STOREs of the epoch. Every copyset meets
the f-majority that was sealed, so no entry of the old epoch is completed from then on, wherever its STOREs were meanwhile.
"""

from __future__ import annotations

import pytest

from logdevice_py.core.units import MILLISECOND, SECOND
from tests.history.stage import Stage
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import AttemptFate, Violation


def play() -> None:
    stage = Stage(nodes=3, replicate="node:2")
    old_client, new_client = stage.client(), stage.client()
    for _ in range(3):
        stage.acknowledged(old_client)
    old = stage.sequencer
    for node in stage.others(old):
        stage.block(old, node)
    late = stage.append(old_client)
    stage.run(5 * MILLISECOND)
    assert late.fate is AttemptFate.PENDING
    # it keeps its memory, and what it sent is still on its way
    old.pause()
    stage.run(2 * SECOND)
    stage.acknowledged(new_client)
    assert stage.sequencer is not old
    stage.run(2 * SECOND)
    for node in stage.others(old):
        stage.unblock(old, node)
    stage.run(MILLISECOND)
    old.resume()
    stage.run(20 * SECOND)
    stage.finish()


def test_nothing_is_acknowledged_in_an_epoch_that_was_recovered() -> None:
    play()


@pytest.mark.parametrize("fault", ["seal_check_skipped"])
def test_the_schedule_notices_shards_that_do_not_keep_their_seals(fault: str) -> None:
    with FAULTS[fault].planted(), pytest.raises(Violation):
        play()
