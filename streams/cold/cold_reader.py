"""Reads a range of a log from its cold copies alone: with the positions, records and gaps that the log had, and without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from client.arguments import count_argument, flag_argument, lsn_argument
from client.read.batch import RecordBatch
from client.read.item_reader import ItemReader
from client.read.items import DataLoss, Gap, GapKind
from client.read.proof import Proof
from logdevice_py.core.lsn import LSN, LSN_OLDEST
from logdevice_py.core.status import LogDeviceError, Status
from streams.cold.copies import ColdCopy, ColdFile
from streams.cold.coverage import CopiedStretch, clip, cover
from streams.cold.delivery import ColdDelivery
from streams.cold.entries import UnpackedItem
from streams.cold.errors import ColdCopyError
from streams.cold.file_format import FileContent
from streams.cold.store import ColdStore


def load_file(store: ColdStore, copy: ColdCopy, file: ColdFile) -> FileContent:
    """A file of a copy, fetched whole and compared with its hash. Blocking.

    Raises:
        ColdCopyError: NOTFOUND, CONNFAILED, BADPAYLOAD, VERSION_MISMATCH.
    """
    name = f"{copy.folder}/{file.name}"
    content = FileContent(file, store.get_file(copy, file), where=store.where(name))
    content.check_identity(copy.cluster, copy.log)
    return content


async def copied_items(store: ColdStore, copy: ColdCopy, first: int, last: int) -> AsyncGenerator[list[UnpackedItem]]:
    """What a copy holds in [first, last], by row groups; the next file is fetched while one is read.

    Raises:
        ColdCopyError: as `load_file`.
    """
    manifest = await asyncio.to_thread(store.manifest, copy)
    files = [file for file in manifest.files if file.proof.last >= first and file.proof.first <= last]
    fetching: asyncio.Task[FileContent] | None = None
    try:
        for index in range(len(files)):
            if fetching is None:
                fetching = asyncio.create_task(asyncio.to_thread(load_file, store, copy, files[0]))
            content = await fetching
            fetching = None
            if index + 1 < len(files):
                fetching = asyncio.create_task(asyncio.to_thread(load_file, store, copy, files[index + 1]))
            groups = content.items(first)
            while (group := await asyncio.to_thread(next, groups, None)) is not None:
                if items := clip(group, first, last):
                    yield items
    finally:
        if fetching is not None:
            fetching.cancel()


class ColdReader(ItemReader):
    """Reads [start, until] of one log from cold copies, as `client.reader.Reader` reads it from the cluster.

    What lies before the first copy is a TRIM gap. What lies between copies, or behind the last one, is refused, or is a DATALOSS gap with
    `accept_missing`. Use it as an async context manager, from one task at a time.
    """

    def __init__(
        self,
        store: ColdStore,
        copies: Sequence[ColdCopy],
        start: int = LSN_OLDEST,
        until: int | None = None,
        *,
        accept_missing: bool = False,
    ) -> None:
        """
        Args:
            store: where the copies are.
            copies: of one log, in any order; they may overlap.
            start: the first LSN to read.
            until: the last LSN, inclusive; None: the last one that is copied.
            accept_missing: read on behind what no copy holds.

        Raises:
            ColdCopyError: INVALID_PARAM: no copies, or of several logs; EMPTY: a part of the range is in none.
        """
        super().__init__()
        if len({(copy.cluster, copy.log) for copy in copies}) != 1:
            raise ColdCopyError(Status.INVALID_PARAM, "a reader needs copies, all of one log")
        self.log = copies[0].log
        begin = max(lsn_argument("start", start), LSN_OLDEST)
        end = max(copy.last for copy in copies) if until is None else lsn_argument("until", until)
        self._stretches = cover(copies, begin, end)
        if not flag_argument("accept_missing", accept_missing):
            self._refuse_missing(min(copy.first for copy in copies))
        self._first_copied = min(copy.first for copy in copies)
        self._until = end
        self._store = store
        self._delivery = ColdDelivery(self.log, begin)
        self._reading: AsyncGenerator[list[UnpackedItem]] | None = None
        self._closed = False

    def _refuse_missing(self, first_copied: int) -> None:
        for stretch in self._stretches:
            if stretch.copy is None and stretch.last >= first_copied:
                text = f"log {self.log}: no cold copy holds {stretch.first} to {stretch.last}; accept_missing reads on behind it"
                raise ColdCopyError(Status.EMPTY, text, maybe_applied=False)

    def __repr__(self) -> str:
        return f"<ColdReader of log {self.log}: next is {self.next_lsn}, until {LSN(self._until)}, {self._store.shown_url}>"

    async def __aenter__(self) -> ColdReader:
        return self

    async def close(self) -> None:
        """Stop reading. Harmless when called again."""
        self._closed = True
        if self._reading is not None:
            await self._reading.aclose()

    async def read(self, max_records: int = 10_000) -> RecordBatch:
        """Up to `max_records` records, and the gaps between them; an empty batch when everything was read.

        Raises:
            ColdCopyError: NOTFOUND, CONNFAILED (retriable: by another reader from `next_lsn` on), BADPAYLOAD, VERSION_MISMATCH.
            LogDeviceError: SHUTDOWN: the reader was closed.
        """
        count_argument("max_records", max_records)
        if self._closed:
            raise LogDeviceError(Status.SHUTDOWN, "the reader was closed", retriable=False)
        while not self._delivery and self._delivery.next_lsn <= self._until:
            if self._reading is None:
                self._reading = self._read_stretches()
            items = await anext(self._reading, None)
            if items is None:  # the generator ended by an error
                raise LogDeviceError(Status.SHUTDOWN, "the reader failed before", retriable=False)
            self._delivery.add(items)
        return self._delivery.take(max_records)

    async def _read_stretches(self) -> AsyncGenerator[list[UnpackedItem]]:
        for stretch in self._stretches:
            async for items in read_stretch(self._store, stretch, self._missing(stretch)):
                yield items

    def _missing(self, stretch: CopiedStretch) -> Gap:
        if stretch.last < self._first_copied:
            return Gap(GapKind.TRIM, stretch.first, stretch.last)
        return Gap(GapKind.DATALOSS, stretch.first, stretch.last, DataLoss(False, ()))

    def proof(self) -> Proof:
        """What was read so far."""
        return self._delivery.proof()


async def read_stretch(store: ColdStore, stretch: CopiedStretch, missing: Gap) -> AsyncGenerator[list[UnpackedItem]]:
    """What is in a stretch; `missing` when it is in no copy.

    Raises:
        ColdCopyError: as `load_file`; BADPAYLOAD also: the copy ends before the stretch.
    """
    if stretch.copy is None:
        yield [missing]
        return
    reading = copied_items(store, stretch.copy, stretch.first, stretch.last)
    try:
        async for items in reading:
            yield items
    finally:
        await reading.aclose()
