"""Syncs that the kernel does: what they cover, what fails, and who goes on where the kernel does not sync by itself."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from logdevice_py.core.status import Status
from storage_node.log_store.extents.kernel_sync import KernelQueue, KernelSync, KernelSyncUnavailableError
from storage_node.log_store.extents.real_disk import RealFile
from storage_node.log_store.extents.store import ExtentLogStore
from storage_node.log_store.interface import WriteBatch
from tests.unit.storage_node.log_store.extent_stores import open_extents
from tests.unit.storage_node.log_store.images import at, put
from tests.unit.storage_node.log_store.test_extent_store import BODY, MARKER, SETTINGS


class Told:
    """What a sync's owner was told."""

    def __init__(self) -> None:
        self.outcomes: list[Status] = []
        self.fallbacks = 0
        self.told = asyncio.Event()

    def done(self, status: Status, took: int) -> None:
        assert took >= 0
        self.outcomes.append(status)
        self.told.set()

    def fall_back(self) -> None:
        self.fallbacks += 1


class ScriptedQueue:
    """A kernel whose syncs end when the test says so."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK)
        self.submitted: list[list[int]] = []
        self.closed = False
        self._refuses = refuses
        self._results: list[int] = []

    def submit(self, descriptors: Sequence[int]) -> None:
        if self._refuses:
            raise KernelSyncUnavailableError("not here")
        self.submitted.append(list(descriptors))

    def end(self, *results: int) -> None:
        self._results += results
        os.eventfd_write(self.descriptor, 1)

    def results(self) -> list[int]:
        os.eventfd_read(self.descriptor)
        results, self._results = self._results, []
        return results

    def close(self) -> None:
        self.closed = True
        os.close(self.descriptor)


def open_store(directory: Path) -> ExtentLogStore:
    store = open_extents(directory, SETTINGS)
    assert store.adopt(MARKER, boot="boot 1", now=SETTINGS.partition_duration_us) is Status.OK  # type: ignore[arg-type]
    store.load()
    return store


def write(store: ExtentLogStore, first: int, count: int = 1) -> None:
    for esn in range(first, first + count):
        batch = WriteBatch()
        put(batch, at(esn), BODY)
        assert store.write([batch]) == [Status.OK]


def syncs_of(store: ExtentLogStore, queue: object, told: Told) -> KernelSync:
    return KernelSync(store, queue, asyncio.get_running_loop(), told.done, told.fall_back)  # type: ignore[arg-type]


async def loop_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_kernel_syncs_what_was_written_when_it_was_asked(tmp_path: Path) -> None:
    try:
        queue = KernelQueue()
    except KernelSyncUnavailableError as error:
        pytest.skip(str(error))
    store, told = open_store(tmp_path / "store"), Told()
    syncs = syncs_of(store, queue, told)
    for round_number in range(3):
        write(store, 1 + round_number)
        assert store._chain.unsynced
        told.told.clear()
        syncs.request()
        async with asyncio.timeout(10):
            await told.told.wait()
        assert told.outcomes == [Status.OK] * (round_number + 1)
        assert not store._chain.unsynced
        assert store._chain.synced == store._chain.last
    syncs.close()
    store.close()


async def test_a_sync_covers_all_files_and_ends_with_the_last_of_them(tmp_path: Path) -> None:
    store, told, queue = open_store(tmp_path / "store"), Told(), ScriptedQueue()
    syncs = syncs_of(store, queue, told)
    write(store, 1, 12)  # more than an extent holds
    (last, size) = store._chain.last, store._chain.unsynced
    syncs.request()
    ((first, second, *_),) = queue.submitted
    assert first != second
    count = len(queue.submitted[0])
    write(store, 13)  # behind it: for the next one
    queue.end(*[0] * (count - 1))
    await loop_turns()
    assert told.outcomes == []
    assert store._chain.unsynced > size
    queue.end(0)
    await loop_turns()
    assert told.outcomes == [Status.OK]
    assert store._chain.synced == last < store._chain.last
    syncs.request()
    assert len(queue.submitted) == 2
    queue.end(*[0] * len(queue.submitted[1]))
    await loop_turns()
    assert store._chain.synced == store._chain.last
    syncs.request()  # nothing was written meanwhile
    await loop_turns()
    assert (len(queue.submitted), told.outcomes) == (2, [Status.OK] * 3)
    syncs.close()
    store.close()


async def test_a_file_that_cannot_be_synced_is_the_end_of_the_store(tmp_path: Path) -> None:
    store, told, queue = open_store(tmp_path / "store"), Told(), ScriptedQueue()
    syncs = syncs_of(store, queue, told)
    write(store, 1, 12)
    syncs.request()
    queue.end(-errno.EIO, *[0] * (len(queue.submitted[0]) - 1))
    await loop_turns()
    assert told.outcomes == [Status.FAILED]
    assert store.failed
    assert store._chain.synced < store._chain.last
    batch = WriteBatch()
    put(batch, at(13), BODY)
    assert store.write([batch]) == [Status.FAILED]
    assert "Input/output error" in (tmp_path / "store" / "failed").read_text()
    syncs.close()


async def test_where_the_kernel_refuses_the_next_sync_covers_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, told, queue = open_store(tmp_path / "store"), Told(), ScriptedQueue(refuses=True)
    syncs = syncs_of(store, queue, told)
    write(store, 1)
    syncs.request()
    assert (told.fallbacks, told.outcomes, queue.closed) == (1, [], True)
    assert store._chain.unsynced
    synced: list[str] = []
    monkeypatch.setattr(RealFile, "sync", lambda file, mark: synced.append(file.name))
    assert store.sync() is Status.OK  # as the thread does
    assert len(synced) == 1
    assert not store._chain.unsynced
    monkeypatch.undo()
    store.close()


async def test_a_file_that_is_closed_for_others_stays_open_until_it_is_synced(tmp_path: Path) -> None:
    store, told, queue = open_store(tmp_path / "store"), Told(), ScriptedQueue()
    syncs = syncs_of(store, queue, told)
    write(store, 1)
    syncs.request()
    ((number,),) = queue.submitted
    (file,) = [file for file, _ in syncs._ticket.files]  # type: ignore[union-attr]
    assert isinstance(file, RealFile)
    assert [file.can_close() for _ in range(2)] == [False, True]
    assert os.fstat(number).st_size
    queue.end(0)
    await loop_turns()
    assert told.outcomes == [Status.OK]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    syncs.close()
    store.close()
