"""A node loses its disk, comes back under its old name, and answers "no such record" for what it once held.

There: a BookKeeper bookie that was wiped and returned with the same identity let recovery conclude that entries had never been stored, and
close the ledger before acknowledged entries. https://github.com/apache/bookkeeper/issues/2612

Here: a shard without its data takes a new generation when it registers. Epochs list the generations that stored them, and a shard of
another generation answers REBUILDING: it is no part of any f-majority about those epochs. Recovery waits for the shard that still has
the copy.
"""

from __future__ import annotations

import pytest

from logdevice_py.core.units import SECOND
from tests.history.stage import Stage
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Violation


def play(tries: int = 40) -> None:
    # with about every second seed a generation that is not checked shows
    stage = Stage(nodes=3, replicate="node:2", seed=3)
    client = stage.client()
    sequencer = None
    for _ in range(tries):
        last = stage.acknowledged(client)
        sequencer, holders = stage.sequencer, stage.copysets[last.payload]
        if sequencer.id in holders:
            break
    assert sequencer is not None
    [holder] = [node for node in stage.others(sequencer) if node.id in holders]
    [third] = stage.others(sequencer, holder)
    # one copy is away with the sequencer, the other is lost; the third node never had one
    sequencer.crash(machine=True)
    holder.crash(machine=True)
    holder.wipe()
    holder.start()
    stage.run(SECOND)
    stage.append(stage.client())
    stage.run(20 * SECOND)
    assert third.root is not None
    sequencer.start()
    stage.run(10 * SECOND)
    stage.finish()


def test_what_a_wiped_node_does_not_have_is_not_taken_for_never_stored() -> None:
    play()


@pytest.mark.parametrize("fault", ["wiped_shard_keeps_its_identity", "generation_not_checked", "f_majority_one_short"])
def test_the_schedule_notices_a_vote_of_a_node_without_memory(fault: str) -> None:
    with FAULTS[fault].planted(), pytest.raises(Violation):
        play()
