"""Some entries of one log: new members of their copysets get whole copies, then those that are left learn the new copysets."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from logdevice_py.core.entry import EntryFlags, EntryHeader, body_of, encode_entry, encode_header
from logdevice_py.core.ids import Generation, LogId, ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from storage_node.rebuilding.context import DonorContext
from storage_node.rebuilding.receiver import Copy, RebuildStoreHandler

_FOR_NOW: Final = frozenset({Status.AGAIN, Status.OVERLOADED})


class ChunkState(enum.Enum):
    """How far a chunk is."""

    STORING = enum.auto()  # new members get whole copies
    AMENDING = enum.auto()  # those that are left are told of the new copysets
    OWN = enum.auto()  # the donor's own copies get them
    DONE = enum.auto()  # all of it is on disk, or a new member failed


@dataclass(slots=True)
class EntryWork:
    """One entry and where it is to be."""

    header: EntryHeader
    """As it will be: with the new copyset."""
    image: bytes
    """As it will be, whole."""
    kept: tuple[ShardId, ...]
    added: tuple[ShardId, ...]


def entry_work(header: EntryHeader, image: bytes, kept: tuple[ShardId, ...], added: tuple[ShardId, ...]) -> EntryWork:
    """Work on an entry as it is stored here."""
    moved = replace(header, copyset=(*kept, *added))
    return EntryWork(moved, encode_entry(moved, body_of(image)), kept, added)


def _other_header(each: EntryWork) -> Copy:
    """What tells a shard that keeps its copy of the new copyset: an AMEND, or the whole of what has no body."""
    if not each.header.body_length:
        return each.header, each.image
    header = replace(each.header, flags=each.header.flags | EntryFlags.AMEND)
    return header, encode_header(header)


ChunkDone = Callable[[dict[ShardId, Status], Micros], None]
"""(shards that did not store what they should, and what they said; empty: all is done)."""


class ChunkRebuilding:
    """Carries out the work on some entries, in ascending order. Repeating it does no harm."""

    __slots__ = (
        "_again",
        "_context",
        "_done",
        "_failed",
        "_generations",
        "_log",
        "_own",
        "_own_store",
        "_retries",
        "_waiting",
        "state",
        "work",
    )

    def __init__(
        self,
        log: LogId,
        work: list[EntryWork],
        own: ShardId,
        generations: Mapping[ShardId, Generation],
        context: DonorContext,
        own_store: RebuildStoreHandler,
        done: ChunkDone,
        *,
        retries: bool,
    ) -> None:
        """
        Args:
            retries: a shard that is left and says that it cannot learn its new copysets yet is tried again.
        """
        self.state = ChunkState.STORING
        self.work = work
        self._log = log
        self._own = own
        self._generations = generations
        self._context = context
        self._own_store = own_store
        self._done = done
        self._retries = retries
        self._waiting = 0
        self._failed: dict[ShardId, Status] = {}
        self._again: dict[ShardId, list[Lsn]] = {}

    @property
    def size(self) -> int:
        """Bytes of whole copies that are to be sent."""
        return sum(len(each.image) * len(each.added) for each in self.work)

    def start(self, now: Micros) -> None:
        """Begin."""
        if self.state is ChunkState.DONE:
            return
        by_target: dict[ShardId, list[tuple[Lsn, bytes]]] = {}
        for each in self.work:
            for target in each.added:
                by_target.setdefault(target, []).append((each.header.lsn, each.image))
        self._waiting = len(by_target)
        for target, images in sorted(by_target.items()):
            self._send(target, images, self._on_stored, now)
        if not by_target:
            self._amend(now)

    def cancel(self) -> None:
        """Do nothing more, whatever is answered; `done` is not called."""
        self.state = ChunkState.DONE

    def _send(
        self,
        target: ShardId,
        images: list[tuple[Lsn, bytes]],
        done: Callable[[ShardId, Status, list[Lsn], Micros], None],
        now: Micros,
    ) -> None:
        self._context.requests.send(
            target,
            self._generations[target],
            self._log,
            images,
            lambda status, lacking, at: done(target, status, lacking, at),
            now,
        )

    def _on_stored(self, target: ShardId, status: Status, lacking: list[Lsn], now: Micros) -> None:
        if self.state is ChunkState.DONE:
            return
        self._waiting -= 1
        if status is not Status.OK:
            self._failed[target] = status
        if self._waiting:
            return
        if self._failed:
            self._finish(now)
            return
        metrics = self._context.metrics
        metrics.records_rebuilt += sum(1 for each in self.work if each.added)
        metrics.bytes_rebuilt += self.size
        self._amend(now)

    def _amend(self, now: Micros) -> None:
        """A shard that cannot be told keeps copies with the old copyset: readers ask the others then, and its own scan finds them."""
        self.state = ChunkState.AMENDING
        by_target: dict[ShardId, list[tuple[Lsn, bytes]]] = {}
        for each in self.work:
            _, image = _other_header(each)
            for target in each.kept:
                if target != self._own:
                    by_target.setdefault(target, []).append((each.header.lsn, image))
        self._waiting = len(by_target)
        for target, images in sorted(by_target.items()):
            self._send(target, images, self._on_amended, now)
        if not by_target:
            self._write_own(now)

    def _on_amended(self, target: ShardId, status: Status, lacking: list[Lsn], now: Micros) -> None:
        if self.state is ChunkState.DONE:
            return
        self._waiting -= 1
        if status in _FOR_NOW and self._retries:
            self._failed[target] = status
        elif status is not Status.OK:
            hit("rebuilding_amend_skipped")
            self._context.metrics.amends_skipped += 1
        elif lacking:
            self._again[target] = lacking
        if self._waiting:
            return
        again, self._again = self._again, {}
        self._waiting = len(again)
        for target, lsns in sorted(again.items()):
            hit("rebuilding_finds_copy_missing")
            wanted = set(lsns)
            images = [(each.header.lsn, each.image) for each in self.work if each.header.lsn in wanted]
            self._send(target, images, self._on_amended, now)
        if again:
            return
        if self._failed:
            self._finish(now)
        else:
            self._write_own(now)

    def _write_own(self, now: Micros) -> None:
        self.state = ChunkState.OWN
        mine = [_other_header(each) for each in self.work if self._own in each.kept]
        self._context.metrics.records_amended += len(mine)
        self._own_store.store(self._log, mine, [], self._on_own, now)

    def _on_own(self, status: Status, lacking: list[Lsn], now: Micros) -> None:
        if self.state is ChunkState.DONE:
            return
        if status is not Status.OK:
            self._failed[self._own] = status
        self._finish(now)

    def _finish(self, now: Micros) -> None:
        self.state = ChunkState.DONE
        self._done(self._failed, now)
