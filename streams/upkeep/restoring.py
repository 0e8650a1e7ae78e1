"""Makes streams again from their cold copies alone, by appending their records to new ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from logdevice_py.core.status import LogDeviceError, Status
from streams.attributes import TransactionIds
from streams.cold.cold_reader import ColdReader, load_file
from streams.cold.errors import ColdCopyError
from streams.cold.restoring import AppendedAgain, ColdCatalogue, CopiedLog, read_catalogue
from streams.cold.store import ColdStore
from streams.records import txid_of

if TYPE_CHECKING:
    from streams.namespace import Namespace
    from streams.stream import Stream

_AT_ONCE: Final = 5000


async def restore_stream(
    namespace: Namespace, url: str, name: str, *, source: str | None = None, accept_missing: bool = False
) -> AppendedAgain:
    """Create a stream and append all records of cold copies to it, in order, with their transaction ids. They get new positions and timestamps.

    Args:
        namespace: open, in whatever cluster.
        url: of the store.
        name: of the stream to create.
        source: which copies: the name of the stream that was copied, its log id, or CLUSTER/ID; None: `name`.
        accept_missing: go on behind what no copy holds.

    Raises:
        ColdCopyError: NOTFOUND: the store does not hold it; EMPTY: something is in no copy; BADPAYLOAD: a manifest is damaged, so a part may be in no copy that is
            known; what a `ColdReader` raises.
        LogDeviceError: EXISTS: the name is taken; as writes. With `maybe_applied` the stream has a part, as the text says: delete it, and restore again.
        ImportError: pyarrow is not installed.
    """
    store = await asyncio.to_thread(ColdStore, url)
    catalogue = await asyncio.to_thread(read_catalogue, store)
    return await _restore(namespace, store, catalogue, catalogue.log(source or name), name, accept_missing)


async def restore_all(
    namespace: Namespace, url: str, *, accept_missing: bool = False
) -> AsyncIterator[tuple[str, AppendedAgain | LogDeviceError]]:
    """Make all streams of which a store has copies, as `restore_stream` does, one after the other. Those of deleted streams are among them, as long as the store has their copies; logs
    that were no streams are not.

    Gives the name of each with what came of it: where it failed, the error, and the others go on. A name that several logs had is not decided upon: restore each by its `source`.

    Args:
        namespace: open, in whatever cluster.
        url: of the store.
        accept_missing: go on behind what no copy holds.

    Raises:
        ColdCopyError: CONNFAILED: the store cannot be listed.
        ImportError: pyarrow is not installed.
    """
    store = await asyncio.to_thread(ColdStore, url)
    catalogue = await asyncio.to_thread(read_catalogue, store)
    logs_of = Counter(log.stream for log in catalogue.logs)
    for log in catalogue.logs:
        if log.stream[:1] in ("", "/"):  # a path of a log, or nothing: names of streams begin otherwise
            continue
        source = f"{log.cluster}/{log.log}"
        if logs_of[log.stream] > 1:
            text = f"several logs were named {log.stream!r}: restore this one by its source {source}, to a name that is free"
            yield log.stream, ColdCopyError(Status.INVALID_PARAM, text)
            continue
        try:
            yield log.stream, await _restore(namespace, store, catalogue, log, log.stream, accept_missing)
        except LogDeviceError as error:
            yield log.stream, error
    for text in catalogue.unreadable_of_others():
        yield "", ColdCopyError(Status.BADPAYLOAD, text)


async def _restore(
    namespace: Namespace, store: ColdStore, catalogue: ColdCatalogue, log: CopiedLog, name: str, accept_missing: bool
) -> AppendedAgain:
    """Create a stream of this name from the copies of a log."""
    unreadable = catalogue.unreadable_of(log)
    if unreadable and not accept_missing:
        text = f"{unreadable[0]}; it may name records that no other copy holds: accept_missing goes on without"
        raise ColdCopyError(Status.BADPAYLOAD, text, maybe_applied=False)
    kind = await asyncio.to_thread(_kind_of, store, log)
    done = AppendedAgain()
    async with ColdReader(store, log.copies, accept_missing=accept_missing) as reader:
        stream = await namespace.create(name, txid=kind.value)
        try:
            await _append(reader, stream, kind, done)
        except LogDeviceError as error:
            text = f"{error.detail}. The stream {name} has {done.records} records so far: delete it before you restore it again"
            raised = ColdCopyError if isinstance(error, ColdCopyError) else LogDeviceError
            raise raised(error.status, text, retriable=False, maybe_applied=True) from error
    return done


async def _append(reader: ColdReader, stream: Stream, kind: TransactionIds, done: AppendedAgain) -> None:
    """Append what a reader has; `done` counts what is acknowledged."""
    async with stream.writer() as writer:
        while batch := await reader.read(_AT_ONCE):
            records = done.readable(batch)
            if not records:
                continue
            txids = None
            if kind is TransactionIds.WRITER:
                txids = [txid_of(kind, record.key, 0) or 0 for record in records]
                if not all(txids):
                    text = f"{records[txids.index(0)].lsn} was written without a transaction id: it cannot be written to a stream"
                    raise LogDeviceError(Status.INVALID_PARAM, text)
            await writer.ready()
            receipts = await writer.write_many([record.payload for record in records], txids=txids)
            done.count(receipts)


def _kind_of(store: ColdStore, log: CopiedLog) -> TransactionIds:
    """Who numbered the records of the stream that was copied. Blocking."""
    copy = log.copies[-1]
    file = store.manifest(copy).files[-1]
    is_writer = load_file(store, copy, file).identity.transaction_ids
    return TransactionIds.WRITER if is_writer else TransactionIds.TIME
