"""Syncs that the kernel does beside the event loop: Linux's asynchronous I/O (`io_submit` with FDSYNC), told by an eventfd that the loop watches.

A thread that syncs competes with the loop for the interpreter: seven to ten switches a sync, where this takes one. Where the kernel does not offer it
(before Linux 4.18, in some sandboxes) `KernelSyncUnavailableError` says so, and a thread does it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from typing import Final

from logdevice_py.core.status import Status
from storage_node.log_store.extents.chain import SyncTicket
from storage_node.log_store.extents.disk import DiskError, File
from storage_node.log_store.extents.real_disk import HeldDescriptor, RealFile
from storage_node.log_store.extents.store import ExtentLogStore

_SETUP, _DESTROY, _GETEVENTS, _SUBMIT = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}.get(
    platform.machine(), (-1, -1, -1, -1)
)
_FDSYNC: Final = 3
_RESFD: Final = 1
FILES_MAX: Final = 32
"""Files of one sync: a store has a few that were written since the last one."""


class KernelSyncUnavailableError(Exception):
    """The kernel does not sync files asynchronously, or not these."""


class _Request(ctypes.Structure):
    """struct iocb."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("eventfd", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """struct io_event."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("second_result", ctypes.c_int64),
    )


class KernelQueue:
    """Asynchronous syncs of files: the kernel's side."""

    def __init__(self) -> None:
        """
        Raises:
            KernelSyncUnavailableError: there is nothing of the kind.
        """
        if platform.system() != "Linux" or _SETUP < 0 or ctypes.sizeof(ctypes.c_long) != 8:
            raise KernelSyncUnavailableError(f"{platform.system()} on {platform.machine()} is not known")
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        if self._call(ctypes.c_long(_SETUP), ctypes.c_long(FILES_MAX), ctypes.byref(self._context)) != 0:
            raise KernelSyncUnavailableError(f"io_setup: {os.strerror(ctypes.get_errno())}")
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable when a sync has ended."""
        self._requests = (_Request * FILES_MAX)()
        addresses = [ctypes.addressof(each) for each in self._requests]
        self._pointers = (ctypes.c_void_p * FILES_MAX)(*addresses)
        self._events = (_Event * FILES_MAX)()

    def submit(self, descriptors: Sequence[int]) -> None:
        """Begin to sync files, as fdatasync does.

        Raises:
            KernelSyncUnavailableError: not all are begun; those that are end as others do.
        """
        count = len(descriptors)
        for at, descriptor in enumerate(descriptors):
            self._requests[at] = _Request(opcode=_FDSYNC, descriptor=descriptor, flags=_RESFD, eventfd=self.descriptor)
        begun = self._call(ctypes.c_long(_SUBMIT), self._context, ctypes.c_long(count), self._pointers)
        if begun != count:
            raise KernelSyncUnavailableError(f"io_submit: {begun} of {count}: {os.strerror(ctypes.get_errno())}")

    def results(self) -> list[int]:
        """Of the syncs that have ended: 0, or an errno below 0."""
        try:
            os.eventfd_read(self.descriptor)
        except BlockingIOError:
            return []
        count = self._call(
            ctypes.c_long(_GETEVENTS), self._context, ctypes.c_long(0), ctypes.c_long(FILES_MAX), self._events, None
        )
        return [self._events[at].result for at in range(max(0, count))]

    def close(self) -> None:
        """Wait for what is under way, and end."""
        self._call(ctypes.c_long(_DESTROY), self._context)
        os.close(self.descriptor)


def _real(file: File) -> RealFile:
    assert isinstance(file, RealFile)
    return file


class KernelSync:
    """Syncs a store in extents, one sync at a time, all its files at once. Calls of the loop's thread."""

    def __init__(
        self,
        store: ExtentLogStore,
        queue: KernelQueue,
        loop: AbstractEventLoop,
        done: Callable[[Status, int], None],
        fall_back: Callable[[], None],
    ) -> None:
        """
        Args:
            queue: of nobody else; it is closed with this.
            done: called with the outcome and the time that it took, in microseconds.
            fall_back: the kernel does not do it after all: sync otherwise, now and from here on. This is closed then.
        """
        self.ended_ns = 0
        """When the last sync ended, by the monotonic clock, as the loop saw it."""
        self._store = store
        self._queue = queue
        self._loop = loop
        self._done = done
        self._fall_back = fall_back
        self._ticket: SyncTicket | None = None
        """Of the sync that is under way."""
        self._held: list[HeldDescriptor] = []
        """Its files stay open."""
        self._left = 0
        """Files of it that are not synced."""
        self._failure = ""
        self._began_ns = 0
        loop.add_reader(queue.descriptor, self._on_results)

    def request(self) -> None:
        """Sync what is written by now."""
        assert self._ticket is None, "one sync at a time"
        self._began_ns = time.monotonic_ns()
        ticket = self._store.begin_sync()
        self._failure = ""
        files = [_real(file) for file, _ in ticket.files]
        try:
            self._held = [file.begin_sync() for file in files]
        except DiskError as error:
            self._failure = str(error)
        if not files or self._failure:
            self._ticket = ticket
            self._loop.call_soon(self._end)
            return
        try:
            if len(files) > FILES_MAX:
                raise KernelSyncUnavailableError(f"{len(files)} files")
            self._queue.submit([held.number for held in self._held])
        except KernelSyncUnavailableError:
            # nothing of this ticket counts: who syncs otherwise has to sync its files, too
            self._held = []
            for file in files:
                file.abandon_sync()
            self._store.abandon_sync(ticket)
            self.close()
            self._fall_back()
            return
        self._ticket, self._left = ticket, len(files)

    def _on_results(self) -> None:
        for result in self._queue.results():
            if result < 0:
                self._failure = self._failure or f"fdatasync: {os.strerror(-result)}"
            self._left -= 1
        if self._ticket is not None and self._left == 0:
            self._end()

    def _end(self) -> None:
        ticket, self._ticket, self._held = self._ticket, None, []
        assert ticket is not None
        self.ended_ns = time.monotonic_ns()
        self._done(self._store.end_sync(ticket, self._failure), (self.ended_ns - self._began_ns) // 1000)

    def close(self) -> None:
        """Nothing is under way any more, or nobody waits for it."""
        self._loop.remove_reader(self._queue.descriptor)
        self._queue.close()
