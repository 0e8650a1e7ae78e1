"""Raw files into an index log, and out of it."""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace

from indexlog.index_log import IndexLog
from indexlog.raw_directory import RawFileWriter, RawSurvey
from indexlog.records import LogRecord, readable_record
from indexlog.whole_logs import raw_generations, whole_raw_log
from logdevice_py.core.status import LogDeviceError, Status


async def import_raw_files(
    log: IndexLog, survey: RawSurvey, *, indexes: Collection[str] | None = None, accept_gaps: bool = False
) -> int:
    """Write the history that raw files hold, behind what the index log has; it keeps its timestamps. Returns how many modifications, when all are durable.

    Calling it again after an interruption writes all of it again, which changes nothing: the newest modifications are the same ones.

    Args:
        log: an open index log. To the same indexes nobody should write meanwhile.
        survey: what there is to import.
        indexes: of these only.
        accept_gaps: also when nobody has some time between the first file and the last.

    Raises:
        LogDeviceError: DATALOSS: there are gaps, nothing was written; others as `IndexWriter.bulk`.
    """
    if survey.gaps and not accept_gaps:
        count = len(survey.gaps)
        text = f"{count} {'gap is' if count == 1 else 'gaps are'} in all that was found; nothing was imported"
        raise LogDeviceError(Status.DATALOSS, text, retriable=False, maybe_applied=False)
    async with log.writer() as writer:
        wanted = (each for each in survey.history() if indexes is None or each.index in indexes)
        return await writer.bulk(wanted, keep_time=True)


@dataclass(slots=True)
class ExportReport:
    """What was exported."""

    records: int = 0
    unreadable: int = 0
    """Records of raw logs that are no modifications."""
    dropped: int = 0
    """Modifications of indexes that were dropped after them."""
    first: int = 0
    last: int = 0
    """The earliest and the latest timestamp."""


async def export_raw_files(log: IndexLog, make_writer: Callable[[int], RawFileWriter]) -> ExportReport:
    """Write all modifications that the raw logs hold at this moment into raw files, without those of indexes that were dropped later.

    Where timestamps of a raw log go back, as clocks of writers differ, they are raised to the ones before, so that whoever imports the files gets the same order.

    Args:
        log: an open index log.
        make_writer: makes a writer that covers the time from the first modification on.

    Raises:
        LogDeviceError: DATALOSS: the raw logs are not whole any more.
    """
    await log.manifest.current()
    report = ExportReport()
    writer: RawFileWriter | None = None
    try:
        async for number, raw_logs in raw_generations(log):
            async with aclosing(_generation(log, number, raw_logs, report)) as records:
                async for record in records:
                    now = record.change.timestamp
                    if writer is None:
                        writer, report.first = make_writer(now), now
                    writer.append(record, now)
                    report.records += 1
                    report.last = now
        if writer is not None:
            writer.close(report.last + 1)
    except BaseException:
        if writer is not None:
            writer.__exit__(None, None, None)
        raise
    return report


async def _generation(
    log: IndexLog, number: int, logs: Sequence[int], report: ExportReport
) -> AsyncGenerator[LogRecord, None]:
    """The modifications of a generation of raw logs, by time; not before those of the generation before."""
    earliest = report.last
    async with AsyncExitStack() as opened:
        readers = [
            await opened.enter_async_context(aclosing(_raw_log(log, number, raw, earliest, report))) for raw in logs
        ]
        heads = []
        for place, reader in enumerate(readers):
            if (first := await anext(reader, None)) is not None:
                heads.append((first.change.timestamp, place, first))
        heapq.heapify(heads)
        while heads:
            _, place, record = heads[0]
            yield record
            following = await anext(readers[place], None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (following.change.timestamp, place, following))


async def _raw_log(
    log: IndexLog, generation: int, raw: int, earliest: int, report: ExportReport
) -> AsyncGenerator[LogRecord, None]:
    newest = earliest
    async with aclosing(whole_raw_log(log, raw)) as records:
        async for lsn, payload in records:
            if payload == b"":
                continue  # what ends a raw log
            record = readable_record(payload)
            if record is None:
                report.unreadable += 1
                continue
            floor = log.state.floors.get(record.index)
            if floor is not None and floor.leaves_out(generation, raw, lsn):
                report.dropped += 1
                continue
            newest = max(newest, record.change.timestamp)
            yield replace(record, change=replace(record.change, timestamp=newest))
