"""Raw logs from their first records to their last, for what is to know all that was ever written."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Final

from client.read.items import GapKind
from indexlog.index_log import IndexLog
from indexlog.places import raw_group
from logdevice_py.core.status import LogDeviceError, Status

_READ_AT_ONCE: Final = 5000


async def raw_generations(log: IndexLog) -> AsyncIterator[tuple[int, Sequence[int]]]:
    """The number and the raw logs of each generation, in the order in which they were written to."""
    for number in range(log.state.generations[-1].number + 1):
        group = await log.client.get_log_group(raw_group(log.path, number))
        yield number, group.logs


async def whole_raw_log(log: IndexLog, raw: int) -> AsyncGenerator[tuple[int, bytes | None]]:
    """LSN and payload of each record up to the tail of this moment, in order.

    Raises:
        LogDeviceError: DATALOSS: some of them are lost or trimmed; as `Reader.read`.
    """
    async with log.client.reader(raw, until="tail") as reader:
        while batch := await reader.read(_READ_AT_ONCE):
            for gap in batch.gaps:
                if gap.kind in (GapKind.DATALOSS, GapKind.TRIM):
                    text = f"raw log {raw} is not whole: {gap}"
                    raise LogDeviceError(Status.DATALOSS, text, retriable=False, maybe_applied=False)
            for lsn, payload in zip(batch.lsns, batch.payloads, strict=True):
                yield lsn, payload
