"""Opens the store of a shard, whoever's it is, and makes sure that it is the shard's own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.ids import Generation, ShardId, format_shard
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.tables.storage import QuarantineReason
from storage_node.log_store.identity import NO_GENERATION, IdentityVerdict, Judgement, ShardMarker, judge
from storage_node.log_store.interface import Contents
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


def open_store(directory: str, settings: LogStoreSettings, shard: ShardId) -> RocksLogStore:
    """Open a store, or make one.

    Raises:
        StoreInUseError: it is open already.
        DamagedStoreError: it cannot be opened.
    """
    refuse_in_use(directory, shard)
    try:
        return RocksLogStore(directory, settings, boot=boot_id())
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
    """Which store is opened, for whom, and who has a say in it: see `ShardService.open`."""

    directory: str
    shard: ShardId
    cluster: bytes
    settings: LogStoreSettings
    register: Register
    wall: Callable[[], Timestamp]
    report: Callable[[str], None]
    admit: Callable[[Judgement], None]

    async def open(self, *, give_up_damaged: bool) -> tuple[RocksLogStore, Contents]:
        """As `ShardService.open` promises."""
        try:
            return await self._open()
        except DamagedStoreError as error:
            if not give_up_damaged:
                raise
            aside = await self._quarantine(QuarantineReason.DAMAGED)
            self.report(f"{error.detail}; the damaged store is quarantined in {aside}")
            return await self._open()

    async def _open(self) -> tuple[RocksLogStore, Contents]:
        report, directory = self.report, self.directory
        store = await self._open_store()
        try:
            judgement = self._judge(store)
            self.admit(judgement)
            if judgement.verdict is IdentityVerdict.QUARANTINE:
                report(judgement.reason)
                store.abandon()
                report(f"the store is quarantined in {await self._quarantine(QuarantineReason.FOREIGN)}")
                store = await self._open_store()
            kept = judgement.kept
            birth = b"" if kept is not None else await self._name_disk(store, judgement.birth)
            generation = await self.register(kept, birth)
            if kept is not None and generation != kept:
                # epochs name the generation that they are stored on: no request for what lies here would ever be answered
                store.abandon()
                aside = await self._quarantine(QuarantineReason.REPLACED)
                report(
                    f"the store in {directory} had generation {kept}, which ended when a later one began: its data counts "
                    f"no more and lies in {aside}; the shard begins empty as generation {generation}"
                )
                store = await self._open_store()
            if judgement.verdict is IdentityVerdict.NEW_GENERATION and generation > 1:
                report(f"{judgement.reason}, and was not before: it begins as generation {generation}")
            await self._adopt(store, ShardMarker(self.cluster, self.shard, generation))
            try:
                contents = await asyncio.to_thread(store.load)
            except LogDeviceError as error:
                raise DamagedStoreError(error.status, error.detail) from None
        except BaseException:
            store.abandon()
            raise
        return store, contents

    def _judge(self, store: RocksLogStore) -> Judgement:
        try:
            return judge(store.found, empty=store.empty, cluster=self.cluster, shard=self.shard)
        except LogDeviceError as error:
            raise DamagedStoreError(error.status, error.detail) from None

    async def _name_disk(self, store: RocksLogStore, birth: bytes) -> bytes:
        """What an empty store calls itself until it has a generation: should the process end before that, it gets the same one."""
        if not birth:
            birth = os.urandom(_BIRTH_BYTES)
            await self._adopt(store, ShardMarker(self.cluster, self.shard, NO_GENERATION, birth=birth))
        return birth

    async def _adopt(self, store: RocksLogStore, marker: ShardMarker) -> None:
        try:
            status = await asyncio.to_thread(store.adopt, marker, boot=boot_id(), now=self.wall())
        except LogDeviceError as error:
            raise DamagedStoreError(error.status, error.detail) from None
        if status is not Status.OK:
            raise LogDeviceError(Status.FAILED, f"the marker of the store in {self.directory} could not be written")

    async def _open_store(self) -> RocksLogStore:
        return await asyncio.to_thread(open_store, self.directory, self.settings, self.shard)

    async def _quarantine(self, reason: QuarantineReason) -> str:
        return await asyncio.to_thread(quarantine, self.directory, reason)
