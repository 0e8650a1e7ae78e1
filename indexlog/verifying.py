"""Compares what readers get with what was written: the pages of each index with its raw logs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from client.read.items import GapKind
from indexlog.index_log import IndexLog
from indexlog.places import raw_group
from indexlog.records import LogRecord, Modification, decode_record, document, merge
from logdevice_py.core.status import CorruptEntryError, LogDeviceError, Status

_READ_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Of one index."""

    index: str
    trouble: str = ""
    """What differs; empty: nothing."""


async def verify(log: IndexLog, indexes: Iterable[str] | None = None) -> AsyncIterator[VerifyReport]:
    """Fold the raw logs of all generations, in memory, and compare. Nothing may be written or dropped meanwhile.

    Raises:
        LogDeviceError: DATALOSS: raw logs are not whole, so there is nothing to compare with; others.
    """
    await log.manifest.current()
    wanted = None if indexes is None else set(indexes)
    written: dict[str, dict[str, Modification]] = {index: {} for index in wanted or log.state.indexes}
    for number in range(log.state.generations[-1].number + 1):
        group = await log.client.get_log_group(raw_group(log.path, number))
        for raw in group.logs:
            await _fold(log, number, raw, wanted, written)
    for index in sorted(written):
        expected = {docid: left for docid, change in written[index].items() if (left := document(change)) is not None}
        yield VerifyReport(index, _difference(await log.documents(index), expected))


async def _fold(
    log: IndexLog, generation: int, raw: int, wanted: set[str] | None, written: dict[str, dict[str, Modification]]
) -> None:
    async with log.client.reader(raw, until="tail") as reader:
        while batch := await reader.read(_READ_AT_ONCE):
            for gap in batch.gaps:
                if gap.kind in (GapKind.DATALOSS, GapKind.TRIM):
                    raise LogDeviceError(
                        Status.DATALOSS, f"raw log {raw} is not whole: {gap}", retriable=False, maybe_applied=False
                    )
            for lsn, payload in zip(batch.lsns, batch.payloads, strict=True):
                record = _decoded(payload)
                if record is None or (wanted is not None and record.index not in wanted):
                    continue
                floor = log.state.floors.get(record.index)
                if floor is not None and (generation < floor.generation or lsn <= floor.lsns.get(raw, 0)):
                    continue
                of_index = written.setdefault(record.index, {})
                older = of_index.get(record.docid)
                of_index[record.docid] = record.change if older is None else merge(older, record.change)


def _decoded(payload: bytes | None) -> LogRecord | None:
    try:
        return decode_record(payload or b"")
    except CorruptEntryError:
        return None


def _difference(found: dict[str, Modification], expected: dict[str, Modification]) -> str:
    if found == expected:
        return ""
    missing, more = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    other = sorted(docid for docid in found.keys() & expected.keys() if found[docid] != expected[docid])
    told = [
        f"{len(docids)} documents are {what} in the pages, {docids[0]!r} for one"
        for docids, what in ((missing, "missing"), (more, "too many"), (other, "different"))
        if docids
    ]
    return "; ".join(told)
