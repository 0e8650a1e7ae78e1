"""What a reader delivers: records, gaps, and batches of both that build them on demand."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Final

from logdevice_py.core.ids import LogId, ShardId, format_shard
from logdevice_py.core.lsn import LSN
from logdevice_py.core.units import Timestamp, utc_datetime

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_SHOWN_BYTES: Final = 60
"""Of a key or payload, in the text that stands for a record."""

_SHOWN_GAPS: Final = 3
"""Of a batch, likewise."""


def _shown(content: bytes) -> str:
    if len(content) <= _SHOWN_BYTES:
        return repr(content)
    return f"{content[:_SHOWN_BYTES]!r}... ({len(content):,} bytes)"


class GapKind(enum.Enum):
    """Why a range of LSNs holds no records."""

    BRIDGE = "bridge"  # between the end of an epoch and the first entry of the next one; nothing was ever there
    HOLE = "hole"  # an append that failed left its number unused; nothing was ever acknowledged there
    TRIM = "trim"  # it was trimmed
    DATALOSS = "dataloss"  # records may have been there and cannot be had any more


@dataclass(frozen=True, slots=True, repr=False)
class DataLoss:
    """What speaks for a loss."""

    authoritative: bool
    """Enough shards that lost nothing say that they hold no copy, so there are fewer than there should be, or none. False: too many shards
    cannot tell what they held."""
    shards: tuple[ShardId, ...]
    """Shards that lost data, were removed from the cluster, or cannot read their copies: they may have held what is missing. Ascending."""

    def __str__(self) -> str:
        why = "no copy is left" if self.authoritative else "too many shards cannot tell what they held"
        return why + (f" ({', '.join(map(format_shard, self.shards))})" if self.shards else "")

    def __repr__(self) -> str:
        return f"DataLoss({self})"

    def joined(self, other: DataLoss) -> DataLoss:
        """What speaks for both of two neighbouring losses."""
        shards = tuple(sorted({*self.shards, *other.shards}))
        return DataLoss(self.authoritative and other.authoritative, shards)


@dataclass(frozen=True, slots=True, repr=False)
class Gap:
    """No records in [lo, hi], both inclusive."""

    kind: GapKind
    lo: LSN
    hi: LSN
    loss: DataLoss | None = field(default=None, compare=False)
    """Of a DATALOSS: what this reader found. Another one may find the same loss for other reasons, so gaps are equal without it."""

    def __repr__(self) -> str:
        return f"Gap({self.kind.name}, {self.lo} to {self.hi}{'' if self.loss is None else f': {self.loss}'})"

    def joined(self, following: Gap) -> Gap | None:
        """Both as one gap; None unless they touch and are of one kind."""
        if self.kind is not following.kind or self.hi + 1 != following.lo:
            return None
        loss = self.loss if following.loss is None or self.loss is None else self.loss.joined(following.loss)
        return Gap(self.kind, self.lo, following.hi, loss or following.loss)


@dataclass(slots=True, repr=False)
class Record:
    """One record. (lsn, batch_offset) is its position, unique in the log."""

    log: LogId
    lsn: LSN
    batch_offset: int
    timestamp: Timestamp
    """Given by the sequencer, Unix UTC microseconds."""
    payload: bytes
    key: bytes | None = None
    """As it was appended with."""

    @property
    def datetime(self) -> dt.datetime:
        """The timestamp as a datetime in UTC."""
        return utc_datetime(self.timestamp)

    def __repr__(self) -> str:
        key = "" if self.key is None else f", key={_shown(self.key)}"
        return f"Record(log {self.log}, {self.lsn}+{self.batch_offset}, {self.datetime}{key}, payload={_shown(self.payload)})"


@dataclass(slots=True, repr=False)
class CorruptRecord:
    """A record that was appended damaged: its position is known, its bytes are not.

    The client that appended it sent a payload that does not match its own checksum or its declared number of records. Every copy says the
    same, so no other copy helps; the records around it keep their positions.
    """

    log: LogId
    lsn: LSN
    batch_offset: int
    timestamp: Timestamp

    @property
    def datetime(self) -> dt.datetime:
        """The timestamp as a datetime in UTC."""
        return utc_datetime(self.timestamp)

    def __repr__(self) -> str:
        return f"CorruptRecord(log {self.log}, {self.lsn}+{self.batch_offset}, {self.datetime})"


Item = Record | CorruptRecord | Gap


@dataclass(slots=True)
class RecordRun:
    """Neighbouring records of one entry: `count` batch offsets from `batch_offset` on."""

    lsn: int
    timestamp: Timestamp
    batch_offset: int
    count: int
    keys: list[bytes | None] | None = None
    """One for each record; None: none has a key."""


class RecordBatch:
    """Records and gaps in log order, kept as columns; a `Record` is built only when it is asked for.

    ``len`` is the number of records, corrupt ones included. A batch is true when it holds anything, be it only a gap.
    """

    __slots__ = ("_gaps", "_starts", "log", "log_group", "payloads", "runs")

    def __init__(self, log: LogId) -> None:
        self.log = log
        self.log_group = ""
        """The path of the log's group, where the reader knows it."""
        self.payloads: list[bytes | None] = []
        """One for each record; None: the record is corrupt."""
        self.runs: list[RecordRun] = []
        """Which records lie where, in order."""
        self._gaps: list[tuple[int, Gap]] = []
        self._starts: list[int] = []

    def add_records(self, payloads: list[bytes | None], run: RecordRun) -> None:
        """Append the records of one run."""
        assert len(payloads) == run.count, (len(payloads), run.count)
        self._starts.append(len(self.payloads))
        self.payloads += payloads
        self.runs.append(run)

    def add_gap(self, gap: Gap) -> None:
        """Append a gap; it joins the one before it when they touch and are of one kind."""
        if self._gaps:
            at, last = self._gaps[-1]
            if at == len(self.payloads) and (joined := last.joined(gap)) is not None:
                gap = joined
                self._gaps.pop()
        self._gaps.append((len(self.payloads), gap))

    def __len__(self) -> int:
        return len(self.payloads)

    def __bool__(self) -> bool:
        return bool(self.payloads or self._gaps)

    @property
    def gaps(self) -> list[Gap]:
        """The gaps, in order."""
        return [gap for _, gap in self._gaps]

    def placed_gaps(self) -> list[tuple[int, Gap]]:
        """The gaps, in order, each with the number of records before it."""
        return list(self._gaps)

    @property
    def lsns(self) -> list[int]:
        """The LSN of each record."""
        column: list[int] = []
        for run in self.runs:
            column.extend(repeat(run.lsn, run.count))
        return column

    @property
    def batch_offsets(self) -> list[int]:
        """The batch offset of each record."""
        column: list[int] = []
        for run in self.runs:
            column.extend(range(run.batch_offset, run.batch_offset + run.count))
        return column

    @property
    def timestamps(self) -> list[int]:
        """The timestamp of each record."""
        column: list[int] = []
        for run in self.runs:
            column.extend(repeat(run.timestamp, run.count))
        return column

    @property
    def keys(self) -> list[bytes | None]:
        """The key of each record."""
        column: list[bytes | None] = []
        for run in self.runs:
            column.extend(repeat(None, run.count) if run.keys is None else run.keys)
        return column

    def __iter__(self) -> Iterator[Item]:
        """Records and gaps in log order."""
        gaps = iter(self._gaps)
        at, gap = next(gaps, (-1, None))
        for start, run in zip(self._starts, self.runs, strict=True):
            while gap is not None and at <= start:
                yield gap
                at, gap = next(gaps, (-1, None))
            lsn, timestamp, offset = LSN(run.lsn), run.timestamp, run.batch_offset
            for payload in self.payloads[start : start + run.count]:
                if payload is None:
                    yield CorruptRecord(self.log, lsn, offset, timestamp)
                elif run.keys is not None:
                    yield Record(self.log, lsn, offset, timestamp, payload, run.keys[offset - run.batch_offset])
                else:
                    yield Record(self.log, lsn, offset, timestamp, payload)
                offset += 1
        while gap is not None:
            yield gap
            at, gap = next(gaps, (-1, None))

    def runs_and_gaps(self) -> Iterator[tuple[list[bytes | None], RecordRun] | Gap]:
        """Runs, each with its payloads, and gaps, in log order: what `add_records` and `add_gap` took."""
        gaps = iter(self._gaps)
        at, gap = next(gaps, (-1, None))
        for start, run in zip(self._starts, self.runs, strict=True):
            while gap is not None and at <= start:
                yield gap
                at, gap = next(gaps, (-1, None))
            yield self.payloads[start : start + run.count], run
        while gap is not None:
            yield gap
            at, gap = next(gaps, (-1, None))

    def records(self) -> Iterator[Record]:
        """The records that are not corrupt."""
        return (item for item in self if type(item) is Record)

    # For notebooks

    def __repr__(self) -> str:
        records = f"{len(self):,} record{'' if len(self) == 1 else 's'}"
        where = f", {LSN(self.runs[0].lsn)} to {LSN(self.runs[-1].lsn)}" if self.runs else ""
        gaps = f"; {', '.join(map(repr, self.gaps[:_SHOWN_GAPS]))}" if self._gaps else ""
        more = f" and {len(self._gaps) - _SHOWN_GAPS} more" if len(self._gaps) > _SHOWN_GAPS else ""
        return f"<RecordBatch of log {self.log}: {records}{where}{gaps}{more}>"

    def to_arrow(self, *, include_gaps: bool = False) -> pa.Table:
        """As an Arrow table with the columns of the Spark source. A corrupt record has a null payload.

        Args:
            include_gaps: gaps are rows too, as with the source's option includeGaps: column `record_type` tells which rows are records.

        Raises:
            ImportError: pyarrow is not installed.
        """
        try:
            from client.read.arrow_columns import batch_table
        except ModuleNotFoundError as error:
            raise _not_installed("to_arrow", "pyarrow", error) from None
        return batch_table(self, include_gaps=include_gaps)

    def to_pandas(self, *, include_gaps: bool = False) -> pd.DataFrame:
        """As a data frame; see `to_arrow`.

        Raises:
            ImportError: pyarrow or pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: F401 - Arrow's own error does not say how to install it
        except ModuleNotFoundError as error:
            raise _not_installed("to_pandas", "pandas", error) from None
        return self.to_arrow(include_gaps=include_gaps).to_pandas()


def _not_installed(method: str, package: str, error: ModuleNotFoundError) -> ImportError:
    if error.name is None or error.name.partition(".")[0] != package:
        return error  # another one is missing, which is not for us to explain
    text = f"{method} needs {package}, which is not installed: pip install 'logdevice-py[notebook]'"
    return ModuleNotFoundError(text, name=package)
