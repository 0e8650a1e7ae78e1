"""Atomic batches under the faults of the simulator; what splits one is noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import sequencer.append_path
from client.write.record_intake import RecordIntake
from logdevice_py import SimulationFailed
from sequencer.frames import Frame
from tests.simulation.atomic_batches import atomic_batches

CLUSTER: dict[str, Any] = {"nodes": 5, "replicate": "node:3", "virtual_seconds": 1200}


@pytest.mark.parametrize("seed", range(6))
def test_the_rules_hold_whatever_breaks(simulate: Callable[..., Any], seed: int) -> None:
    attributes = {"sequencer_batching": False} if seed % 2 else {}
    told = simulate(atomic_batches, seed=seed, faults="all", attributes=attributes, **CLUSTER)
    assert len(told.acknowledged) > 40, told.acknowledged
    assert told.refused
    assert told.seen


def _split_by_sequencer(patch: pytest.MonkeyPatch) -> None:
    """A log without batching gives each record of an atomic batch an LSN of its own."""

    def split(frame: Frame) -> bool:
        return frame.records > 1 and not frame.writer

    patch.setattr(sequencer.append_path, "is_split", split)


def _spread_by_writer(patch: pytest.MonkeyPatch) -> None:
    """A BufferedWriter puts an atomic batch into as many frames as other records."""

    def append_whole(self: RecordIntake, *arguments: Any, **named: Any) -> None:
        self.append_many(*arguments, **named)

    patch.setattr(RecordIntake, "append_whole", append_whole)


FAULTS: Sequence[tuple[str, Callable[[pytest.MonkeyPatch], None], bool]] = [
    ("the sequencer splits", _split_by_sequencer, False),
    ("the writer spreads", _spread_by_writer, True),
]


@pytest.mark.parametrize(("put", "batching"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_a_batch_that_is_split_is_noticed(
    simulate: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    put: Callable[[pytest.MonkeyPatch], None],
    batching: bool,
) -> None:
    put(monkeypatch)

    def simulated() -> None:
        for seed in range(10):
            simulate(atomic_batches, seed=seed, faults="all", attributes={"sequencer_batching": batching}, **CLUSTER)

    with pytest.raises(SimulationFailed, match=r"AssertionError: rule [12]"):
        simulated()
