"""Many records that are appended by one call: as an atomic batch, or each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from client.append.open_appends import OpenAppends
from client.guards import AppendGuard, Guards
from client.promise import Promise, break_, keep
from client.receipt import Receipt, ReceiptRun, Receipts
from logdevice_py.core.batch import BATCH_OVERHEAD, BYTES_PER_RECORD
from logdevice_py.core.entry import RECORDS_PER_ENTRY_MAX
from logdevice_py.core.ids import LogId
from logdevice_py.core.record_keys import KEY_OVERHEAD
from logdevice_py.core.sealed_batch import Seal
from logdevice_py.core.status import LogDeviceError, Status


def check_atomic(payloads: Sequence[bytes], keys: Sequence[bytes | None] | None, payload_max: int) -> None:
    """That one entry can hold all of these records. Sizes count before they are packed, so it does not depend on what the records are like.

    Args:
        payloads: the records.
        keys: of the records, one each; None: they have none.
        payload_max: the longest payload that the log takes.

    Raises:
        LogDeviceError: TOOBIG.
    """
    count = len(payloads)
    if count > RECORDS_PER_ENTRY_MAX:
        text = f"an atomic batch of {count:,} records: one entry holds {RECORDS_PER_ENTRY_MAX:,} at most"
        raise LogDeviceError(Status.TOOBIG, text)
    size = sum(map(len, payloads)) + BYTES_PER_RECORD * count + BATCH_OVERHEAD
    if keys is not None:
        size += sum(KEY_OVERHEAD + len(key or b"") for key in keys)
    if size > payload_max:
        text = (
            f"an atomic batch of {count:,} records takes {size:,} bytes, {BYTES_PER_RECORD} for each record included; the log takes "
            f"{payload_max:,} (max_payload_bytes), and an atomic batch is never split"
        )
        raise LogDeviceError(Status.TOOBIG, text)


class BatchPromise:
    """Who waits for the receipts of an atomic batch, to whoever has that of its first record."""

    __slots__ = ("_promise", "_records")

    def __init__(self, promise: Promise, records: int) -> None:
        self._promise = promise
        self._records = records

    def done(self) -> bool:
        """It has its outcome already, or nobody waits."""
        return self._promise.done()

    def set_result(self, first: Receipt) -> None:
        """The batch is stored; the other records follow the first."""
        self._promise.set_result(Receipts([ReceiptRun(self._records, *first)]))

    def set_exception(self, error: BaseException) -> None:
        """The batch failed."""
        self._promise.set_exception(error)

    def exception(self) -> BaseException | None:
        """Marks the error as seen."""
        return self._promise.exception()


class ReceiptsOfEach:
    """Gathers the receipts of records that are appended by themselves and come to their ends in any order."""

    def __init__(self, promise: Promise, total: int) -> None:
        self.promise = promise
        self._receipts: list[Receipt | None] = [None] * total
        self._missing = total
        self._failed = 0
        self._error: LogDeviceError | None = None

    def of(self, index: int) -> OneOfMany:
        """Who waits for one of the records."""
        return OneOfMany(self, index)

    def stored(self, index: int, receipt: Receipt) -> None:
        """A record is stored."""
        self._receipts[index] = receipt
        self._ended()

    def failed(self, error: BaseException) -> None:
        """A record failed."""
        assert isinstance(error, LogDeviceError), error
        self._failed += 1
        if self._error is None or (error.maybe_applied and not self._error.maybe_applied):
            self._error = error
        self._ended()

    def _ended(self) -> None:
        self._missing -= 1
        if self._missing:
            return
        error, total = self._error, len(self._receipts)
        if error is None:
            keep(self.promise, Receipts([ReceiptRun(1, *receipt) for receipt in self._receipts if receipt is not None]))
            return
        text = f"{self._failed} of {total} records: {error.detail or 'not acknowledged'}"
        maybe = error.maybe_applied or self._failed < total
        break_(self.promise, LogDeviceError(error.status, text, retriable=error.retriable, maybe_applied=maybe))


class OneOfMany:
    """Who waits for one record of `ReceiptsOfEach`."""

    __slots__ = ("_all", "_index")

    def __init__(self, all_: ReceiptsOfEach, index: int) -> None:
        self._all = all_
        self._index = index

    def done(self) -> bool:
        """Each is told once, so what comes is wanted, even if the caller stopped waiting."""
        return False

    def set_result(self, receipt: Receipt) -> None:
        """The record is stored."""
        self._all.stored(self._index, receipt)

    def set_exception(self, error: BaseException) -> None:
        """The record failed."""
        self._all.failed(error)

    def exception(self) -> BaseException | None:
        """Nothing to mark as seen: the error is told with those of the others."""
        return None


class AppendingSession(Protocol):
    """Where records go: `client.session.ClientSession`."""

    def append(
        self,
        log: LogId,
        payload: bytes,
        promise: Promise,
        timeout_us: int | None = None,
        key: bytes | None = None,
        *,
        synced: bool = False,
        guard: AppendGuard | None = None,
        seal: Seal | None = None,
    ) -> OpenAppends:
        """Append one record."""

    def append_batch(
        self,
        log: LogId,
        payloads: Sequence[bytes],
        promise: Promise,
        timeout_us: int | None = None,
        keys: Sequence[bytes | None] | None = None,
        *,
        synced: bool = False,
        guard: AppendGuard | None = None,
        seal: Seal | None = None,
    ) -> None:
        """Append an atomic batch."""


class ManyRecords:
    """The records of one call, whose arguments were checked."""

    def __init__(
        self,
        payloads: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        guards: Guards | None,
        *,
        atomic: bool,
    ) -> None:
        self._payloads = payloads
        self._keys = keys
        self._guards = guards
        self._atomic = atomic

    def append(
        self,
        session: AppendingSession,
        log: LogId,
        promise: Promise,
        timeout_us: int | None,
        *,
        synced: bool,
        seal: Seal | None = None,
    ) -> None:
        """Append them; the promise gets their `Receipts`.

        Raises:
            LogDeviceError: an atomic batch is too large, or there is no such log; nothing was sent.
        """
        payloads, guards, count = self._payloads, self._guards, len(self._payloads)
        if not payloads:
            keep(promise, Receipts([]))
            return
        if self._atomic:
            guard = None if guards is None else guards.part(0, count)
            session.append_batch(log, payloads, promise, timeout_us, self._keys, synced=synced, guard=guard, seal=seal)
            return
        gathered = ReceiptsOfEach(promise, count)
        for at, payload in enumerate(payloads):
            key = None if self._keys is None else self._keys[at]
            guard = None if guards is None else guards.part(at, at + 1)
            one = gathered.of(at)
            try:
                session.append(log, payload, one, timeout_us, key, synced=synced, guard=guard, seal=seal)
            except LogDeviceError as error:
                one.set_exception(error)
