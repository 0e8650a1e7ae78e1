"""One task: a range of one log, read to its last LSN and proven to be complete."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from client.client import Client
from client.encryption import EncryptionKeys
from client.read.arrow_columns import ArrowColumns
from client.read.batch import RecordBatch
from client.read.items import Gap, GapKind
from client.read.proof import Proof
from client.reader import Reader
from client.spark.access import NO_ACCESS, ClusterAccess
from client.spark.connection import client_for
from client.spark.options import OnGap
from client.spark.ranges import Cut
from logdevice_py.core.lsn import LSN, format_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros

_RECORDS_FIRST: Final = 4_096
_RECORDS_MAX: Final = 65_536
_BYTES_AT_ONCE: Final = 16 << 20
log_ = logging.getLogger("logdevice.spark")


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What a task needs to know besides its range."""

    cluster: str
    """The text of the cluster file."""
    on_gap: OnGap
    include_gaps: bool
    include_proof: bool
    read_timeout_us: Micros
    access: ClusterAccess = NO_ACCESS


class TaskReader(Protocol):
    """Reads the range of a task."""

    @property
    def next_lsn(self) -> LSN:
        """What was not handed out yet."""

    async def read(self, max_records: int) -> RecordBatch:
        """Up to so many records, and the gaps between them; nothing at the end."""

    def proof(self) -> Proof:
        """Of what was handed out."""

    def waiting_for(self) -> str:
        """What it waits for."""

    async def close(self) -> None:
        """Stop reading."""


OpenRange = Callable[[Client, Cut, EncryptionKeys | None], Awaitable[TaskReader]]
"""Makes the reader of a range."""


@dataclass(slots=True)
class _Missing:
    """LSNs passed over, by kind."""

    lsns: dict[GapKind, int] = field(default_factory=dict)

    def add(self, gap: Gap) -> None:
        self.lsns[gap.kind] = self.lsns.get(gap.kind, 0) + gap.hi - gap.lo + 1


def range_text(cut: Cut) -> str:
    """A range for messages."""
    return f"log {cut.log} ({cut.group}), {format_lsn(cut.lo)} to {format_lsn(cut.hi)}"


def read_range(
    cut: Cut,
    schema: Any,
    options: TaskOptions,
    columns: ArrowColumns | None = None,
    chosen: Callable[[RecordBatch], RecordBatch] | None = None,
    opened: OpenRange | None = None,
) -> Iterator[Any]:
    """The Arrow batches of a range, in log order.

    Args:
        cut: the range.
        schema: of the Arrow batches.
        options: of the task.
        columns: make them; None: those of a log.
        chosen: the records of a batch that become rows; None: all of them.
        opened: makes the reader of the range; None: one of the log.

    It ends only when every LSN of the range was a record or an explained gap; otherwise it raises.

    Raises:
        LogDeviceError: DATALOSS (lost, with `OnGap.FAIL_ON_LOSS`), NOTFOUND (trimmed before it was read, with the same; or there is no such log), TIMEDOUT
            (nothing came for the read timeout; the text says what is waited for).
    """
    client = client_for(options.cluster, options.access)
    columns = columns or ArrowColumns(schema, cut.log, cut.group)
    missing = _Missing()
    reader = client.run(lambda inner: _open(inner, cut, options, opened))
    try:
        records = _RECORDS_FIRST
        while batch := client.run(partial(_read, reader, cut, options, records)):
            records = next_records(batch, records)
            told = [gap for gap in batch.gaps if _judge(gap, cut, options, missing)]
            rows = batch if chosen is None else chosen(batch)
            if len(rows):
                yield columns.records(rows)
            if told:
                yield columns.gaps(told)
        proof = client.run(lambda inner: _proof(reader))
    finally:
        client.run(lambda inner: reader.close())
    _check(proof, cut)
    _tell(proof, cut)
    if missing.lsns:
        counts = ", ".join(f"{count} LSNs {kind.value}" for kind, count in missing.lsns.items())
        log_.warning("%s: skipped %s", range_text(cut), counts)
    if options.include_proof:
        yield columns.proof(proof)


