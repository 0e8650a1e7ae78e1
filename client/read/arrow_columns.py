"""From what a reader delivers to Arrow: a few calls a batch, none a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol

from client.notebook_packages import notebook_package
from client.read.items import Gap, GapKind, RecordRun
from client.read.proof import Proof
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import ESN_MAX, LSN
from logdevice_py.core.status import LogDeviceError, Status

if TYPE_CHECKING:
    import pyarrow as pa

RECORD: Final = "RECORD"
CORRUPT: Final = "CORRUPT"
GAP: Final = "GAP"
PROOF: Final = "PROOF"
GAP_TYPES: Final = {kind: kind.name for kind in GapKind}
_NULL_IN_RECORDS: Final = frozenset({"key", "payload"})
_NEVER_NULL: Final = frozenset({"log_id", "log_group", "record_type"})


class Columns(Protocol):
    """What is taken of a batch."""

    log: LogId
    log_group: str
    payloads: list[bytes | None]
    runs: list[RecordRun]

    @property
    def keys(self) -> list[bytes | None]:
        """The key of each record."""

    def __len__(self) -> int:
        """How many records there are."""

    def placed_gaps(self) -> list[tuple[int, Gap]]:
        """The gaps, in order, each with the number of records before it."""


@cache
def _pyarrow() -> Any:
    """The package with its functions: imported when it is needed, since readers do without it."""
    notebook_package("pyarrow.compute", "to_arrow")
    return notebook_package("pyarrow", "to_arrow")


def batch_schema(*, include_gaps: bool) -> pa.Schema:
    """The schema of the Spark source, with its option includeGaps or without."""
    pa = _pyarrow()
    columns = {
        "log_id": pa.int64(),
        "log_group": pa.string(),
        "lsn": pa.int64(),
        "epoch": pa.int32(),
        "esn": pa.int64(),
        "batch_offset": pa.int32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "key": pa.binary(),
        "payload": pa.binary(),
    }
    if include_gaps:
        columns |= {"record_type": pa.string(), "gap_type": pa.string(), "gap_lo": pa.int64(), "gap_hi": pa.int64()}
    null = columns.keys() - _NEVER_NULL if include_gaps else _NULL_IN_RECORDS
    return pa.schema([pa.field(name, kind, nullable=name in null) for name, kind in columns.items()])


def batch_table(batch: Columns, *, include_gaps: bool) -> pa.Table:
    """A batch as a table; with gaps as rows among the records, in log order."""
    pa = _pyarrow()
    schema = batch_schema(include_gaps=include_gaps)
    columns = ArrowColumns(schema, batch.log, batch.log_group)
    records = columns.records(batch)
    if not include_gaps:
        return pa.Table.from_batches([records], schema)
    parts, begin = [], 0
    for at, gap in batch.placed_gaps():
        parts += [records.slice(begin, at - begin), columns.gaps([gap])]
        begin = at
    return pa.Table.from_batches([*parts, records.slice(begin)], schema)


class ArrowColumns:
    """Makes the Arrow batches of one log. All have one schema, made once."""

    def __init__(
        self, schema: Any, log: int, group: str, further: Mapping[str, Callable[[Columns], Any]] | None = None
    ) -> None:
        """
        Args:
            schema: the Arrow schema; its columns are some of the source's.
            log: the id of the log.
            group: the path of its group.
            further: makes columns that logs do not have, by name; called for the records of each batch if the schema has the column.
        """
        self._further = further or {}
        self._schema = schema
        self._log = log
        self._group = group

    def _batch(self, rows: int, columns: dict[str, Callable[[], Any]]) -> Any:
        """The columns that the schema has; those that are not given are null."""
        pa = _pyarrow()
        every: dict[str, Callable[[], Any]] = {
            "log_id": lambda: pa.repeat(pa.scalar(self._log, pa.int64()), rows),
            "log_group": lambda: pa.repeat(pa.scalar(self._group, pa.string()), rows),
            **columns,
        }
        arrays = [every[field.name]() if field.name in every else pa.nulls(rows, field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def records(self, batch: Columns) -> Any:
        """The records of a batch; corrupt ones have a null payload."""
        pa = _pyarrow()
        runs = batch.runs
        ends = pa.array(accumulate([run.count for run in runs]), pa.int32())

        def spread(values: list[int], kind: Any) -> Any:
            return pa.compute.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind)))

        @cache
        def lsn() -> Any:
            return spread([run.lsn for run in runs], pa.int64())

        def batch_offset() -> Any:
            starts = accumulate([run.count for run in runs], initial=0)
            behind = spread([start - run.batch_offset for start, run in zip(starts, runs, strict=False)], pa.int64())
            return pa.compute.subtract(pa.array(range(len(batch)), pa.int64()), behind).cast(pa.int32())

        @cache
        def payload() -> Any:
            return pa.array(batch.payloads, pa.binary())

        def shown_payload() -> Any:
            if self._schema.field("payload").type != pa.string():
                return payload()
            try:
                return payload().cast(pa.string())
            except pa.ArrowInvalid:
                raise _no_text(batch) from None

        def key() -> Any:
            keyed = [run for run in runs if run.keys is not None]
            if not keyed:
                return pa.nulls(len(batch), pa.binary())
            keys = pa.array(batch.keys, pa.binary())
            # nothing of a corrupt record is to be believed
            return pa.compute.if_else(pa.compute.is_valid(payload()), keys, None) if payload().null_count else keys

        def record_type() -> Any:
            return pa.compute.if_else(pa.compute.is_valid(payload()), pa.scalar(RECORD), pa.scalar(CORRUPT))

        return self._batch(
            len(batch),
            {
                "lsn": lsn,
                "epoch": lambda: pa.compute.shift_right(lsn(), 32).cast(pa.int32()),
                "esn": lambda: pa.compute.bit_wise_and(lsn(), int(ESN_MAX)),
                "batch_offset": batch_offset,
                "timestamp": lambda: spread([run.timestamp for run in runs], pa.int64()).cast(
                    pa.timestamp("us", tz="UTC")
                ),
                "key": key,
                "payload": shown_payload,
                "record_type": record_type,
                **{name: partial(column, batch) for name, column in self._further.items()},
            },
        )

    def gaps(self, gaps: Sequence[Gap]) -> Any:
        """A row for each gap."""
        pa = _pyarrow()
        return self._batch(
            len(gaps),
            {
                "record_type": lambda: pa.repeat(pa.scalar(GAP), len(gaps)),
                "gap_type": lambda: pa.array([GAP_TYPES[gap.kind] for gap in gaps], pa.string()),
                "gap_lo": lambda: pa.array([int(gap.lo) for gap in gaps], pa.int64()),
                "gap_hi": lambda: pa.array([int(gap.hi) for gap in gaps], pa.int64()),
            },
        )

    def proof(self, proof: Proof) -> Any:
        """One row for what a range held."""
        pa = _pyarrow()
        value = {
            "first": int(proof.first),
            "last": int(proof.last),
            "entries": proof.entries,
            "records": proof.records,
            "bytes": proof.bytes,
            "checksum": signed(proof.checksum),
            "gaps": [
                {"gap_type": GAP_TYPES[gap.kind], "gap_lo": int(gap.lo), "gap_hi": int(gap.hi)} for gap in proof.gaps
            ],
        }
        columns: dict[str, Callable[[], Any]] = {"record_type": lambda: pa.array([PROOF], pa.string())}
        if "proof" in self._schema.names:
            columns["proof"] = lambda: pa.array([value], self._schema.field("proof").type)
        return self._batch(1, columns)


def _no_text(batch: Columns) -> LogDeviceError:
    """Which record it is that is not UTF-8."""
    start = 0
    for run in batch.runs:
        for index, payload in enumerate(batch.payloads[start : start + run.count]):
            try:
                (payload or b"").decode()
            except UnicodeDecodeError as error:
                return LogDeviceError(
                    Status.INVALID_PARAM,
                    f"log {batch.log}: record {run.batch_offset + index} of {LSN(run.lsn)} is not UTF-8: {error.reason} at byte {error.start}; "
                    "read it as binary, and cast it",
                )
        start += run.count
    raise AssertionError("every payload is UTF-8")


def signed(checksum: int) -> int:
    """64 bits as a number that a BIGINT holds."""
    return checksum - (1 << 64) if checksum >> 63 else checksum


def unsigned(value: int) -> int:
    """The 64 bits of a BIGINT."""
    return value & ((1 << 64) - 1)
