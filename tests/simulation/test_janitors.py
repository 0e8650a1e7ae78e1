"""Janitors and cold copies under faults; each rule of upkeep that is left out is noticed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import streams.upkeep.janitor
from client.guards import START
from logdevice_py import SimulationFailed
from streams.state import StreamEntry
from streams.upkeep.commands import BeginTrim
from streams.upkeep.planning import next_trim
from streams.upkeep.state import StreamUpkeep
from tests.simulation.causes import innermost
from tests.simulation.janitors import kept_streams

CLUSTER: dict[str, Any] = {
    "nodes": 4,
    "replicate": "node:3",
    "log_tree": True,
    "virtual_seconds": 3000,
    "faults": ("crash_process", "pause", "stop_sequencer", "break_all"),
    "fault_interval": 2.0,
}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_what_is_trimmed_has_a_copy_or_was_truncated_long_enough(simulate: Callable[..., Any], seed: int) -> None:
    kept = simulate(kept_streams, seed=seed, **CLUSTER)
    assert all(len(each.acknowledged) > 20 and each.trims for each in kept.values())
    assert kept["cold"].copied
    assert sum(each.taken_back for each in kept.values())


def _trims_what_is_not_copied(patch: pytest.MonkeyPatch) -> None:
    """What is old is trimmed, copied or not."""

    def planned(entry: StreamEntry, attributes: Any, *rest: Any) -> Any:
        return next_trim(entry, replace(attributes, cold=None), *rest)

    def trim(self: StreamUpkeep, wanted: BeginTrim, entry: StreamEntry) -> StreamUpkeep:
        return replace(self, trimming_to=max(self.trimming_to, wanted.lsn))

    async def nothing(*_: Any) -> int:
        return 0

    patch.setattr(streams.upkeep.janitor, "next_trim", planned)
    patch.setattr(StreamUpkeep, "_trim", trim)
    patch.setattr(streams.upkeep.janitor.Janitor, "_copy_all", nothing)


def _gives_back_what_is_trimmed(patch: pytest.MonkeyPatch) -> None:
    """Who takes a truncation back is told that nothing is gone."""
    patch.setattr(StreamUpkeep, "readable_from", property(lambda self: START))


FAULTS: Sequence[tuple[str, Callable[[pytest.MonkeyPatch], None], str]] = [
    ("what is not copied is trimmed", _trims_what_is_not_copied, "rule [123]"),
    ("what is trimmed is given back", _gives_back_what_is_trimmed, "rule [123]"),
]


@pytest.mark.parametrize(("put", "rule"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_each_rule_of_upkeep_that_is_left_out_is_noticed(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, put: Callable[[pytest.MonkeyPatch], None], rule: str
) -> None:
    put(monkeypatch)

    def hunt() -> None:
        for seed in range(4):
            simulate(kept_streams, seed=seed, **{**CLUSTER, "faults": ()})

    with pytest.raises((SimulationFailed, AssertionError)) as failed:
        hunt()
    assert re.search(rule, str(innermost(failed.value))), failed.value