async def _open(client: Client, cut: Cut, options: TaskOptions, opened: OpenRange | None) -> TaskReader:
    await client.known_log(cut.log, options.read_timeout_us / 1e6)
    keys = options.access.keys()
    if opened is not None:
        return await opened(client, cut, keys)
    return Reader(client, cut.log, cut.lo, cut.hi, encryption=keys)


async def _proof(reader: TaskReader) -> Proof:
    return reader.proof()


def next_records(batch: RecordBatch, before: int) -> int:
    """So many that the next Arrow batch is of a good size, should payloads go on as they are: compressed ones may be of any size."""
    if not len(batch):
        return before
    size = sum(map(len, filter(None, batch.payloads)))
    return max(1, min(_RECORDS_MAX, _BYTES_AT_ONCE * len(batch) // max(1, size)))


async def _read(reader: TaskReader, cut: Cut, options: TaskOptions, records: int, client: Client) -> RecordBatch:
    try:
        async with asyncio.timeout(options.read_timeout_us / 1e6):
            return await reader.read(records)
    except TimeoutError:
        raise LogDeviceError(
            Status.TIMEDOUT,
            f"{range_text(cut)}: nothing came for {options.read_timeout_us / 1e6:g} s (readTimeout) at "
            f"{reader.next_lsn}, waiting for {reader.waiting_for()}",
            maybe_applied=False,
        ) from None


def _judge(gap: Gap, cut: Cut, options: TaskOptions, missing: _Missing) -> bool:
    """Whether the gap becomes a row."""
    if gap.kind in (GapKind.BRIDGE, GapKind.HOLE):
        return options.include_gaps
    if options.on_gap is OnGap.REPORT:
        return True
    if options.on_gap is OnGap.SKIP:
        missing.add(gap)
        return options.include_gaps
    raise _loss(gap, cut)


def _loss(gap: Gap, cut: Cut) -> LogDeviceError:
    if gap.kind is GapKind.TRIM:
        return LogDeviceError(
            Status.NOTFOUND,
            f"{range_text(cut)}: {LSN(gap.lo)} to {LSN(gap.hi)} was trimmed (by the log's retention, or on request) before it was read: nothing failed, and no retry brings it back. "
            "Set onGap to skip to go on without, or to report for a row in its place: a stream that is started again from its checkpoint ends here again until then. "
            "A table may also be read from oldest, which begins behind what is trimmed",
        )
    return LogDeviceError(
        Status.DATALOSS,
        f"{range_text(cut)}: {LSN(gap.lo)} to {LSN(gap.hi)} is lost: {gap.loss or 'no reader can have it any more'}. "
        "Set onGap to report for a row in its place, or to skip to go on without",
    )


def _tell(proof: Proof, cut: Cut) -> None:
    gaps: dict[GapKind, int] = {}
    for gap in proof.gaps:
        gaps[gap.kind] = gaps.get(gap.kind, 0) + 1
    counts = ", ".join(f"{count} {kind.name}" for kind, count in gaps.items())
    log_.info("%s: %d records in %d entries; gaps: %s", range_text(cut), proof.records, proof.entries, counts or "none")


def _check(proof: Proof, cut: Cut) -> None:
    """Every LSN of the range is accounted for, once."""
    explained = proof.entries + sum(gap.hi - gap.lo + 1 for gap in proof.gaps)
    if (proof.first, proof.last) != (cut.lo, cut.hi) or explained != cut.hi - cut.lo + 1:
        raise LogDeviceError(
            Status.INTERNAL,
            f"{range_text(cut)}: {explained} of {cut.hi - cut.lo + 1} LSNs are accounted for, "
            f"{format_lsn(proof.first)} to {format_lsn(proof.last)}",
        )
