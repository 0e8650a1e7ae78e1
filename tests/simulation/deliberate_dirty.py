"""Deliberate faults of what a shard does after a power cut took what it had answered: marks that are too narrow, or go too soon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from logdevice_py.core.lsn import Lsn
from storage_node.repair.copies import CopiesHandler
from storage_node.repair.log_repair import LogRepair, RangeKind
from storage_node.repair.next_lsn import NextLsnQuestion
from storage_node.shard import Shard
from tests.simulation.deliberate_fault import deliberate

Change = Callable[..., Any]

_DIRTY_RANGES = "dirty ranges"


@deliberate(
    "the mark of a crash begins ten entries behind the last one that is left",
    (Shard, "_mark_dirty"),
    likely=_DIRTY_RANGES,
)
def mark_begins_too_late(original: Change) -> Change:
    return lambda self, logs, released: original(self, logs, {state.log: Lsn(state.highest + 10) for state in logs})


@deliberate(
    "the mark of a crash ends at the release pointer, not where the sequencer is",
    (NextLsnQuestion, "_on_seq_state"),
    likely=_DIRTY_RANGES,
)
def mark_ends_too_early(original: Change) -> Change:
    def on_seq_state(self: NextLsnQuestion, message: Any, now: Any) -> None:
        original(self, replace(message, next_lsn=Lsn(max(message.last_released + 1, 1))), now)

    return on_seq_state


@deliberate("a mark goes when some shard has answered", (LogRepair, "_on_answers"), likely=_DIRTY_RANGES)
def mark_goes_too_soon(original: Change) -> Change:
    def on_answers(self: LogRepair, answers: Any, now: Any) -> None:
        if self._part.kind is RangeKind.DIRTY:
            self._is_re_replicated = lambda shard, generation: True
            answers = dict(list(answers.items())[:1])
        original(self, answers, now)

    return on_answers


@deliberate("a mark goes, and nothing is stored", (LogRepair, "_copies_not_here"), likely=_DIRTY_RANGES)
def repaired_without_copies(original: Change) -> Change:
    return lambda self, outcome, result: {}


@deliberate(
    "a shard that lost unsynced entries tells others who lost theirs that it has all that it should",
    (CopiesHandler, "_may_lack"),
    likely=_DIRTY_RANGES,
)
def dirty_shard_is_authoritative(original: Change) -> Change:
    return lambda self, state, first, last, generation, result: bool(result.corrupt or result.bodiless)
