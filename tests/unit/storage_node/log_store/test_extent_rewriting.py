"""Space that is trimmed within a partition comes back: copies that count are taken out of extents, whatever cuts that off."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Timestamp
from storage_node.log_store.extents import rewriting
from storage_node.log_store.extents.held_extents import HeldExtents
from storage_node.log_store.extents.rewriting import ExtentRewriter, RewriteStep
from storage_node.log_store.extents.rows import IndexBuilder
from storage_node.log_store.extents.simulated_disk import PowerCutError, SimulatedDisk, SimulatedFile
from storage_node.log_store.interface import WriteBatch
from storage_node.log_store.precedence import header_apart
from tests.slow import quick
from tests.unit.storage_node.log_store.crashing import RewritingScenario, crash_and_check
from tests.unit.storage_node.log_store.extent_stores import do_chores
from tests.unit.storage_node.log_store.images import LOG, at, image_of, read_all
from tests.unit.storage_node.log_store.test_extent_store import BODY, SETTINGS, Held

OTHER = LogId(8)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions are looked at in each round, and few extents are taken at a time."""
    monkeypatch.setattr(rewriting, "_LOOKS_EVERY", 1)
    monkeypatch.setattr(rewriting, "_STEP_EXTENTS", 2)
    monkeypatch.setattr(rewriting, "_PIECE_COPIES", 5)


def rounds(it: Held, count: int = 4) -> None:
    """Upkeep, with all that it has done in the background."""
    for _ in range(count):
        it.store.maintain(Timestamp(it.now))
        do_chores(it.store)
        assert it.store.sync() is Status.OK


def moved_files(it: Held) -> list[str]:
    return [name for name in it.disk.names() if name.startswith("moved-")]


@pytest.fixture
def it() -> Held:
    """A closed partition of some extents, mostly of one log, which another one needs too; of the first log most is trimmed."""
    held = Held()
    held.open(settings=replace(SETTINGS, partition_bytes=1 << 30))
    for _ in range(10):
        held.write(6)
        held.write(1, log=OTHER)
    assert held.store.sync() is Status.OK
    do_chores(held.store)
    held.now += 200 * SECOND
    held.store.maintain(Timestamp(held.now))
    held.write(25)
    held.trim(60)
    assert held.store.sync() is Status.OK
    do_chores(held.store)
    return held


def entries(it: Held) -> list[Any]:
    return [read_all(it.store, log).entries for log in (LOG, OTHER)]


def test_what_is_trimmed_within_a_partition_becomes_free(it: Held) -> None:
    before = entries(it)
    used = sum(each.size for each in it.store.view.extents())
    rounds(it, 6)
    assert len(it.store.partitions) == 2
    assert sum(each.size for each in it.store.view.extents()) < used - 4 * SETTINGS.extent_bytes
    assert moved_files(it)
    assert {"moved"} <= {each.state for each in it.store.view.extents()}
    assert entries(it) == before
    it.store.close()
    it.open()
    assert entries(it) == before


def test_what_was_taken_out_goes_with_its_partition(it: Held) -> None:
    rounds(it, 6)
    it.now += 200 * SECOND
    it.store.maintain(Timestamp(it.now))
    it.write(2)
    batch = WriteBatch()
    batch.delete_entries(LOG, Lsn(0), at(it.esn - 2))
    batch.delete_entries(OTHER, Lsn(0), at(it.esn))
    assert it.store.write([batch]) == [Status.OK]
    rounds(it)
    assert len(it.store.partitions) == 1
    assert not moved_files(it)
    it.store.close()
    it.open()
    assert [len(each) for each in entries(it)] == [2, 0]
    assert not it.store._extents.moved


def test_it_takes_no_more_than_the_settings_say(it: Held) -> None:
    it.store.abandon()
    it.open(settings=replace(SETTINGS, rewrite_bytes_per_second=20_000))
    do_chores(it.store)
    writes = []
    for _ in range(12):
        it.store.maintain(Timestamp(it.now))
        before = it.disk.used
        do_chores(it.store)
        writes.append(it.disk.used - before)
        it.store.sync()
    assert moved_files(it)
    assert max(writes) <= 3 * 20_000
    it.store.abandon()
    it.open(settings=replace(SETTINGS, rewrite_bytes_per_second=0))
    rounds(it, 6)


