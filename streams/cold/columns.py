"""Entries and gaps as rows of a cold file, and back.

A record is a row, in log order, with its entry's columns in the first row of each entry. An entry without records is a row of type EMPTY, a
gap one of type GAP. What reads Parquet reads all of it: only rows of type RECORD have a payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from google_crc32c import value as crc32c

from client.read.items import DataLoss, Gap, GapKind
from logdevice_py.core.ids import ShardId
from logdevice_py.core.lsn import ESN_MAX, LSN
from streams.cold.arrow_package import arrow
from streams.cold.entries import UnpackedEntry, UnpackedItem
from streams.cold.errors import damaged

RECORD: Final = "RECORD"
CORRUPT: Final = "CORRUPT"
EMPTY: Final = "EMPTY"
GAP: Final = "GAP"
_TRANSACTION_ID_BYTES: Final = 8
NEEDED: Final = (
    "record_type",
    "lsn",
    "timestamp",
    "key",
    "payload",
    "payload_crc",
    "entry_records",
    "entry_flags",
    "entry_bytes",
    "entry_crc",
    "entry_extensions",
    "entry_digest",
    "gap_type",
    "gap_lo",
    "gap_hi",
    "gap_authoritative",
    "gap_shards",
)
"""What reading takes; the other columns follow from these and are there for those who read without us."""


def schema(metadata: dict[bytes, bytes] | None = None) -> Any:
    """Of a cold file. The first columns are those of the Spark source."""
    pa = arrow()
    columns = {
        "log_id": pa.int64(),
        "log_group": pa.string(),
        "lsn": pa.int64(),
        "epoch": pa.int32(),
        "esn": pa.int64(),
        "batch_offset": pa.int32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "key": pa.large_binary(),
        "payload": pa.large_binary(),
        "record_type": pa.string(),
        "gap_type": pa.string(),
        "gap_lo": pa.int64(),
        "gap_hi": pa.int64(),
        "gap_authoritative": pa.bool_(),
        "gap_shards": pa.list_(pa.int64()),
        "transaction_id": pa.int64(),
        "payload_crc": pa.int64(),
        "entry_records": pa.int64(),
        "entry_flags": pa.int64(),
        "entry_bytes": pa.int64(),
        "entry_crc": pa.int64(),
        "entry_extensions": pa.large_binary(),
        "entry_digest": pa.int64(),
    }
    never = {"log_id", "log_group", "record_type"}
    return pa.schema([pa.field(name, kind, nullable=name not in never) for name, kind in columns.items()], metadata)


def encode_rows(
    items: Sequence[UnpackedItem], *, log: int, name: str, transaction_ids: bool, shape: Any | None = None
) -> Any:
    """An Arrow batch of these entries and gaps.

    Args:
        name: of the stream, for column `log_group`.
        transaction_ids: keys of 8 bytes are transaction ids.
        shape: the schema.
    """
    pa = arrow()
    compute = arrow("compute")
    rows = _Rows()
    for item in items:
        if type(item) is UnpackedEntry:
            rows.add_entry(log, item)
        else:
            assert type(item) is Gap
            rows.add_gap(item)
    count = len(rows.payloads)
    ends = pa.array(rows.ends, pa.int32())

    def spread(values: list[Any], kind: Any) -> Any:
        """A value for each item, for all of its rows."""
        if not values:
            return pa.nulls(0, kind)
        return compute.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind)))

    def at_heads(values: dict[int, Any], kind: Any) -> Any:
        """Values of a few rows."""
        if not values:
            return pa.nulls(count, kind)
        column: list[Any] = [None] * count
        for row, value in values.items():
            column[row] = value
        return pa.array(column, kind)

    lsn = spread(rows.lsns, pa.int64())
    keys = rows.keys
    transactions = pa.nulls(count, pa.int64())
    if transaction_ids and any(rows.keys):
        transactions = pa.array(map(transaction_of, keys), pa.int64())
    columns = {
        "log_id": pa.repeat(pa.scalar(log, pa.int64()), count),
        "log_group": pa.repeat(pa.scalar(name, pa.string()), count),
        "lsn": lsn,
        "epoch": compute.shift_right(lsn, 32).cast(pa.int32()),
        "esn": compute.bit_wise_and(lsn, int(ESN_MAX)),
        "batch_offset": pa.array(rows.offsets, pa.int32()),
        "timestamp": spread(rows.timestamps, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        "key": pa.array(keys, pa.large_binary()),
        "payload": pa.array(rows.payloads, pa.large_binary()),
        "record_type": pa.array(rows.types, pa.string()),
        "gap_type": at_heads({row: gap.kind.name for row, gap in rows.gaps.items()}, pa.string()),
        "gap_lo": at_heads({row: int(gap.lo) for row, gap in rows.gaps.items()}, pa.int64()),
        "gap_hi": at_heads({row: int(gap.hi) for row, gap in rows.gaps.items()}, pa.int64()),
        "gap_authoritative": at_heads(
            {row: gap.loss.authoritative for row, gap in rows.gaps.items() if gap.loss is not None}, pa.bool_()
        ),
        "gap_shards": at_heads(
            {row: list(map(int, gap.loss.shards)) for row, gap in rows.gaps.items() if gap.loss is not None},
            pa.list_(pa.int64()),
        ),
        "transaction_id": transactions,
        "payload_crc": pa.array(rows.checksums, pa.int64()),
        "entry_records": at_heads({row: len(entry.records) for row, entry in rows.entries.items()}, pa.int64()),
        "entry_flags": at_heads({row: entry.flags for row, entry in rows.entries.items()}, pa.int64()),
        "entry_bytes": at_heads({row: entry.size for row, entry in rows.entries.items()}, pa.int64()),
        "entry_crc": at_heads({row: entry.crc for row, entry in rows.entries.items()}, pa.int64()),
        "entry_extensions": at_heads({row: entry.extensions for row, entry in rows.entries.items()}, pa.large_binary()),
        "entry_digest": at_heads(rows.digests, pa.int64()),
    }
    shape = shape or schema()
    return pa.RecordBatch.from_arrays([columns[field.name] for field in shape], schema=shape)


def transaction_of(key: bytes | None) -> int | None:
    """The transaction id that a key is, if it is one."""
    if key is None or len(key) != _TRANSACTION_ID_BYTES or key[0] & 0x80:
        return None
    return int.from_bytes(key, "big")


class _Rows:
    """Columns as lists, while they grow."""

    def __init__(self) -> None:
        self.payloads: list[bytes | None] = []
        self.checksums: list[int | None] = []
        self.keys: list[bytes | None] = []
        self.offsets: list[int | None] = []
        self.types: list[str] = []
        # a value for each item
        self.ends: list[int] = []
        self.lsns: list[int | None] = []
        self.timestamps: list[int | None] = []
        # by the first row of the item
        self.entries: dict[int, UnpackedEntry] = {}
        self.digests: dict[int, int] = {}
        self.gaps: dict[int, Gap] = {}

    def add_entry(self, log: int, entry: UnpackedEntry) -> None:
        row, records = len(self.payloads), entry.records
        checksums = entry.record_checksums()
        self.entries[row] = entry
        self.digests[row] = entry.digest(log, checksums)
        if records:
            self.payloads += records
            self.checksums += checksums
            self.keys += entry.keys or [None] * len(records)
            self.offsets += range(len(records))
            if None in records:
                self.types += [CORRUPT if record is None else RECORD for record in records]
            else:
                self.types += [RECORD] * len(records)
        else:
            self._add_bare(EMPTY)
        self._end(entry.lsn, entry.timestamp)

    def add_gap(self, gap: Gap) -> None:
        self.gaps[len(self.payloads)] = gap
        self._add_bare(GAP)
        self._end(None, None)

    def _add_bare(self, kind: str) -> None:
        for column in (self.payloads, self.checksums, self.keys, self.offsets):
            column.append(None)
        self.types.append(kind)

    def _end(self, lsn: int | None, timestamp: int | None) -> None:
        self.ends.append(len(self.payloads))
        self.lsns.append(lsn)
        self.timestamps.append(timestamp)


def decode_rows(table: Any, *, log: int, what: str) -> list[UnpackedItem]:
    """The entries and gaps of some rows, each record and each entry compared with its checksum.

    Args:
        table: Arrow; it has the columns of `NEEDED`.
        what: whose rows they are, for errors.

    Raises:
        ColdCopyError: BADPAYLOAD.
    """
    pa, compute = arrow(), arrow("compute")
    count = table.num_rows

    def column(name: str) -> Any:
        return table.column(name).combine_chunks() if isinstance(table, pa.Table) else table.column(name)

    is_gap = compute.equal(column("record_type"), GAP)
    is_head = compute.or_(is_gap, compute.is_valid(column("entry_records")))
    heads: list[int] = compute.indices_nonzero(is_head).to_pylist()
    at = pa.array(heads, pa.int64())

    def at_heads(name: str) -> list[Any]:
        values = column(name).take(at)
        if name == "timestamp":
            values = values.cast(pa.int64())
        taken: list[Any] = values.to_pylist()
        return taken

    payloads: list[bytes | None] = column("payload").to_pylist()
    said: list[int | None] = column("payload_crc").to_pylist()
    found = (
        list(map(crc32c, payloads))
        if None not in payloads
        else [None if each is None else crc32c(each) for each in payloads]
    )
    keys: list[bytes | None] | None = None
    if column("key").null_count != count:
        keys = column("key").to_pylist()
    types: list[str] = column("record_type").to_pylist()
    heading = [at_heads(name) for name in NEEDED if name not in ("payload", "payload_crc", "key")]
    names = [name for name in NEEDED if name not in ("payload", "payload_crc", "key")]
    items: list[UnpackedItem] = []
    next_row = 0
    for row, values in zip(heads, zip(*heading, strict=True), strict=True):
        if row != next_row:
            raise damaged(what, f"row {next_row} belongs to no entry")
        fields = dict(zip(names, values, strict=True))
        if types[row] == GAP:
            items.append(_gap(fields, what))
            next_row += 1
            continue
        records = fields["entry_records"]
        needed = [
            fields[name]
            for name in (
                "lsn",
                "timestamp",
                "entry_flags",
                "entry_bytes",
                "entry_crc",
                "entry_extensions",
                "entry_digest",
            )
        ]
        next_row = row + max(records, 1)
        if records < 0 or next_row > count or None in needed:
            raise damaged(what, f"the entry of row {row} is not whole")
        lsn, timestamp, flags, size, crc, extensions, digest = needed
        part = payloads[row : row + records]
        entry_keys = None if keys is None else keys[row : row + records]
        if entry_keys is not None and not any(key is not None for key in entry_keys):
            entry_keys = None
        entry = UnpackedEntry(lsn, timestamp, flags, size, crc, extensions, part, entry_keys)
        if found[row : row + records] != said[row : row + records]:
            raise damaged(what, f"a record of {LSN(lsn)} does not have its checksum")
        expected = [EMPTY] if not records else [CORRUPT if record is None else RECORD for record in part]
        if types[row:next_row] != expected:
            raise damaged(what, f"rows of {LSN(lsn)} are of the wrong type")
        if entry.digest(log, said[row : row + records]) != digest:
            raise damaged(what, f"what stands beside the records of {LSN(lsn)} does not have its checksum")
        items.append(entry)
    if next_row != count:
        raise damaged(what, f"row {next_row} belongs to no entry")
    return items


def _gap(fields: dict[str, Any], what: str) -> Gap:
    kind, lo, hi = fields["gap_type"], fields["gap_lo"], fields["gap_hi"]
    if kind not in GapKind.__members__ or lo is None or hi is None or lo > hi:
        raise damaged(what, f"{kind} from {lo} to {hi} is no gap")
    loss = None
    if fields["gap_authoritative"] is not None:
        shards: Iterable[int] = fields["gap_shards"] or ()
        loss = DataLoss(fields["gap_authoritative"], tuple(map(ShardId, shards)))
    return Gap(GapKind[kind], LSN(lo), LSN(hi), loss)
