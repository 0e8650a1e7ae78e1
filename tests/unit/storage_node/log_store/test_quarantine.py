"""Stores that were quarantined are found again, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from logdevice_py.core.ids import NodeId, shard_id
from logdevice_py.tables.constraints import EVERYTHING, Constraints
from logdevice_py.tables.storage import QuarantinedStoresRow, QuarantineReason
from server.admin.tables import NodeTables
from storage_node.log_store.rocksdb.quarantine import QuarantinedStore, bytes_in, quarantine, quarantined_stores


def made(path: Path, size: int = 10_000) -> str:
    """A directory that could be a store."""
    (path / "db").mkdir(parents=True)
    (path / "db" / "000001.sst").write_bytes(b"x" * size)
    return str(path)


def test_what_was_quarantined_is_found_until_it_is_deleted(tmp_path: Path) -> None:
    wanted = []
    for reason in (
        QuarantineReason.DAMAGED,
        QuarantineReason.FOREIGN,
        QuarantineReason.FOREIGN,
        QuarantineReason.REPLACED,
    ):
        wanted.append(QuarantinedStore(quarantine(made(tmp_path / "shard0"), reason), reason))
    assert quarantined_stores(str(tmp_path / "shard0")) == wanted
    assert [os.path.basename(store.directory) for store in wanted] == [
        "shard0.damaged-1",
        "shard0.foreign-1",
        "shard0.foreign-2",
        "shard0.replaced-1",
    ]
    os.rename(wanted[1].directory, tmp_path / "elsewhere")
    assert quarantined_stores(str(tmp_path / "shard0")) == [wanted[0], *wanted[2:]]


def test_what_lies_beside_them_is_none_of_them(tmp_path: Path) -> None:
    for name in ("shard0", "shard0.foreign-", "shard0.foreign-1.old", "shard0.forgotten-1", "shard00.foreign-1"):
        made(tmp_path / name)
    (tmp_path / "shard0.foreign-7").write_text("no directory")
    (tmp_path / "shard0.begun").write_text("1")
    assert quarantined_stores(str(tmp_path / "shard0")) == []


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    store = Path(made(tmp_path / "shard0.damaged-1"))
    once = bytes_in(str(store))
    assert once is not None
    assert once >= 10_000
    (store / "deleting").mkdir()
    os.link(store / "db" / "000001.sst", store / "deleting" / "000001.sst")
    assert bytes_in(str(store)) == once
    assert bytes_in(str(tmp_path / "gone")) is None


async def test_the_table_names_those_of_every_shard(tmp_path: Path) -> None:
    node = NodeId(3)
    directories = {shard_id(node, index): str(tmp_path / f"shard{index}") for index in range(2)}
    first = quarantine(made(tmp_path / "shard0"), QuarantineReason.REPLACED)
    second = quarantine(made(tmp_path / "shard1"), QuarantineReason.DAMAGED)
    host: Any = SimpleNamespace(store_directories=directories)

    async def rows(constraints: Constraints) -> list[QuarantinedStoresRow]:
        found: Any = NodeTables(host).rows("quarantined_stores", constraints)
        return [row async for row in found]

    size = bytes_in(first)
    assert await rows(EVERYTHING) == [
        QuarantinedStoresRow(0, first, "REPLACED", size),
        QuarantinedStoresRow(1, second, "DAMAGED", size),
    ]
    assert [row.shard for row in await rows(Constraints(shard=1))] == [1]
