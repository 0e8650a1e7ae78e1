"""Cold files: what goes in comes out, and what was changed is never taken for what was stored."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from client.read.items import DataLoss, Gap, GapKind
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import Status
from streams.cold.columns import decode_rows, encode_rows
from streams.cold.copies import ColdFile, content_hash
from streams.cold.entries import UnpackedEntry, UnpackedItem
from streams.cold.errors import ColdCopyError
from streams.cold.file_format import METADATA_KEY, FileContent, FinishedFile
from tests.unit.streams.cold_samples import IDENTITY, built, entry, lsn, sample


def read(described: ColdFile, data: Any, *, start: int = 0, strict: bool = True) -> list[UnpackedItem]:
    content = FileContent(described, data, where="there")
    content.check_identity(IDENTITY.cluster, IDENTITY.log)
    return [item for group in content.items(start, strict=strict) for item in group]


def forged(file: FinishedFile, **columns: Any) -> tuple[ColdFile, bytes]:
    """The file with other columns, and a description by whose hash it is right."""
    return rewritten(
        file,
        lambda table: [
            pa.array(columns[n], table.schema.field(n).type) if n in columns else table.column(n)
            for n in table.column_names
        ],
    )


def rewritten(file: FinishedFile, change: Any, head: dict[str, Any] | None = None) -> tuple[ColdFile, bytes]:
    parquet = pq.ParquetFile(pa.BufferReader(file.data))
    table, metadata = parquet.read(), dict(parquet.metadata.metadata)
    table = pa.Table.from_arrays(change(table), schema=table.schema.remove_metadata())
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, compression="zstd") as writer:
        writer.write_table(table)
        content = json.loads(metadata[METADATA_KEY]) | (head or {})
        writer.add_key_value_metadata({METADATA_KEY: json.dumps(content).encode()})
    data = sink.getvalue().to_pybytes()
    return replace(file.described, hash=content_hash(data), size=len(data)), data


def test_what_goes_in_comes_out() -> None:
    items = sample()
    file = built([items[:4], items[4:]])
    again = read(file.described, file.data)
    assert again == items
    assert [each.loss for each in again if isinstance(each, Gap)] == [
        each.loss for each in items if isinstance(each, Gap)
    ]
    assert file.described.proof.records == 8
    assert file.described.proof.entries == 5
    assert (file.described.proof.first, file.described.proof.last) == (1, lsn(3, 10))


def test_equal_entries_make_equal_files() -> None:
    assert built([sample()]).described == built([sample()]).described


def test_reading_begins_in_the_row_group_of_a_position() -> None:
    items = sample()
    file = built([items[:4], items[4:7], items[7:]])
    assert read(file.described, file.data, start=lsn(3, 5)) == items[4:]
    assert read(file.described, file.data, start=lsn(3, 6)) == items[7:]


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_any_entries(seed: int) -> None:
    rng = random.Random(seed)
    items: list[UnpackedItem] = []
    at = lsn(1, 1)
    for _ in range(rng.randrange(40)):
        if rng.random() < 0.3:
            kind = rng.choice(list(GapKind))
            loss = DataLoss(rng.random() < 0.5, tuple(range(rng.randrange(3)))) if kind is GapKind.DATALOSS else None
            items.append(Gap(kind, LSN(at), LSN(at + rng.randrange(5)), loss))
            at = LSN(items[-1].hi + 1)
        else:
            records = [
                None if rng.random() < 0.1 else rng.randbytes(rng.randrange(30)) for _ in range(rng.randrange(5))
            ]
            keys = None
            if rng.random() < 0.5:
                keys = [None if each is None or rng.random() < 0.3 else rng.randbytes(8) for each in records]
                keys = None if keys.count(None) == len(keys) else keys
            items.append(
                UnpackedEntry(
                    at,
                    rng.randrange(1 << 50),
                    rng.randrange(1 << 10),
                    rng.randrange(1 << 20),
                    rng.randrange(1 << 32),
                    rng.randbytes(rng.randrange(20)),
                    records,
                    keys,
                )
            )
            at = LSN(at + 1)
    rows = encode_rows(items, log=3, name="s", transaction_ids=True)
    assert decode_rows(rows, log=3, what="rows") == items
    assert encode_rows(decode_rows(rows, log=3, what="rows"), log=3, name="s", transaction_ids=True).equals(rows)


def test_transaction_ids_are_a_column() -> None:
    file = built([[entry(1, b"a", b"b", b"c", keys=[(5).to_bytes(8, "big"), None, b"short"], flags=128)]])
    assert pq.read_table(pa.BufferReader(file.data)).column("transaction_id").to_pylist() == [5, None, None]


# What was changed


def test_every_flipped_byte_and_every_cut_is_found() -> None:
    items = sample()
    file = built([items[:4], items[4:]])
    data = file.data.to_pybytes()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        with pytest.raises(ColdCopyError, match="hash of its name") as raised:
            read(file.described, bytes(damaged))
        assert raised.value.status is Status.BADPAYLOAD
    for size in range(0, len(data), 97):
        with pytest.raises(ColdCopyError, match="bytes"):
            read(file.described, data[:size])


def test_bytes_that_are_no_parquet_are_refused_though_their_hash_is_right() -> None:
    file = built([sample()])
    data = file.data.to_pybytes()
    rng = random.Random(1)
    refused = 0
    for _ in range(400):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        described = replace(file.described, hash=content_hash(bytes(damaged)))
        try:
            items = read(described, bytes(damaged))
        except ColdCopyError as error:
            refused += error.status in (Status.BADPAYLOAD, Status.VERSION_MISMATCH)
        else:
            assert items == sample()  # the byte means nothing
    assert refused > 200
    for junk in (b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1", rng.randbytes(500)):
        with pytest.raises(ColdCopyError, match="damaged"):
            read(replace(file.described, hash=content_hash(junk), size=len(junk)), junk)


CHANGES: dict[str, list[Any]] = {
    "payload": [b"forged"],
    "payload_crc": [1],
    "key": [b"forged"],
    "timestamp": [5],
    "lsn": [lsn(3, 3), None],
    "record_type": ["CORRUPT", "EMPTY", "GAP", "other"],
    "entry_records": [2, 0, -1, None, 1000],
    "entry_flags": [1, None],
    "entry_bytes": [1, None],
    "entry_crc": [1, None],
    "entry_extensions": [b"forged", None],
    "entry_digest": [1, None],
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("column", "value"), [(name, value) for name, values in CHANGES.items() for value in values])
def test_each_column_of_an_entry_is_checked(column: str, value: Any, strict: bool) -> None:
    file = built([[entry(lsn(3, 1), b"a"), entry(lsn(3, 2), b"b", keys=[b"k"], flags=128)]], first=lsn(3, 1))
    original = pq.read_table(pa.BufferReader(file.data)).column(column)
    values = [original[0].as_py() if column != "timestamp" else pc.cast(original, pa.int64())[0].as_py(), value]
    with pytest.raises(ColdCopyError, match="damaged"):
        read(*forged(file, **{column: values}), strict=strict)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("gap_type", "HOLE"),
        ("gap_type", "X"),
        ("gap_lo", 2),
        ("gap_hi", 6),
        ("gap_hi", None),
        ("gap_lo", None),
        ("gap_hi", 0),
    ],
)
def test_each_column_of_a_gap_is_checked(column: str, value: Any) -> None:
    file = built([[Gap(GapKind.BRIDGE, LSN(1), LSN(5))]])
    with pytest.raises(ColdCopyError, match="damaged"):
        read(*forged(file, **{column: [value]}), strict=False)


@pytest.mark.parametrize(
    ("column", "value"),
    [("log_id", 8), ("log_group", "x"), ("epoch", 4), ("esn", 9), ("batch_offset", 3), ("transaction_id", 4)],
)
def test_columns_that_only_others_read_are_checked_when_a_copy_is_verified(column: str, value: Any) -> None:
    file = built([[entry(lsn(3, 1), b"a", keys=[bytes(8)], flags=128)]], first=lsn(3, 1))
    with pytest.raises(ColdCopyError, match="follow"):
        read(*forged(file, **{column: [value]}))


def test_a_record_left_out_is_missed() -> None:
    whole = [entry(lsn(3, 1), b"a"), entry(lsn(3, 2), b"b"), entry(lsn(3, 3), b"c")]
    file = built([whole], first=lsn(3, 1))
    described, data = rewritten(file, lambda table: [table.take([0, 2]).column(n) for n in table.column_names])
    with pytest.raises(ColdCopyError, match="follows"):
        read(described, data)
    described, data = rewritten(file, lambda table: [table.slice(0, 2).column(n) for n in table.column_names])
    with pytest.raises(ColdCopyError, match="proof"):
        read(described, data)


def test_another_log_and_another_cluster_are_refused() -> None:
    file = built([[entry(1, b"a")]])
    content = FileContent(file.described, file.data, where="there")
    for cluster, log in ((IDENTITY.cluster, 8), ("x", 7)):
        with pytest.raises(ColdCopyError, match="holds log 7"):
            content.check_identity(cluster, log)


def test_a_later_version_is_refused() -> None:
    file = built([[entry(1, b"a")]])
    described, data = rewritten(file, lambda table: table.columns, {"version": 2})
    with pytest.raises(ColdCopyError, match="version 2, this program knows 1") as raised:
        read(described, data)
    assert raised.value.status is Status.VERSION_MISMATCH


@pytest.mark.parametrize(
    "head", [{"proof": None}, {"proof": {}}, {"log": "x"}, {"row_group_ends": [1, 2]}, {"row_group_ends": None}]
)
def test_metadata_that_make_no_sense_are_refused(head: dict[str, Any]) -> None:
    file = built([[entry(1, b"a")]])
    with pytest.raises(ColdCopyError, match="damaged"):
        read(*rewritten(file, lambda table: table.columns, head))


def test_a_parquet_file_of_somebody_else_is_refused() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), sink)
    data = sink.getvalue()
    file = built([[entry(1, b"a")]])
    with pytest.raises(ColdCopyError, match=r"lack logdevice\.cold"):
        read(replace(file.described, hash=content_hash(data), size=data.size), data)


def test_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match=r"a cold copy needs pyarrow, .* 'logdevice-py\[cold\]'"):
        built([[entry(1, b"a")]])
