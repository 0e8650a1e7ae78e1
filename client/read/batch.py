"""What a reader hands out at once: records and gaps in columns, which become objects, an Arrow table or a data frame on demand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NoReturn

from client.notebook_packages import data_frame
from client.public_names import PublicNames
from client.read.arrow_columns import batch_table
from client.read.items import CorruptRecord, Gap, Item, Record, RecordRun
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_SHOWN_GAPS: Final = 3
"""Of a batch, in the text that stands for it."""


class RecordBatch(PublicNames):
    """Records and gaps in log order, kept as columns; a `Record` is built only when it is asked for.

    ``len`` is the number of records, corrupt ones included. A batch is true when it holds anything, be it only a gap.
    """

    __slots__ = ("_gaps", "_starts", "log", "log_group", "payloads", "runs")
    INTERNAL_NAMES = frozenset({"add_gap", "add_records", "placed_gaps", "runs", "runs_and_gaps"})

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

    def __getitem__(self, index: Any) -> NoReturn:
        """There is no telling what a place means: gaps lie between the records."""
        raise TypeError(
            "a batch has no items by number: batch.payloads[0] is the payload of its first record, list(batch.records()) are its records, "
            "list(batch) its records and gaps"
        )

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
        return batch_table(self, include_gaps=include_gaps)

    def to_pandas(self, *, include_gaps: bool = False) -> pd.DataFrame:
        """As a data frame; see `to_arrow`. With gaps integers are of pandas' types `Int64` and `Int32`, because rows of gaps have no LSN.

        Raises:
            ImportError: pyarrow or pandas is not installed.
        """
        return data_frame(lambda: self.to_arrow(include_gaps=include_gaps))
