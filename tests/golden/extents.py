"""The bytes of stores in extents, as this version writes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from storage_node.log_store.extents.block_format import (
    HEAD_SIZE,
    Changes,
    ExtentHeader,
    bodies_match,
    decode_control,
    decode_head,
    encode_block,
    seed_of,
)
from storage_node.log_store.extents.held_extents import MovedCopies, MovedFile
from storage_node.log_store.extents.rows import CopyRow, IndexTable, encode_index, key_of, lsn_of, rank_of
from storage_node.log_store.extents.simulated_disk import SimulatedDisk
from storage_node.log_store.extents.sorted_table import SortedTable, write_table
from tests.golden.record import GoldenCase

SALT = 0x0123456789ABCDEF
LSN = 3 << 32 | 17
RANK = 1 << 32 | 5
HEADER = ExtentHeader(
    cluster=bytes(range(16)),
    shard=2 << 8,
    generation=3,
    run=7,
    number=9,
    salt=SALT,
    taken_run=6,
    taken_block=41,
    boot="6b1c2f4e-0000-4000-8000-000000000001",
)
CHANGES = Changes(
    copies=[(7, LSN, 1, 1_000_000, 5, None), (7, LSN + 1, RANK, 1_000_000, 9, b"head")],
    points=[(7, LSN - 1, 2, 1_000_000, 4096, b"another head", 8, 4608)],
    deletes=[(7, 0, LSN - 2, 1_000_000)],
    rows=[(b"t\0\0\0\0\0\0\0\x07", b"value"), (b"\0unmarked", None)],
)


def _header(data: bytes) -> dict[str, Any]:
    return asdict(ExtentHeader.decode(data))


def _block(data: bytes) -> dict[str, Any]:
    seed = seed_of(SALT)
    head = decode_head(data, seed)
    assert head is not None
    told = asdict(head)
    told |= asdict(decode_control(head, data[HEAD_SIZE : head.bodies_at], seed))
    bodies = data[head.bodies_at : head.bodies_at + head.bodies_length]
    assert bodies_match(head, bodies, seed)
    return {**told, "bodies": bodies}


def _table_on(data: bytes) -> SortedTable:
    disk = SimulatedDisk()
    disk.create("table", 0).write([data], 0)
    return SortedTable(disk.open("table"))


def _table(data: bytes) -> dict[str, Any]:
    table = _table_on(data)
    return {"facts": sorted(table.facts.items()), "rows": list(table.rows(b"", None))}


def _index(data: bytes) -> dict[str, Any]:
    index = IndexTable(_table_on(data))
    rows = [(lsn_of(key), rank_of(key), *row) for key, row in index.rows(7, 0, (1 << 97) - 1)]
    return {"facts": sorted(index.table.facts.items()), "rows": rows}


def _moved(data: bytes) -> dict[str, Any]:
    return asdict(MovedCopies.decode(data))


def _written(facts: dict[str, Any], rows: list[tuple[bytes, bytes]]) -> bytes:
    disk = SimulatedDisk()
    write_table(disk, "table", facts, rows)
    return disk.snapshot()["table"]


def extent_cases() -> Iterator[GoldenCase]:
    """Headers, blocks, tables."""
    yield GoldenCase("header of an extent", HEADER.encode(), _header)
    seed = seed_of(SALT)
    parts, _, _ = encode_block(CHANGES, [b"image", b"head body"], run=7, number=42, synced=41, seed=seed)
    yield GoldenCase("block", b"".join(parts), _block)
    parts, _, _ = encode_block(Changes(), [], run=7, number=43, synced=0, seed=seed)
    yield GoldenCase("block without changes", b"".join(parts), _block)
    yield GoldenCase("table of what lives long", _written({"applied": 42}, [(b"key", b"value"), (b"kez", b"")]), _table)
    row = CopyRow(42, 1_000_000, 9, 4608, 5, None)
    large = CopyRow(42, 1_000_000, 9, 4613, 9, b"head")
    facts, rows = encode_index(
        [(7, key_of(LSN, 1), row), (7, key_of(LSN + 1, RANK), large)],
        [(7, 0, LSN - 2, 42, 1_000_000)],
        extent=9,
        salt=SALT,
        first=42,
        last=43,
        end=5632,
    )
    yield GoldenCase("index of an extent", _written(facts, rows), _index)
    files = (MovedFile(11, SALT, 42, 9216), MovedFile(9, SALT, 40, 8192, void=True))
    yield GoldenCase("row of copies that were moved", MovedCopies(42, files).encode(), _moved)
