"""The offline look at a store in extents."""

from __future__ import annotations

from pathlib import Path

import pytest

from logdevice_py.core.ids import Generation, metadata_log_of
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from server.logdeviced import main
from storage_node.log_store.extents.block_format import BLOCK_MAGIC
from storage_node.log_store.extents.inspecting import StoreReport, inspect_store
from storage_node.log_store.extents.opening import EXTENTS
from storage_node.log_store.extents.simulated_disk import SimulatedDisk
from storage_node.log_store.extents.store import ExtentLogStore
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.interface import WriteBatch
from storage_node.log_store.settings import LogStoreSettings
from tests.unit.storage_node.log_store.extent_stores import do_chores, open_extents
from tests.unit.storage_node.log_store.images import LOG, SHARD, at, put

MARKER = ShardMarker(b"c" * 16, SHARD, Generation(2))
SETTINGS = LogStoreSettings(free_space_min=0, extent_bytes=64 << 10, checkpoint_bytes=30_000)


def fill(where: Path | SimulatedDisk) -> ExtentLogStore:
    store = open_extents(where, SETTINGS)
    assert store.adopt(MARKER, boot="boot 1", now=Timestamp(1_000)) is Status.OK
    store.load()
    for esn in range(1, 31):
        batch = WriteBatch()
        put(batch, at(esn), b"body " * 1_000)
        put(batch, at(esn), b"body", log=metadata_log_of(LOG))
        assert store.write([batch]) == [Status.OK]
    assert store.sync() is Status.OK
    do_chores(store)
    assert store.sync() is Status.OK
    do_chores(store)
    return store


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    fill(disk).close()
    return disk


def look(disk: SimulatedDisk) -> StoreReport:
    before = disk.snapshot()
    report = inspect_store(disk)
    assert disk.snapshot() == before, "looking changes nothing"
    return report


def place_of(disk: SimulatedDisk, esn: int) -> tuple[str, int]:
    store = open_extents(disk, SETTINGS)
    for index in store._extents.indexes.values():
        for key, found in index.rows(LOG, 0, (1 << 97) - 1):
            if key >> 33 == at(esn):
                return f"extent-{found.extent:016x}", found.offset
    raise AssertionError(esn)


def test_a_sound_store_is_told_to_be_sound(disk: SimulatedDisk) -> None:
    report = look(disk)
    assert not report.damaged
    assert not report.opens
    assert sum(each.copies for each in report.extents) == 60
    assert {each.index for each in report.extents if each.copies} == {"1 rows"}, "a piece for each log"
    text = "\n".join(report.lines())
    assert "N3:S0 generation 2" in text
    assert "closed in order" in text
    assert text.endswith("it opens")


def test_a_head_that_cannot_be_read_is_told_though_nothing_behind_it_is_found(disk: SimulatedDisk) -> None:
    name, offset = place_of(disk, 7)
    data = disk.open(name).read(0, offset)
    head = data.rindex(BLOCK_MAGIC)
    disk.flip(name, head + 5)
    report = look(disk)
    assert not report.opens, "its index is read in its place"
    [damaged] = [each for each in report.extents if each.damage]
    assert damaged.name == name
    assert damaged.damage[0].startswith(f"no block can be read at byte {head}, and its index has some up to byte ")
    assert report.damaged


def test_a_damaged_copy_is_named(disk: SimulatedDisk) -> None:
    name, offset = place_of(disk, 7)
    disk.flip(name, offset + 200)
    report = look(disk)
    assert report.damaged
    assert not report.opens
    [text] = next(each.damage for each in report.extents if each.damage)
    assert "log 7 e1n7" in text
    assert "e1n8" not in text


def test_a_damaged_index_and_a_damaged_table_are_named(disk: SimulatedDisk) -> None:
    index = next(name for name in disk.names() if name.startswith("index-") and disk.open(name).size() > 700)
    disk.flip(index, 20)
    disk.flip("table", 20)
    report = look(disk)
    assert any("made anew" in text for each in report.extents for text in each.damage)
    assert any(text.startswith("table ") for text in report.damage)
    assert "cannot be read" in report.opens


def test_a_torn_end_is_no_damage() -> None:
    disk = SimulatedDisk()
    store = fill(disk)
    for esn in (40, 41):
        batch = WriteBatch()
        put(batch, at(esn), b"body")
        assert store.write([batch]) == [Status.OK]
    row = store._reader.row_at(LOG, at(40), 1)
    assert row is not None
    last = store.last_block
    disk.flip(f"extent-{row.extent:016x}", row.offset - 20)
    report = look(disk)
    assert (report.opens, report.damaged, report.torn) == ("", False, True)
    assert report.last_block == last - 2


def test_the_program_tells_of_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / EXTENTS).close()
    assert main(["--inspect", str(tmp_path)]) == 0
    assert "it opens" in capsys.readouterr().out
    path = max((tmp_path / EXTENTS).glob("index-*"), key=lambda each: each.stat().st_size)
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    assert main(["--inspect", str(tmp_path)]) == 3
    assert "damaged: " in capsys.readouterr().out
    assert main(["--inspect", str(tmp_path / "elsewhere")]) == 1
    assert "holds no store in extents" in capsys.readouterr().err