def test_what_cannot_be_read_stays_where_it_is(it: Held) -> None:
    row = it.store._reader.row_at(OTHER, at(7), 1)
    assert row is not None
    name = f"extent-{row.extent:016x}"
    it.disk.spoil(name, row.offset // 512 + 1)
    it.forget_recent()
    rounds(it, 6)
    assert not it.store.failed
    assert read_all(it.store, OTHER).corrupt == [(at(7), at(7))]
    it.disk.spoil(name, row.offset // 512 + 1, readable=True)
    assert len(read_all(it.store, OTHER).entries) == 10
    assert not [each for each in it.disk.names() if "new-" in each]


@pytest.mark.parametrize("how", ["gone", "rotten"])
def test_an_index_of_what_was_taken_out_is_made_anew(it: Held, how: str) -> None:
    rounds(it, 6)
    before = entries(it)
    it.store.close()
    for name in [each.replace("moved", "index") for each in moved_files(it)]:
        if how == "gone":
            it.disk.unlink(name)
        else:
            it.disk.flip(name, it.disk.open(name).size() - 4)
    it.open()
    assert entries(it) == before
    rounds(it)
    assert entries(it) == before


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("how", ["restored", "header"])
def test_what_later_blocks_changed_of_it_counts_whatever_became_of_its_index(it: Held, how: str, lost: bool) -> None:
    batch = WriteBatch()
    if how == "restored":
        batch.delete_entries(OTHER, at(21), at(28))
        assert it.store.write([batch]) == [Status.OK]
    it.write(12)
    assert it.store.sync() is Status.OK
    rounds(it, 8)
    files = moved_files(it)
    assert files
    batch = WriteBatch()
    if how == "restored":
        image = image_of(at(21), BODY, log=OTHER)
        batch.put_again(OTHER, at(21), by_recovery=False, wave=1, image=image)
    else:
        header = header_apart(image_of(at(42), BODY, log=OTHER, copyset=(768, 1024)))
        assert header is not None
        batch.put_header(OTHER, at(42), by_recovery=False, wave=1, header=header)
    assert it.store.write([batch]) == [Status.OK]
    assert it.store.sync() is Status.OK
    before = entries(it)
    it.store.abandon()
    if lost:
        for name in [each.replace("moved", "index") for each in files]:
            it.disk.flip(name, it.disk.open(name).size() - 4)
    it.disk.power_cut(lambda: True)
    it.open("boot 2")
    assert entries(it) == before
    rounds(it)
    assert entries(it) == before


def test_a_file_that_is_missing_is_noticed(it: Held) -> None:
    rounds(it, 6)
    it.store.close()
    it.disk.unlink(moved_files(it)[0])
    with pytest.raises(LogDeviceError, match="moved-"):
        it.open()


# Cut off anywhere

RUNS = 250
ROUNDS = 50
EVERY = 19
"""Calls of the disk of which one is the last."""
Patch = Callable[[pytest.MonkeyPatch], None]


def steps_of_a_whole_run(seed: int) -> int:
    disk = SimulatedDisk()
    RewritingScenario(disk, seed, rounds=ROUNDS).run()
    return disk.steps


def run(seed: int) -> bool:
    """Whether a run that is cut off somewhere leaves what it must not."""
    rng = random.Random(seed)
    disk = SimulatedDisk()
    scenario = RewritingScenario(disk, seed, rounds=rng.randint(30, 60))
    disk.dies_at = rng.randint(60, 400)
    try:
        try:
            scenario.run()
        except PowerCutError:
            if seed % 3 == 0:
                scenario.process_dies()
        mode = rng.choice(["nothing", "all", "some sectors"])
        crash_and_check(disk, scenario.allowed(), mode, seed, again_at=rng.choice([None, rng.randint(0, 20)]))
    except (AssertionError, LogDeviceError, KeyError):
        return True
    return False


def test_the_scenario_takes_copies_out_of_extents() -> None:
    found: set[int] = set()
    for seed in range(2):
        disk = SimulatedDisk()
        scenario = RewritingScenario(disk, seed, rounds=ROUNDS)
        scenario.run()
        found.add(sum(name.startswith("moved-") for name in disk.names()))
    assert max(found) >= 2


@pytest.mark.parametrize("mode", quick(["nothing", "some sectors"], 1))
def test_a_power_cut_at_every_call_leaves_a_prefix_with_all_that_is_durable(mode: str) -> None:
    seed = 3
    for step in range(40 + (mode == "nothing"), steps_of_a_whole_run(seed), EVERY):
        disk = SimulatedDisk()
        scenario = RewritingScenario(disk, seed, rounds=ROUNDS)
        disk.dies_at = step
        with pytest.raises(PowerCutError):
            scenario.run()
        crash_and_check(disk, scenario.allowed(), mode, step, again_at=None if step % 2 else step % 23)


def test_without_a_fault_nothing_is_found() -> None:
    assert not [seed for seed in range(6) if run(seed)]


def a_switch_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    original = SimulatedFile.sync

    def sync(self: SimulatedFile, mark: int) -> None:
        if not self.name.startswith(("new-moved", "moved")):
            original(self, mark)

    monkeypatch.setattr(SimulatedFile, "sync", sync)


def deletes_that_stay_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ExtentRewriter._open

    def opens(self: Any, step: RewriteStep) -> None:
        step.keeps_deletes = False
        original(self, step)

    monkeypatch.setattr(ExtentRewriter, "_open", opens)


def bodies_without_their_extent(monkeypatch: pytest.MonkeyPatch) -> None:
    original = HeldExtents.is_free

    def is_free(self: Any, held: Any) -> bool:
        points = [each.points for each in self.held.values()]
        for each in self.held.values():
            each.points = set()
        try:
            return original(self, held)
        finally:
            for each, before in zip(self.held.values(), points, strict=True):
                each.points = before

    monkeypatch.setattr(HeldExtents, "is_free", is_free)


def an_index_with_what_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldExtents, "is_void", lambda self, held, partition: False)


def extents_that_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """What deletes hid in extents that are kept for others is there again."""
    original = HeldExtents.let_go

    def let_go(self: Any, held: Any, partition: int) -> None:
        index = self.indexes.get(held.extent.number)
        before = set(index.partitions) if index is not None else set()
        original(self, held, partition)
        if index is not None:
            index.partitions = before
            self.indexes._of.setdefault(partition, {})[held.extent.number] = index

    monkeypatch.setattr(HeldExtents, "let_go", let_go)


def copies_of_their_old_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that came later, or a delete, is taken for older than the copy."""
    original = RewriteStep.__post_init__

    def post_init(self: RewriteStep) -> None:
        original(self)
        self.builder = _Later(self.number)

    class _Later(IndexBuilder):
        def add(self, log: int, rows: list[Any]) -> None:
            super().add(log, [(key, row._replace(block=row.block + 1_000)) for key, row in rows])

    monkeypatch.setattr(RewriteStep, "__post_init__", post_init)


def extents_that_go_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    from storage_node.log_store.extents.upkeep import ExtentUpkeep

    original = ExtentUpkeep._to_retire

    def to_retire(self: Any) -> Any:
        before, self._chain.synced = self._chain.synced, self._chain.last
        try:
            original(self)
            return original(self)
        finally:
            self._chain.synced = before

    monkeypatch.setattr(ExtentUpkeep, "_to_retire", to_retire)


FAULTS: dict[str, Patch] = {
    "a block says that copies were taken before they are durable": a_switch_before_the_sync,
    "deletes do not go with the copies": deletes_that_stay_behind,
    "the extents of bodies to which later rows point become free": bodies_without_their_extent,
    "an index that is made anew brings back what was taken": an_index_with_what_was_taken,
    "extents that are kept for others still count": extents_that_still_count,
    "copies that were taken count as later than what changed them": copies_of_their_old_blocks,
    "extents become free before it is durable that they may": extents_that_go_too_early,
}


@pytest.mark.parametrize("name", quick(FAULTS, 2))
def test_a_deliberate_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name](monkeypatch)
    assert next((seed for seed in range(RUNS) if run(seed)), None) is not None, f"{RUNS} runs did not find it"


def test_the_rows_of_an_index_are_weighed(it: Held) -> None:
    indexes = list(it.store._extents.indexes.values())
    weighed = [sum(each.size for each in index.sizes()) for index in indexes]
    assert sum(weighed) > 100_000
    assert weighed == [sum(row.length for *_, row in index.all_rows()) for index in indexes]
