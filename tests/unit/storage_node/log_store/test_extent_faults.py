"""Deliberate faults: each breaks one rule of the store in extents, and cutting it off at random calls of its disk must find it."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from logdevice_py.core.status import LogDeviceError
from storage_node.log_store.extents import replay, sorted_table
from storage_node.log_store.extents.chain import Chain, SyncTicket
from storage_node.log_store.extents.deletes import DeletedRanges
from storage_node.log_store.extents.held_extents import HeldExtents
from storage_node.log_store.extents.simulated_disk import PowerCutError, SimulatedDisk, SimulatedFile
from storage_node.log_store.extents.upkeep import ExtentUpkeep
from tests.unit.storage_node.log_store.crashing import Scenario, crash_and_check

RUNS = 400
Patch = Callable[[pytest.MonkeyPatch], None]


def run(seed: int) -> bool:
    """Whether a run that is cut off somewhere leaves what it must not. It goes on after the first crash, on the same disk."""
    rng = random.Random(seed)
    disk = SimulatedDisk()
    scenario = Scenario(disk, seed, rounds=rng.randint(3, 60))
    disk.dies_at = rng.randint(0, rng.choice([50, 150, 400]))
    mode = rng.choice(["nothing", "all", "some sectors", "some sectors"])
    again_at = rng.choice([None, rng.randint(0, 20)])
    try:
        try:
            scenario.run()
        except PowerCutError:
            if seed % 3 == 0:
                scenario.process_dies()
        crash_and_check(disk, scenario.allowed(), mode, seed, again_at=again_at)
    except (AssertionError, LogDeviceError, KeyError):
        return True
    return False


def first_found() -> int | None:
    return next((seed for seed in range(RUNS) if run(seed)), None)


def test_without_a_fault_nothing_is_found() -> None:
    assert not [seed for seed in range(150) if run(seed)]


@contextmanager
def claimed(upkeep: Any) -> Any:
    """As if all that is written were durable."""
    before, upkeep._chain.synced = upkeep._chain.synced, upkeep._chain.last
    try:
        yield
    finally:
        upkeep._chain.synced = before


def ahead_of_the_sync(name: str) -> Patch:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        original = getattr(ExtentUpkeep, name)

        def too_early(self: ExtentUpkeep) -> Any:
            with claimed(self):
                return original(self)

        monkeypatch.setattr(ExtentUpkeep, name, too_early)

    return patch


def uncounted_references(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ExtentUpkeep._indexed

    def forgets(self: Any, number: int, held: Any, index: Any) -> None:
        held.partitions.discard(max(held.partitions, default=0))
        original(self, number, held, index)

    monkeypatch.setattr(ExtentUpkeep, "_indexed", forgets)


def more_than_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Chain.begin_run

    def begin_run(self: Chain, template: Any) -> Any:
        return original(self, replace(template, taken_block=max(0, template.taken_block - 1)))

    monkeypatch.setattr(Chain, "begin_run", begin_run)


def replayed_and_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldExtents, "sync_replayed", lambda self: None)


def sync_of_the_last_file(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Chain.begin_sync

    def begin_sync(self: Chain) -> SyncTicket:
        ticket = original(self)
        return SyncTicket(ticket.number, ticket.size, ticket.files[-1:])

    monkeypatch.setattr(Chain, "begin_sync", begin_sync)


def names_that_are_not_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedDisk, "sync_names", lambda self: self.step("sync names"))


def deletes_that_hide_what_came_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def hide(self: DeletedRanges, key: int, block: int) -> bool:
        return any(first <= key >> 33 <= last + 1 for first, last, _ in self)

    monkeypatch.setattr(DeletedRanges, "hide", hide)


def deletes_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    original = sorted_table.write_table

    def without_deletes(disk: Any, name: str, facts: dict[str, Any], rows: Any) -> None:
        original(disk, name, {**facts, **({"deletes": []} if "deletes" in facts else {})}, rows)

    monkeypatch.setattr("storage_node.log_store.extents.upkeep.write_table", without_deletes)


def blocks_without_their_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay._Replayer, "_has_bodies", staticmethod(lambda extent, block: True))


def torn_control_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is taken for what its head says without a look at what follows it."""
    original = replay._Replayer._judge_end

    def stops_at_once(self: Any, extent: Any, offset: int, later: Any) -> None:
        original(self, extent, offset, later)
        if self._blocks:
            self._blocks.pop()
            self._expected -= 1

    monkeypatch.setattr(replay._Replayer, "_judge_end", stops_at_once)


def tables_that_are_not_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    original = SimulatedFile.sync

    def sync(self: SimulatedFile, mark: int) -> None:
        if self.name.startswith("new-index") or self.name.startswith("new-table"):
            self._disk.step("sync")
        else:
            original(self, mark)

    monkeypatch.setattr(SimulatedFile, "sync", sync)


def headers_that_are_not_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    original = SimulatedFile.sync

    def sync(self: SimulatedFile, mark: int) -> None:
        if self.name.startswith(("new-extent", "spare")):
            self._disk.step("sync")
        else:
            original(self, mark)

    monkeypatch.setattr(SimulatedFile, "sync", sync)


FAULTS: dict[str, Patch] = {
    "an index is made of blocks that are not durable": ahead_of_the_sync("_to_index"),
    "the table of what lives long is made of blocks that are not durable": ahead_of_the_sync("_to_checkpoint"),
    "references of a partition to an extent are not counted": uncounted_references,
    "a run says that it took less than it did": more_than_was_taken,
    "what was replayed is not synced before a header says that it is": replayed_and_not_synced,
    "a sync covers the last file only": sync_of_the_last_file,
    "names are not made durable": names_that_are_not_durable,
    "deletes hide what was written after them": deletes_that_hide_what_came_later,
    "deletes are not kept with the index": deletes_that_are_forgotten,
    "a block counts without its bodies": blocks_without_their_bodies,
    "a block that is whole is dropped": torn_control_parts,
    "tables are renamed before they are durable": tables_that_are_not_durable,
    "extents are used before their header is durable": headers_that_are_not_durable,
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_deliberate_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name](monkeypatch)
    assert first_found() is not None, f"{RUNS} runs did not find it"
