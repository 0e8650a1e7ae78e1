"""Entries and gaps as rows of a cold file, and back.

A record is a row, in log order, with its entry's columns in the first row of each entry. An entry without records is a row of type EMPTY, a
gap one of type GAP. What reads Parquet reads all of it: only rows of type RECORD have a payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
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

_OF_ENTRIES: Final = (
    "lsn",
    "timestamp",
    "entry_flags",
    "entry_bytes",
    "entry_crc",
    "entry_extensions",
    "entry_digest",
)
_HEADING: Final = tuple(name for name in NEEDED if name not in ("payload", "payload_crc", "key"))


def schema() -> Any:
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
    return pa.schema([pa.field(name, kind, nullable=name not in never) for name, kind in columns.items()])


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
    rows = _Rows()
    for item in items:
        if type(item) is UnpackedEntry:
            rows.add_entry(log, item)
        else:
            assert type(item) is Gap
            rows.add_gap(item)
    places = _Places(rows.ends)
    entries, gaps, digests = rows.entries, rows.gaps, rows.digests
    losses = [None if gap is None else gap.loss for gap in gaps]

    def of_entries(value: Callable[[UnpackedEntry], Any], kind: Any) -> Any:
        """A value of each entry, in its first row."""
        return places.at_heads(pa.array([None if each is None else value(each) for each in entries], kind))

    def of_gaps(value: Callable[[Gap], Any], kind: Any) -> Any:
        return places.at_heads(pa.array([None if each is None else value(each) for each in gaps], kind))

    payload = pa.array(rows.payloads, pa.large_binary())
    key = pa.array(rows.keys, pa.large_binary()) if rows.has_keys else pa.nulls(places.rows, pa.large_binary())
    lsn = places.spread(pa.array([None if each is None else each.lsn for each in entries], pa.int64()))
    stamps = places.spread(pa.array([None if each is None else each.timestamp for each in entries], pa.int64()))
    heads = {
        "lsn": lsn,
        "timestamp": stamps.cast(pa.timestamp("us", tz="UTC")),
        "key": key,
        "payload": payload,
        "record_type": places.types(payload, entries),
        "gap_type": of_gaps(lambda gap: gap.kind.name, pa.string()),
        "gap_lo": of_gaps(lambda gap: int(gap.lo), pa.int64()),
        "gap_hi": of_gaps(lambda gap: int(gap.hi), pa.int64()),
        "gap_authoritative": places.at_heads(
            pa.array([None if loss is None else loss.authoritative for loss in losses], pa.bool_())
        ),
        "gap_shards": places.at_heads(
            pa.array([None if loss is None else list(map(int, loss.shards)) for loss in losses], pa.list_(pa.int64()))
        ),
        "payload_crc": pa.array(rows.checksums, pa.int64()),
        "entry_records": of_entries(lambda entry: len(entry.records), pa.int64()),
        "entry_flags": of_entries(lambda entry: entry.flags, pa.int64()),
        "entry_bytes": of_entries(lambda entry: entry.size, pa.int64()),
        "entry_crc": of_entries(lambda entry: entry.crc, pa.int64()),
        "entry_extensions": of_entries(lambda entry: entry.extensions, pa.large_binary()),
        "entry_digest": places.at_heads(pa.array(digests, pa.int64())),
    }
    columns = heads | _following(places, entries, lsn, rows.keys, log=log, name=name, transaction_ids=transaction_ids)
    shape = shape or schema()
    return pa.RecordBatch.from_arrays([columns[field.name] for field in shape], schema=shape)


def _following(
    places: _Places,
    entries: Sequence[UnpackedEntry | None],
    lsn: Any,
    keys: Sequence[bytes | None],
    *,
    log: int,
    name: str,
    transaction_ids: bool,
) -> dict[str, Any]:
    """The columns that follow from others."""
    pa, compute = arrow(), arrow("compute")
    transactions = pa.nulls(places.rows, pa.int64())
    if transaction_ids and keys:
        transactions = pa.array(map(transaction_of, keys), pa.int64())
    return {
        "log_id": pa.repeat(pa.scalar(log, pa.int64()), places.rows),
        "log_group": pa.repeat(pa.scalar(name, pa.string()), places.rows),
        "epoch": compute.shift_right(lsn, 32).cast(pa.int32()),
        "esn": compute.bit_wise_and(lsn, int(ESN_MAX)),
        "batch_offset": places.offsets(entries),
        "transaction_id": transactions,
    }


def check_following(
    table: Any, items: Sequence[UnpackedItem], *, log: int, name: str, transaction_ids: bool, what: str
) -> None:
    """Compare the columns that only others read with what follows from the entries and gaps in the same rows.

    Raises:
        ColdCopyError: BADPAYLOAD.
    """
    pa = arrow()
    entries = [item if type(item) is UnpackedEntry else None for item in items]
    places = _Places(list(accumulate(max(1, 1 if entry is None else len(entry.records)) for entry in entries)))
    lsn = places.spread(pa.array([None if each is None else each.lsn for each in entries], pa.int64()))
    stamps = places.spread(pa.array([None if each is None else each.timestamp for each in entries], pa.int64()))
    keys: list[bytes | None] = []
    if table.column("key").null_count != table.num_rows:
        keys = table.column("key").to_pylist()
    expected = {"lsn": lsn, "timestamp": stamps.cast(pa.timestamp("us", tz="UTC"))}
    expected |= _following(places, entries, lsn, keys, log=log, name=name, transaction_ids=transaction_ids)
    for column, values in expected.items():
        if not pa.chunked_array([values]).equals(table.column(column)):
            raise damaged(what, f"column {column} does not have the values that follow from others")


class _Places:
    """Which rows an item has: a row for each record of an entry, one for an entry without records, and for a gap."""

    def __init__(self, ends: list[int]) -> None:
        """
        Args:
            ends: for each item, the row behind its last.
        """
        pa, compute = arrow(), arrow("compute")
        self.rows = ends[-1] if ends else 0
        self._ends = pa.array(ends, pa.int32())
        numbers = pa.arange(0, self.rows)
        self._offsets = compute.subtract(numbers, self.spread(pa.array([0, *ends[:-1]] if ends else [], pa.int64())))
        items = self.spread(pa.arange(0, len(ends)))
        self._heads = compute.if_else(compute.equal(self._offsets, 0), items, pa.scalar(None, pa.int64()))

    def spread(self, values: Any) -> Any:
        """A value of each item, in all of its rows."""
        pa = arrow()
        if not len(values):
            return values
        return arrow("compute").run_end_decode(pa.RunEndEncodedArray.from_arrays(self._ends, values))

    def at_heads(self, values: Any) -> Any:
        """A value of each item, in its first row; null in the others."""
        if values.null_count == len(values):
            return arrow().nulls(self.rows, values.type)
        return values.take(self._heads)

    def types(self, payload: Any, entries: Sequence[UnpackedEntry | None]) -> Any:
        """Of each row."""
        pa, compute = arrow(), arrow("compute")
        without = [GAP if entry is None else CORRUPT if entry.records else EMPTY for entry in entries]
        return compute.if_else(
            compute.is_valid(payload), pa.scalar(RECORD, pa.string()), self.spread(pa.array(without, pa.string()))
        )

    def offsets(self, entries: Sequence[UnpackedEntry | None]) -> Any:
        """The number of each record within its entry."""
        pa, compute = arrow(), arrow("compute")
        has = self.spread(pa.array([entry is not None and bool(entry.records) for entry in entries], pa.bool_()))
        return compute.if_else(has, self._offsets, pa.scalar(None, pa.int64())).cast(pa.int32())


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
        """Empty while no record has one."""
        # one for each item
        self.ends: list[int] = []
        self.entries: list[UnpackedEntry | None] = []
        self.digests: list[int | None] = []
        self.gaps: list[Gap | None] = []

    @property
    def has_keys(self) -> bool:
        """Some record has a key."""
        return bool(self.keys)

    def add_entry(self, log: int, entry: UnpackedEntry) -> None:
        checksums = entry.record_checksums()
        digest = entry.digest(log, checksums)
        if entry.keys is not None and not self.keys:
            self.keys += [None] * len(self.payloads)
        count = len(self.payloads)
        self.payloads += entry.records or [None]
        self.checksums += checksums or [None]
        if entry.keys is not None:
            self.keys += entry.keys
        elif self.keys:
            self.keys += [None] * (len(self.payloads) - count)
        self._end(entry, digest, None)

    def add_gap(self, gap: Gap) -> None:
        self.payloads.append(None)
        self.checksums.append(None)
        if self.keys:
            self.keys.append(None)
        self._end(None, None, gap)

    def _end(self, entry: UnpackedEntry | None, digest: int | None, gap: Gap | None) -> None:
        self.ends.append(len(self.payloads))
        self.entries.append(entry)
        self.digests.append(digest)
        self.gaps.append(gap)


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

    payload = column("payload")
    payloads: list[bytes | None] = payload.to_pylist()
    if payload.null_count:
        checksums: list[int | None] = [None if each is None else crc32c(each) for each in payloads]
    else:
        checksums = list(map(crc32c, payloads))
    if not pa.array(checksums, pa.int64()).equals(column("payload_crc")):
        raise damaged(what, "a record does not have its checksum")
    keys: list[bytes | None] | None = None
    if column("key").null_count != count:
        keys = column("key").to_pylist()
    heading = [at_heads(name) for name in _HEADING]
    items: list[UnpackedItem] = []
    entries: list[UnpackedEntry | None] = []
    ends: list[int] = []
    next_row = 0
    for row, values in zip(heads, zip(*heading, strict=True), strict=True):
        if row != next_row:
            raise damaged(what, f"row {next_row} belongs to no entry")
        fields = dict(zip(_HEADING, values, strict=True))
        if fields["record_type"] == GAP:
            items.append(_gap(fields, what))
            entries.append(None)
            next_row += 1
            ends.append(next_row)
            continue
        records = fields["entry_records"]
        needed = [fields[name] for name in _OF_ENTRIES]
        next_row = row + max(records, 1)
        if records < 0 or next_row > count or None in needed:
            raise damaged(what, f"the entry of row {row} is not whole")
        entry_keys = None if keys is None else keys[row : row + records]
        if entry_keys is not None and entry_keys.count(None) == len(entry_keys):
            entry_keys = None
        lsn, timestamp, flags, size, crc, extensions, digest = needed
        entry = UnpackedEntry(lsn, timestamp, flags, size, crc, extensions, payloads[row : row + records], entry_keys)
        if entry.digest(log, checksums[row : row + records]) != digest:
            raise damaged(what, f"what stands beside the records of {LSN(lsn)} does not have its checksum")
        items.append(entry)
        entries.append(entry)
        ends.append(next_row)
    if next_row != count:
        raise damaged(what, f"row {next_row} belongs to no entry")
    if not _Places(ends).types(payload, entries).equals(column("record_type")):
        raise damaged(what, "a row is of the wrong type")
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
