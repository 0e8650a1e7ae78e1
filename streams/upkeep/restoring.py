"""Makes a stream again from its cold copies alone, by appending their records to a new one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from client.read.items import GapKind
from logdevice_py.core.status import LogDeviceError, Status
from streams.attributes import TransactionIds
from streams.cold.cold_reader import ColdReader, load_file
from streams.cold.restoring import AppendedAgain, CopiedLog, read_catalogue
from streams.cold.store import ColdStore
from streams.records import txid_of

if TYPE_CHECKING:
    from streams.namespace import Namespace

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
        ColdCopyError: NOTFOUND: the store does not hold it; EMPTY: something is in no copy; what a `ColdReader` raises.
        LogDeviceError: EXISTS: the name is taken; as writes. Then the stream holds a part: delete it, and restore again.
        ImportError: pyarrow is not installed.
    """
    store = await asyncio.to_thread(ColdStore, url)
    log = (await asyncio.to_thread(read_catalogue, store)).log(source or name)
    kind = await asyncio.to_thread(_kind_of, store, log)
    done = AppendedAgain()
    async with ColdReader(store, log.copies, accept_missing=accept_missing) as reader:
        stream = await namespace.create(name, txid=kind.value)
        async with stream.writer() as writer:
            while batch := await reader.read(_AT_ONCE):
                done.lost += [gap for gap in batch.gaps if gap.kind is GapKind.DATALOSS]
                done.damaged += batch.payloads.count(None)
                records = list(batch.records())
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
                done.records += len(records)
                done.first = done.first or receipts[0].lsn
                done.last = receipts[-1].lsn
    return done


def _kind_of(store: ColdStore, log: CopiedLog) -> TransactionIds:
    """Who numbered the records of the stream that was copied. Blocking."""
    copy = log.copies[-1]
    file = store.manifest(copy).files[-1]
    is_writer = load_file(store, copy, file).identity.transaction_ids
    return TransactionIds.WRITER if is_writer else TransactionIds.TIME
