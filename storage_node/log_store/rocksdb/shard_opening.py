"""Opens the store of a shard, whoever's it is, and makes sure that it is the shard's own."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from logdevice_py.core.ids import Generation, ShardId, format_shard
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.tables.storage import QuarantineReason
from storage_node.log_store.extents.opening import EXTENTS, holds_extents, open_extents
from storage_node.log_store.extents.store import ExtentLogStore
from storage_node.log_store.identity import Judgement, ShardMarker
from storage_node.log_store.interface import Contents
from storage_node.log_store.later_format import LaterFormatError
from storage_node.log_store.opening import Adopt, LoadContents, Look, Note, Quarantine, open_shard
from storage_node.log_store.opening import Register as RegisterStep
from storage_node.log_store.rocksdb.families import DATABASE
from storage_node.log_store.rocksdb.quarantine import quarantine
from storage_node.log_store.rocksdb.store import RocksLogStore
from storage_node.log_store.rocksdb.store_lock import find_user, says_locked
from storage_node.log_store.settings import LogStoreSettings

Register = Callable[[Generation | None, bytes], Awaitable[Generation]]
"""Tells the epoch store the generation found on disk (None: none that counts, and then what the disk calls itself) and returns the one that the shard has
from here on."""
_BIRTH_BYTES: Final = 8


class DamagedStoreError(LogDeviceError):
    """The files of a store cannot be read, so that its shard cannot serve; nothing was changed."""


class StoreInUseError(LogDeviceError):
    """A store is open already. It is not damaged, and must not be moved from under whoever has it."""


def refuse_in_use(directory: str, shard: ShardId) -> None:
    """Raises StoreInUseError where a process has the store in a directory open. Nothing is changed, not even names of its files."""
    user = find_user(directory)
    if user is not None:
        raise _in_use(directory, shard, user)


def _in_use(directory: str, shard: ShardId, user: str) -> StoreInUseError:
    return StoreInUseError(
        Status.FAILED,
        f"{format_shard(shard)} cannot use {directory}: {user} has the store there open. Nothing was changed.\n"
        "  If that is another node: give each a directory of its own (--data, or data_dir in the cluster file).\n"
        "  If it is an earlier process of this node: wait until it has ended, and start again.",
    )


ShardStore = RocksLogStore | ExtentLogStore
"""What a shard may be served from."""


def _make(directory: str, settings: LogStoreSettings) -> ShardStore:
    has_extents = holds_extents(directory)
    if os.path.isdir(os.path.join(directory, DATABASE)):
        if has_extents:
            raise LogDeviceError(
                Status.FAILED,
                f"{directory} holds a store in RocksDB ({DATABASE}) and one in extents ({EXTENTS}): it cannot be told which one counts",
            )
        return RocksLogStore(directory, settings, boot=boot_id())
    if has_extents or settings.store == "extents":
        return open_extents(directory, settings, boot=boot_id())
    return RocksLogStore(directory, settings, boot=boot_id())


def open_store(directory: str, settings: LogStoreSettings, shard: ShardId) -> ShardStore:
    """Open a store, or make one, of the kind that the settings say.

    Raises:
        StoreInUseError: it is open already.
        DamagedStoreError: it cannot be opened.
        LaterFormatError: a later version wrote it.
    """
    refuse_in_use(directory, shard)
    try:
        return _make(directory, settings)
    except LaterFormatError:
        raise
    except LogDeviceError as error:
        if says_locked(error.detail):
            # somebody was faster, or it cannot be told who it is
            raise _in_use(directory, shard, find_user(directory) or "another process") from None
        raise DamagedStoreError(error.status, error.detail) from None


def boot_id() -> str:
    """Names the present run of the operating system; empty where it cannot be told."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class ShardOpening:
    """Carries out the steps of `open_shard`: see `ShardService.open`."""

    directory: str
    shard: ShardId
    cluster: bytes
    settings: LogStoreSettings
    register: Register
    note: Callable[[ShardMarker], Awaitable[None]]
    wall: Callable[[], Timestamp]
    report: Callable[[str], None]
    admit: Callable[[Judgement], None]

    async def open(self, *, replace_damaged: bool) -> tuple[ShardStore, Contents]:
        """As `ShardService.open` promises."""
        try:
            return await self._open()
        except LaterFormatError as error:
            raise LogDeviceError(
                error.status, f"{format_shard(self.shard)} in {self.directory}: {error.detail}"
            ) from None
        except DamagedStoreError as error:
            if not replace_damaged:
                raise
            aside = await self._quarantine(QuarantineReason.DAMAGED)
            self.report(f"{error.detail}; the damaged store is quarantined in {aside}")
            return await self._open()

    async def _open(self) -> tuple[ShardStore, Contents]:
        steps = open_shard(
            self.shard,
            self.cluster,
            admit=self.admit,
            new_birth=lambda: os.urandom(_BIRTH_BYTES),
            report=self.report,
        )
        store = await self._open_store()
        contents: Contents | None = None
        outcome: Any = None
        try:
            while True:
                try:
                    step = steps.send(outcome)
                except StopIteration:
                    break
                outcome = None
                match step:
                    case Look():
                        with _damage():
                            outcome = store.found, store.empty
                    case Quarantine():
                        store.abandon()
                        self.report(f"{step.why} and lies in {await self._quarantine(step.reason)}")
                        store = await self._open_store()
                    case Adopt():
                        await self._adopt(store, step.marker)
                    case RegisterStep():
                        outcome = await self.register(step.found, step.birth)
                    case LoadContents():
                        with _damage():
                            contents = await asyncio.to_thread(store.load)
                    case Note():
                        assert store.marker is not None
                        await self.note(store.marker)
        except BaseException:
            store.abandon()
            raise
        assert contents is not None
        return store, contents

    async def _adopt(self, store: ShardStore, marker: ShardMarker) -> None:
        with _damage():
            status = await asyncio.to_thread(store.adopt, marker, boot=boot_id(), now=self.wall())
        if status is not Status.OK:
            raise LogDeviceError(Status.FAILED, f"the marker of the store in {self.directory} could not be written")

    async def _open_store(self) -> ShardStore:
        return await asyncio.to_thread(open_store, self.directory, self.settings, self.shard)

    async def _quarantine(self, reason: QuarantineReason) -> str:
        return await asyncio.to_thread(quarantine, self.directory, reason)


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    """What a store fails with when it is read is damage of its files, unless a later version wrote them."""
    try:
        yield
    except LaterFormatError:
        raise
    except LogDeviceError as error:
        raise DamagedStoreError(error.status, error.detail) from None
