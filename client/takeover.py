"""What a process asks and reads before it goes on with a write stream that others may have begun, on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from client.append.seq_state_request import NoAnswer
from client.reader import ReaderShell
from client.write.finder import StoredFrames
from client.write.frame_reader import StreamFrameReader
from logdevice_py.core.ids import LogId, WriterId
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import SeqState, SeqStateFlags

_WAIT_FOR_RECOVERY = int(SeqStateFlags.WAIT_FOR_RECOVERY)


async def recovered(client: ReaderShell, log: LogId, *, min_epoch: int, timeout_us: Micros) -> SeqState:
    """How far the log is, once all epochs before its present one are recovered: nothing is added to these any more.

    Args:
        client: an open client.
        log: a data log.
        min_epoch: makes the log move on when it is in an earlier epoch.
        timeout_us: how long this may take.

    Raises:
        LogDeviceError: a retriable status when it could not be had in time.
    """
    future: asyncio.Future[SeqState] = client.future()
    session, now = client.session, client.now()

    def answered(answer: SeqState | NoAnswer, at: Micros) -> None:
        if future.done():
            return
        if isinstance(answer, NoAnswer):
            text = f"recovery of log {log}: {answer.why}"
            future.set_exception(LogDeviceError(answer.status, text, maybe_applied=False))
        else:
            future.set_result(answer)

    epoch = max(Epoch(min_epoch), session.routes.epoch(log))
    question = session.questions.ask(
        log, now, answered, flags=_WAIT_FOR_RECOVERY, min_epoch=epoch, deadline=now + timeout_us
    )
    client.wake()
    try:
        return await future
    finally:
        if future.cancelled():
            question.cancel()


async def stored_frames(
    client: ReaderShell, log: LogId, first: int, until: int, wanted: Callable[[WriterId], bool]
) -> StoredFrames:
    """The frames of the write streams whose ids `wanted` takes.

    Args:
        client: an open client.
        log: a data log.
        first: the first LSN to look at.
        until: the last one; released, or in a recovered epoch.
        wanted: asked for each frame.
    """
    future: asyncio.Future[StoredFrames] = client.future()

    def done(frames: StoredFrames) -> None:
        if not future.done():
            future.set_result(frames)

    finder = StreamFrameReader(client.session, client.read_settings, client.read_metrics)
    listing = finder.list(log, Lsn(max(1, first)), Lsn(until), wanted, done, client.now())
    client.wake()
    try:
        return await future
    finally:
        if not future.done() or future.cancelled():
            listing.cancel()
