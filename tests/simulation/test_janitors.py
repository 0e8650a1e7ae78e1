"""Janitors and cold copies under faults; each rule of upkeep that is left out is noticed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import streams.cold.copier
import streams.upkeep.janitor
from client.guards import START
from logdevice_py import Namespace, SimCluster, SimulationFailed
from streams.cold.copier import Copier
from streams.cold.entries import UnpackedEntry
from streams.state import StreamEntry
from streams.upkeep.commands import BeginTrim
from streams.upkeep.janitor import Janitor
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


def _keeps_what_is_truncated_for_no_time(patch: pytest.MonkeyPatch) -> None:
    """What was truncated is trimmed at once, whatever `truncated_retention` says."""

    def planned(entry: StreamEntry, attributes: Any, *rest: Any) -> Any:
        return next_trim(entry, replace(attributes, truncated_retention_us=0), *rest)

    patch.setattr(streams.upkeep.janitor, "next_trim", planned)


def _compares_no_proofs(patch: pytest.MonkeyPatch) -> None:
    """Entries of a copy are not those of the log, and its proof is not compared with the log's."""
    add = Copier._add_row_group

    class Anything:
        def __ne__(self, other: object) -> bool:
            return False

    async def spoil(self: Copier, items: list[Any], first: int) -> int:
        spoilt = [replace(each, crc=each.crc ^ 1) if isinstance(each, UnpackedEntry) else each for each in items]
        return await add(self, spoilt, first)

    patch.setattr(Copier, "_add_row_group", spoil)
    patch.setattr(streams.cold.copier, "total_proof", lambda proofs: Anything())


FAULTS: Sequence[tuple[str, Callable[[pytest.MonkeyPatch], None], str]] = [
    ("what is not copied is trimmed", _trims_what_is_not_copied, "rule [123]"),
    ("what is trimmed is given back", _gives_back_what_is_trimmed, "rule [123]"),
    ("what is truncated is kept for no time", _keeps_what_is_truncated_for_no_time, "rule [123]"),
    ("proofs of copies are not compared", _compares_no_proofs, "rule [13]"),
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


async def taken_back_before_it_is_trimmed(cluster: SimCluster) -> None:
    """A truncation is taken back when the janitor has decided to trim what it truncated, and has not said so."""
    async with cluster.client() as client, Namespace(client) as namespace:
        stream = await namespace.create("orders", truncated_retention="1s")
        async with stream.writer() as writer:
            for number in range(10):  # an entry each
                receipt = await writer.write(b"%d" % number)
        await stream.truncate(receipt.position)
        await asyncio.sleep(3)
        propose = namespace.propose
        taken_back = 0

        async def late(command: Any, timeout: float | None = None) -> Any:
            nonlocal taken_back
            if isinstance(command, BeginTrim) and not taken_back:
                taken_back += 1
                await stream.untruncate()
            return await propose(command, timeout)

        namespace.propose = late  # type: ignore[method-assign]
        async with Janitor(namespace, lease="5s") as janitor:
            for _ in range(3):
                await janitor.round()
        assert taken_back == 1
        async with stream.reader(until="tail") as reader:
            read = [record.payload async for record in reader]
        assert read == [b"%d" % number for number in range(10)], f"rule 2: {read} is left of what was taken back"


def test_what_is_taken_back_meanwhile_is_not_trimmed(simulate: Callable[..., Any]) -> None:
    simulate(taken_back_before_it_is_trimmed, nodes=3, log_tree=True, virtual_seconds=300)


def test_a_trim_that_is_not_judged_again_is_noticed(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def trim(self: StreamUpkeep, wanted: BeginTrim, entry: StreamEntry) -> StreamUpkeep:
        return replace(self, trimming_to=max(self.trimming_to, wanted.lsn))

    monkeypatch.setattr(StreamUpkeep, "_trim", trim)
    with pytest.raises(SimulationFailed, match="rule 2"):
        simulate(taken_back_before_it_is_trimmed, nodes=3, log_tree=True, virtual_seconds=300)
