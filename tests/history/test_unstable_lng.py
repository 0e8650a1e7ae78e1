"""What counts as replicated is announced before it is.

There: recovery of a BookKeeper ledger trusted a last-add-confirmed that did not bound what was on its quorums, began at the wrong entry and
recorded an ensemble that did not hold it. https://github.com/apache/bookkeeper/issues/2615

Here: the LNG that entries carry covers only what is on full copysets without a gap. So an entry above it may be missing, and recovery looks at
every ESN from it on: it stores again what it finds and plugs the rest with holes, so that readers never meet an LSN that nobody accounts
for.
"""

from __future__ import annotations

import pytest

from logdevice_py.core.units import MILLISECOND, SECOND
from tests.history.stage import Stage
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Attempt, AttemptFate, Observation, Violation

_PENDING = 16
"""So many that surely of one only the sequencer's own shard has a copy."""


def are_acknowledged_behind_pending(appends: list[Attempt]) -> bool:
    """Some have a copy on the silent shard, some not: many are not acknowledged, and one after them is."""
    fates = [attempt.fate for attempt in appends]
    last = max((at for at, fate in enumerate(fates) if fate is AttemptFate.ACKNOWLEDGED), default=0)
    return fates[:last].count(AttemptFate.PENDING) >= _PENDING


def play() -> Observation:
    stage = Stage(nodes=4, replicate="node:2", extra="sequencer_batching = false")
    client = stage.client()
    stage.acknowledged(client)
    sequencer = stage.sequencer
    silent = stage.others(sequencer)[0]
    stage.block(sequencer, silent)
    appends: list[Attempt] = []
    while not are_acknowledged_behind_pending(appends):
        assert len(appends) < 100
        appends.append(stage.append(client))
        stage.run(MILLISECOND // 2)
    # with the sequencer goes its own shard: entries that only it holds are gone, later ones are acknowledged
    sequencer.crash(machine=True)
    sequencer.wipe()
    sequencer.start()
    stage.run(10 * SECOND)
    return stage.finish()


def test_every_lsn_above_the_lng_is_accounted_for() -> None:
    assert any(gap.kind.name == "HOLE" for gap in play().gaps)


def test_the_schedule_notices_an_lng_that_runs_ahead() -> None:
    with FAULTS["lng_too_high"].planted(), pytest.raises(Violation):
        play()
