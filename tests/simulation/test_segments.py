"""Rolling and what segments say, under the faults of the simulator; each rule that is left out is noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from client.look_up.closed_segments import ClosedSegments
from epoch_store.updaters import ToNextEpoch
from logdevice_py import SimulationFailed
from logdevice_py.core.lsn import Lsn
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from sequencer.epoch_sequencer import EpochSequencer
from sequencer.rolling import Rolling
from sequencer.sequencer import Sequencer
from tests.simulation.segments import segments_under_faults
from tests.slow import quick

CLUSTER: dict[str, Any] = {"nodes": 5, "replicate": "node:3", "log_tree": True, "virtual_seconds": 1200}


@pytest.mark.parametrize("seed", quick(range(6), 1))
def test_segments_say_what_they_hold_whatever_breaks(simulate: Callable[..., Any], seed: int) -> None:
    rolled = simulate(segments_under_faults, seed=seed, faults="all", **CLUSTER)
    assert rolled.segments
    assert all(len(segments) > 3 for segments in rolled.segments.values()), rolled


def _empty(patch: pytest.MonkeyPatch) -> None:
    """An epoch is rolled whether something of it is stored or not."""
    patch.setattr(Sequencer, "may_roll", property(lambda self: self.current is not None and self.activation is None))
    begin = Rolling.on_epoch

    def on_epoch(self: Rolling, now: Any) -> None:
        begin(self, now)
        self.on_entry(0, now)

    patch.setattr(Rolling, "on_epoch", on_epoch)


def _remembered(patch: pytest.MonkeyPatch) -> None:
    """Each epoch adds its nodeset to the history."""
    take = ToNextEpoch.__call__

    def call(self: ToNextEpoch, current: EpochMetaData | None) -> Any:
        taken = take(self, current)
        if not isinstance(taken, EpochMetaData) or current is None or len(taken.history) != len(current.history):
            return taken
        history = (*taken.history, self._interval(taken.current, current.epoch))
        return EpochMetaData(
            taken.epoch, history, False, taken.disabled, taken.writer, guarded_since=taken.guarded_since
        )

    patch.setattr(ToNextEpoch, "__call__", call)


def _behind(patch: pytest.MonkeyPatch) -> None:
    """Counts in an entry leave out the entry itself."""
    append = EpochSequencer.append

    def one_behind(self: EpochSequencer, frames: Any, records: int, *rest: Any, **options: Any) -> Any:
        if self.counts is not None:
            self.counts = self.counts._replace(records=self.counts.records - 1)
        return append(self, frames, records, *rest, **options)

    patch.setattr(EpochSequencer, "append", one_behind)


def _trims_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A client lists what it remembers, whatever is trimmed since."""
    after = ClosedSegments.after
    patch.setattr(ClosedSegments, "forget", lambda self, trim_point: None)
    patch.setattr(ClosedSegments, "after", lambda self, start, trim_point: after(self, start, Lsn(0)))


def _too_far(patch: pytest.MonkeyPatch) -> None:
    """A transaction id is looked for behind the segment in which it is."""
    span = ClosedSegments.span_of_transaction
    patch.setattr(ClosedSegments, "span_of_transaction", lambda self, txid: span(self, txid + 3))


FAULTS: Sequence[tuple[str, Callable[[pytest.MonkeyPatch], None], str]] = [
    ("an empty epoch is rolled", _empty, "rule 4"),
    ("a roll adds history", _remembered, "rule 3"),
    ("a bridge has wrong counts", _behind, "rule 1"),
    ("trims are not heard of", _trims_forgotten, "rule 5"),
    ("a transaction id is looked for too far on", _too_far, "rule 6"),
]


@pytest.mark.parametrize(("put", "rule"), quick([pytest.param(*fault[1:], id=fault[0]) for fault in FAULTS], 2))
def test_each_rule_that_is_left_out_is_noticed(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, put: Callable[[pytest.MonkeyPatch], None], rule: str
) -> None:
    put(monkeypatch)
    seen = []
    for seed in range(40):
        try:
            simulate(segments_under_faults, seed=seed, faults="all", **CLUSTER)
        except SimulationFailed as error:
            seen.append(str(error))
            if "AssertionError: rule" in str(error):
                break
    assert seen, "nobody noticed"
    with pytest.raises(AssertionError, match=rule):
        raise AssertionError(seen[-1])
