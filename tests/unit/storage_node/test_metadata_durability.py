"""Which metadata of logs is synced before it is answered, and which is written lazily: what the declarations of its kinds say."""

from __future__ import annotations

import re
from pathlib import Path

from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import SECOND
from logdevice_py.protocol.messages import Cleaned, GetSeqState, Sealed, Stored, Trim, Trimmed
from storage_node.log_store.interface import EpochMetadataKind, LogMetadataKind, WriteShard
from tests.unit.storage_node.fakes import (
    ASYNC_LOG,
    ME,
    SEQUENCER,
    SYNC_LOG,
    ShardDriver,
    clean,
    lsn,
    release,
    seal,
    store,
    stores,
)
from tests.unit.storage_node.repair.test_dirty_ranges import cut_off, seq_state
from tests.unit.storage_node.retention.test_removed_logs import PASS, Removing

DOCS = Path(__file__).resolve().parents[3] / "docs"
Kind = LogMetadataKind | EpochMetadataKind


def written(driver: ShardDriver) -> list[tuple[set[Kind], bool]]:
    """The kinds in each batch that is with the disk and not answered, and whether it is synced; batches without metadata are left out."""
    found: list[tuple[set[Kind], bool]] = []
    for effect, _ in driver.held:
        if isinstance(effect, WriteShard):
            kinds: set[Kind] = {kind for _, kind, _ in effect.batch.log_metadata}
            kinds.update(kind for _, _, kind, _ in effect.batch.epoch_metadata)
            if kinds:
                found.append((kinds, effect.sync))
    return found


def holding() -> ShardDriver:
    """A shard that released three entries of epoch 1, and whose disk answers nothing from here on."""
    driver = ShardDriver()
    driver.turn(*stores([lsn(1, esn) for esn in range(1, 4)]))
    driver.turn(release(lsn(1, 3)))
    driver.advance(2 * SECOND)
    driver.sent.clear()
    driver.hold = True
    return driver


def test_a_seal_is_synced_before_it_is_answered() -> None:
    driver = holding()
    driver.turn(seal(1))
    assert written(driver) == [({LogMetadataKind.SEAL}, True)]
    assert not driver.take(Sealed)


def test_a_soft_seal_is_synced_with_its_store_and_an_lng_is_as_durable_as_the_entries() -> None:
    driver = holding()
    driver.turn((SEQUENCER, store(lsn(3, 1), log=ASYNC_LOG)))
    assert written(driver) == [({LogMetadataKind.SOFT_SEAL, EpochMetadataKind.MUTABLE}, True)]
    assert not driver.take(Stored)
    driver.let_go()
    driver.hold = True
    driver.turn((SEQUENCER, store(lsn(3, 2), log=ASYNC_LOG, lng=1)))
    driver.turn((SEQUENCER, store(lsn(1, 4), log=SYNC_LOG, lng=3)))
    assert written(driver) == [({EpochMetadataKind.MUTABLE}, False), ({EpochMetadataKind.MUTABLE}, True)]


def test_how_an_epoch_ended_is_synced_with_the_last_clean_epoch() -> None:
    driver = holding()
    driver.turn(clean(1, 1, lng=3, last=4))
    assert written(driver) == [({LogMetadataKind.LAST_CLEAN, EpochMetadataKind.RECOVERY}, True)]
    assert driver.log().clean_epoch == 0
    assert not driver.take(Cleaned)


def test_a_trim_point_is_synced_with_the_release_pointer_that_it_takes_from_entries() -> None:
    driver = holding()
    driver.turn((SEQUENCER, Trim(request_id=1, log=SYNC_LOG, shard=ME, lsn=lsn(1, 2))))
    assert written(driver) == [({LogMetadataKind.TRIM_POINT, LogMetadataKind.LAST_RELEASED}, True)]
    assert not driver.take(Trimmed)


def test_a_release_pointer_is_written_lazily() -> None:
    driver = ShardDriver()
    driver.turn(*stores([lsn(1, 1)]))
    driver.hold = True
    driver.turn(release(lsn(1, 1)))
    assert written(driver) == []
    driver.advance(2 * SECOND)
    assert written(driver) == [({LogMetadataKind.LAST_RELEASED}, False)]


def test_dirty_ranges_are_the_first_that_is_written_after_a_power_cut_and_end_lazily() -> None:
    driver = ShardDriver()
    driver.turn(*stores([lsn(1, 1)], log=ASYNC_LOG))
    driver.turn(*stores([lsn(1, 2)], log=ASYNC_LOG))
    driver.hold = True
    driver.power_cut()
    first, _ = driver.held[0]
    assert first.batch.marks_loss
    assert written(driver)[0] == ({LogMetadataKind.DIRTY, LogMetadataKind.SOFT_SEAL}, True)

    driver = cut_off()
    driver.hold = True
    driver.turn(seq_state(driver.take_one(GetSeqState), Lsn(lsn(1, 5) + 1)))
    assert written(driver) == [({LogMetadataKind.DIRTY}, False)]


def test_the_count_of_a_removed_log_is_written_lazily() -> None:
    driver = Removing()
    driver.turn(*stores([lsn(1, 1)]))
    driver.hold = True
    driver.set_logs(SYNC_LOG + 1, SYNC_LOG + 1)
    driver.advance(PASS)
    assert written(driver)
    assert ({LogMetadataKind.REMOVED}, False) in written(driver)


def test_the_documentation_has_every_kind_and_says_the_same_of_it() -> None:
    table = (DOCS / "storage.md").read_text().split("## What is durable when")[1].split("\n## ")[0]
    says = {}
    for line in table.splitlines():
        kinds, *cells = line.strip("|").split("|")
        for kind in re.findall(r"`([A-Z_]+)`", kinds):
            says[kind] = re.search(r"synced|lazily", cells[0])
    assert says.keys() == {kind.name for each in (LogMetadataKind, EpochMetadataKind) for kind in each}
    lazily = {kind for kind, word in says.items() if word is not None and word[0] == "lazily"}
    assert lazily == {"LAST_RELEASED", "REMOVED"}
