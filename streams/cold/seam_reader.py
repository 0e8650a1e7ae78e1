"""Reads a log across its cold copies and the cluster: what was trimmed or lost there comes from a copy, at the same positions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Final

from client.arguments import count_argument
from client.client import Client
from client.encryption import EncryptionKeys, environment_keys
from client.read.batch import RecordBatch
from client.read.decoding import no_keys
from client.read.item_reader import ItemReader
from client.read.items import Gap, GapKind
from client.read.proof import Proof
from logdevice_py.core.entry import EntryHeader
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from streams.cold.cold_reader import read_stretch
from streams.cold.copies import ColdCopy
from streams.cold.coverage import cover
from streams.cold.delivery import ColdDelivery
from streams.cold.entries import UnpackedItem, unpack_entry
from streams.cold.store import ColdStore

_ENTRIES_AT_ONCE: Final = 1000
_REPLACED: Final = frozenset({GapKind.TRIM, GapKind.DATALOSS})


class SeamReader(ItemReader):
    """Reads [start, until] of one log, as `client.reader.Reader` does, and in place of each TRIM and DATALOSS gap what cold copies hold of it.

    The cluster is asked first, so copies cost nothing while the log has its records. The proof is the one of a reader that read the log
    before it was trimmed.
    """

    INTERNAL_NAMES: ClassVar[frozenset[str]] = frozenset({"live"})

    def __init__(
        self,
        client: Client,
        store: ColdStore,
        log: int | str,
        find_copies: Callable[[], Awaitable[Sequence[ColdCopy]]],
        start: int = LSN.OLDEST,
        until: int | str | datetime = LSN.MAX,
        **options: Any,
    ) -> None:
        """
        Args:
            client: an open client.
            store: where the copies are.
            log: id or path of the log.
            find_copies: gives the log's committed copies, among them all that were committed before it was called. It is called at each gap.
            start: the first LSN to read.
            until: as for `Client.reader`.
            options: as for `Client.reader`.

        Raises:
            LogDeviceError: INVALID_PARAM, NOTFOUND.
        """
        super().__init__()
        self.live = client.reader(log, start, until, **options)
        self.log = self.live.log
        self._client = client
        self._store = store
        self._find_copies = find_copies
        self._delivery = ColdDelivery(self.log, max(start, LSN.OLDEST))
        keys: EncryptionKeys | None = options.get("encryption")
        keys = environment_keys() if keys is None else keys
        self._open_sealed = no_keys if keys is None else keys.reading()
        self._pending: list[tuple[EntryHeader, bytes] | Gap] = []
        """Came from the cluster and is not delivered, last first."""
        self._filling: tuple[Gap, AsyncGenerator[list[UnpackedItem]]] | None = None
        """The gap that is read from copies, which is not pending, and what copies hold of it."""
        self._closed = False

    def __repr__(self) -> str:
        return f"<SeamReader of log {self.log}: next is {self.next_lsn}, {self._store.shown_url}>"

    async def __aenter__(self) -> SeamReader:
        await self.live.__aenter__()
        return self

    async def close(self) -> None:
        """Stop reading. Harmless when called again."""
        self._closed = True
        if self._filling is not None:
            await self._filling[1].aclose()
        await self.live.close()

    async def read(self, max_records: int = 10_000, *, timeout: float | None = None) -> RecordBatch:
        """Up to `max_records` records, and the gaps between them; waits for at least one, and returns nothing only at `until`. Being cancelled, or failing,
        loses nothing: the next call goes on at the same place.

        Args:
            max_records: how many at most.
            timeout: seconds to wait for the cluster.

        Raises:
            LogDeviceError: as `client.reader.Reader.read`.
            ColdCopyError: a copy cannot be read: NOTFOUND, CONNFAILED (retriable), BADPAYLOAD, VERSION_MISMATCH.
        """
        count_argument("max_records", max_records)
        if self._closed:
            raise LogDeviceError(Status.SHUTDOWN, "the reader was closed", retriable=False)
        while not self._delivery:
            if self._filling is not None:
                await self._fill_on(*self._filling)
            elif self._pending:
                await self._hand_on()
            else:
                taken = await self.live.read_entries(_ENTRIES_AT_ONCE, timeout=timeout)
                if not taken:
                    break
                self._pending = taken[::-1]
        batch = self._delivery.take(max_records)
        group = self._client.config.group(self.log)
        batch.log_group = "" if group is None else group.path
        return batch

    async def _hand_on(self) -> None:
        """Deliver what came from the cluster, up to a gap that copies may fill, or an entry that cannot be opened: the first of them is stayed at."""
        pending, ready = self._pending, list[UnpackedItem]()
        while pending:
            item = pending[-1]
            if not isinstance(item, Gap):
                try:
                    ready.append(unpack_entry(*item, self._open_sealed))
                except LogDeviceError:
                    if not ready:
                        raise
                    break
            elif item.kind not in _REPLACED:
                ready.append(item)
            else:
                if not ready:
                    self._filling = item, self._fill(item, await self._find_copies())
                    pending.pop()
                break
            pending.pop()
        self._delivery.add(ready)

    async def _fill_on(self, gap: Gap, copied: AsyncGenerator[list[UnpackedItem]]) -> None:
        """Deliver more of what copies hold of a gap; what is left of it when that fails is pending again."""
        try:
            if (items := await anext(copied, None)) is None:
                self._filling = None
            else:
                self._delivery.add(items)
        except BaseException:
            self._filling = None
            if self._delivery.next_lsn <= gap.hi:
                self._pending.append(replace(gap, lo=LSN(self._delivery.next_lsn)))
            await copied.aclose()
            raise

    async def _fill(self, gap: Gap, copies: Sequence[ColdCopy]) -> AsyncGenerator[list[UnpackedItem]]:
        """What copies hold of a gap, and the gap where they do not."""
        for stretch in cover(copies, gap.lo, gap.hi):
            rest = replace(gap, lo=stretch.first, hi=stretch.last)
            reading = read_stretch(self._store, stretch, rest)
            try:
                async for items in reading:
                    yield items
            finally:
                await reading.aclose()

    def proof(self) -> Proof:
        """What was handed out so far, from wherever it came."""
        return self._delivery.proof()

    def waiting_for(self) -> str:
        """What the cluster is waited for, as `client.reader.Reader.waiting_for`."""
        return self.live.waiting_for()
