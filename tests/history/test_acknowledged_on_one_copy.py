"""The leader acknowledges what only it has, and dies.

There: in Kafka 0.8 the set of in-sync replicas shrank to the leader alone when the others were slow; what it acknowledged then was lost with
it. https://aphyr.com/posts/293-jepsen-kafka

Here: an entry is acknowledged when every shard of a copyset that satisfies the replication property has it, whatever anybody thinks of
who is alive. A cut-off sequencer acknowledges nothing.
"""

from __future__ import annotations

import pytest

from logdevice_py.core.units import MILLISECOND, SECOND
from tests.history.stage import Stage
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Violation


def play() -> None:
    stage = Stage(nodes=3, replicate="node:2")
    client = stage.client()
    stage.acknowledged(client)
    sequencer = stage.sequencer
    for node in stage.others(sequencer):
        stage.block(sequencer, node)
        stage.block(node, sequencer)
    for _ in range(12):
        # each becomes an entry of its own, with a copyset of its own
        stage.append(client)
        stage.run(MILLISECOND)
    stage.run(SECOND // 2)
    # the only disk that can have the records is lost
    sequencer.crash(machine=True)
    sequencer.wipe()
    stage.run(10 * SECOND)
    stage.finish()


def test_a_sequencer_that_is_cut_off_acknowledges_nothing() -> None:
    play()


@pytest.mark.parametrize("fault", ["acknowledged_one_store_early", "copyset_one_short"])
def test_the_schedule_notices_an_acknowledgement_of_one_copy(fault: str) -> None:
    with FAULTS[fault].planted(), pytest.raises(Violation):
        play()
