"""Guarded appends under the faults of the simulator; each rule that is left out is noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from logdevice_py import SimulationFailed
from logdevice_py.metadata.epoch_metadata import TailRecord
from sequencer.append_path import AppendPath
from sequencer.sequencer import Sequencer
from sequencer.tail import Tail
from tests.simulation.guards import guarded_appends
from tests.slow import quick

CLUSTER: dict[str, Any] = {"nodes": 5, "replicate": "node:3", "virtual_seconds": 1200}
ROLLING: dict[str, Any] = {"attributes": {"roll_every": "400ms", "sequencer_batching": False}}


@pytest.mark.parametrize("seed", quick(range(6), 2))
@pytest.mark.parametrize("rolls", [False, True])
def test_the_rules_hold_whatever_breaks(simulate: Callable[..., Any], seed: int, rolls: bool) -> None:
    told = simulate(guarded_appends, seed=seed, faults="all", **CLUSTER, **(ROLLING if rolls else {}))
    assert told.outcomes["OK"] > 100, told.outcomes
    assert told.outcomes["CONFLICT"] > 5, told.outcomes
    assert told.outcomes["ENDED"] > 5, told.outcomes


def _forgotten(patch: pytest.MonkeyPatch) -> None:
    """A new sequencer knows where the log ends, and nothing else of its end."""
    before = Tail.__init__

    def init(self: Tail, record: TailRecord | None) -> None:
        before(self, record and TailRecord(record.lsn, record.timestamp, record.records))

    patch.setattr(Tail, "__init__", init)


def _without_waiting(patch: pytest.MonkeyPatch) -> None:
    """A new epoch takes appends at once, by what its node knew of the log before."""
    hold = AppendPath._wait_for_tail

    def wait(self: AppendPath, sequencer: Sequencer, peer: Any, append: Any, now: Any) -> None:
        if not sequencer.guarded:
            hold(self, sequencer, peer, append, now)
            return
        sequencer.tail = Tail(TailRecord(sequencer.tail_lsn, sequencer.tail_timestamp, 1))
        self._take(sequencer, peer, append, True, now)

    patch.setattr(AppendPath, "_wait_for_tail", wait)


def _lenient(status: str) -> Callable[[pytest.MonkeyPatch], None]:
    """A guard of one kind is not looked at."""

    def put(patch: pytest.MonkeyPatch) -> None:
        judge = Tail.judge

        def lenient(self: Tail, guard: Any) -> Any:
            refusal = judge(self, guard)
            return None if refusal is not None and refusal.status.name == status else refusal

        patch.setattr(Tail, "judge", lenient)

    return put


FAULTS: Sequence[tuple[str, Callable[[pytest.MonkeyPatch], None], str]] = [
    ("the state is forgotten with the sequencer", _forgotten, "rule [134]"),
    ("a new epoch does not wait", _without_waiting, "rule [12345]"),
    ("expectations are not compared", _lenient("CONFLICT"), "rule [25]"),
    ("transaction ids are not compared", _lenient("TRANSACTION_ID_TOO_LOW"), "rule 1"),
    ("tokens are not compared", _lenient("FENCED"), "rule 3"),
    ("ends do not end", _lenient("ENDED"), "rule 4"),
]


@pytest.mark.parametrize(("put", "rule"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_each_rule_that_is_left_out_is_noticed(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, put: Callable[[pytest.MonkeyPatch], None], rule: str
) -> None:
    put(monkeypatch)
    seen = []
    for seed in range(40):
        try:
            simulate(guarded_appends, seed=seed, faults="all", **CLUSTER)
        except SimulationFailed as error:
            seen.append(str(error))
            if "AssertionError: rule" in str(error):
                break
    assert seen, "nobody noticed"
    with pytest.raises(AssertionError, match=rule):
        raise AssertionError(seen[-1])
