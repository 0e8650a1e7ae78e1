"""With `strict_order` acknowledged appends of all clients are in the order of real time; when answers are not withheld, that is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from logdevice_py import SimulationFailed
from sequencer.epoch_sequencer import EpochSequencer
from sequencer.sequencer import Sequencer
from tests.simulation.strict_order import LOG, strictly_ordered_appends

CLUSTER: dict[str, Any] = {
    "nodes": 5,
    "logs": LOG,
    "replicate": "node:2",
    "faults": ["crash_process", "partition_halves", "pause"],
    "fault_interval": 1,
    "virtual_seconds": 600,
}
"""Copysets of two of five shards need not meet."""


@pytest.mark.parametrize("seed", range(3))
def test_appends_are_in_the_order_of_real_time(simulate: Callable[..., Any], seed: int) -> None:
    assert simulate(strictly_ordered_appends, seed=seed, attributes={"strict_order": True}, **CLUSTER).take_overs


def _violated(simulate: Callable[..., Any], *, strict: bool) -> None:
    for seed in range(6):
        simulate(strictly_ordered_appends, seed=seed, attributes={"strict_order": strict}, **CLUSTER)


def test_without_it_nobody_waits_for_seals(simulate: Callable[..., Any]) -> None:
    with pytest.raises(SimulationFailed, match="AssertionError: rule "):
        _violated(simulate, strict=False)


@pytest.mark.parametrize("fault", ["answers are not withheld", "seals are not awaited"])
def test_each_part_that_is_left_out_is_noticed(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault == "answers are not withheld":
        acknowledge = EpochSequencer._acknowledge

        def at_once(self: EpochSequencer, appender: Any) -> None:
            self.withholds = False
            acknowledge(self, appender)

        monkeypatch.setattr(EpochSequencer, "_acknowledge", at_once)
    else:
        start = Sequencer._start_recovery

        def told_early(self: Sequencer, now: Any) -> None:
            start(self, now)
            self.on_earlier_sealed(self.epoch, now)

        monkeypatch.setattr(Sequencer, "_start_recovery", told_early)
    with pytest.raises(SimulationFailed, match="AssertionError: rule "):
        _violated(simulate, strict=True)
