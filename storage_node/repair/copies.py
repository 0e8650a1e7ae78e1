"""COMPARE and FETCH: what a shard tells another one about copies that both should have.

A shard speaks only of what is released here, or of metadata logs, whose entries are true whenever they are stored: what lies at such an LSN
never changes, so a copy of it that is sound may be stored anywhere.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Final

from logdevice_py.core.ids import LogId, PeerId, is_metadata_log
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import Compare, Compared, Fetch, Fetched
from logdevice_py.protocol.routing import handles
from storage_node.log_state import LogState
from storage_node.log_store.interface import ReadResult
from storage_node.log_store.wanted import members, no_body
from storage_node.lsn_ranges import alike_until
from storage_node.shard import Shard

_BODY_CRC: Final = slice(20, 24)
_KEY: Final = struct.Struct(">Q")
_ENTRIES_MAX: Final = 4000
_COMPARE_BYTES_MAX: Final = 64 << 20
_UNDER_WAY_MAX: Final = 16
"""Requests of other shards that are worked on at a time; more are answered OVERLOADED, and asked again."""


class EntriesDigest:
    """Count and digest of entries that come in order. Every copy of an entry, whatever its wave and copyset, counts the same."""

    __slots__ = ("_hash", "count")

    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.blake2b(digest_size=8)

    def add(self, lsn: Lsn, image: bytes) -> None:
        """The next entry."""
        self.count += 1
        self._hash.update(_KEY.pack(lsn) + image[_BODY_CRC])

    @property
    def value(self) -> int:
        """Of all so far."""
        return int.from_bytes(self._hash.digest(), "big")


class CopiesHandler:
    """Answers the COMPAREs and FETCHes of other shards."""

    __slots__ = ("_found_damage", "_shard", "_under_way")

    def __init__(self, shard: Shard, found_damage: Callable[[LogState, ReadResult], None]) -> None:
        """
        Args:
            found_damage: gets reads that met damage.
        """
        self._shard = shard
        self._found_damage = found_damage
        self._under_way = 0

    def _refusal(self, generation: int, log: LogId, last: Lsn) -> Status:
        shard = self._shard
        status = shard.status()
        if status is not Status.OK:
            return status
        if shard.is_other_generation(generation):
            return Status.REBUILDING
        if shard.find(log) is None:
            # it was never here: a metadata log is known from its first entry on, of others everything may lie ahead
            if not is_metadata_log(log):
                return Status.AGAIN
            return Status.REBUILDING if self._may_have_lost(log, generation) else Status.OK
        return Status.OVERLOADED if self._under_way >= _UNDER_WAY_MAX else Status.OK

    @handles(Compare)
    def on_compare(self, peer: PeerId, message: Compare, now: Micros) -> None:
        """Read the headers of the range to its end, and compare. Bodies are for each shard's own scrubber to read."""
        log, last = message.log, message.last
        status = self._refusal(message.generation, log, last)
        state = self._shard.find(log)
        if status is not Status.OK or state is None or not 0 < message.first <= last:
            equal = status is Status.OK and not message.count
            self._compared(peer, message, status, equal=equal, lsns=[])
            return
        if last > state.immutable_through and not is_metadata_log(log):
            # it cannot agree, but can tell what it has of the part that it knows
            status, last = Status.AGAIN, state.immutable_through
            if last < message.first:
                self._compared(peer, message, status, equal=False, lsns=[])
                return
        digest, lsns = EntriesDigest(), []
        read = 0
        self._under_way += 1

        def done(result: ReadResult, now: Micros) -> None:
            nonlocal read, status
            read += sum([len(image) for _, image in result.entries])
            self._examine(state, result)
            if result.status is not Status.OK:
                status = Status.FAILED
            elif status is Status.OK and self._may_lack(state, message.first, last, message.generation, result):
                status = Status.REBUILDING
            for lsn, image in result.entries:
                if message.holder in members(image):
                    digest.add(lsn, image)
                    lsns.append(int(lsn))
            if result.status is Status.OK and result.through < last and read < _COMPARE_BYTES_MAX:
                self._read(state, Lsn(result.through + 1), last, done)
                return
            self._under_way -= 1
            if result.through < last and status is Status.OK:
                status = Status.TOOBIG
            equal = status is not Status.AGAIN and (digest.count, digest.value) == (message.count, message.digest)
            self._compared(peer, message, status, equal=equal, lsns=[] if equal else lsns[:_ENTRIES_MAX])

        self._read(state, message.first, last, done)

    @handles(Fetch)
    def on_fetch(self, peer: PeerId, message: Fetch, now: Micros) -> None:
        """Send what the asker should have."""
        log, last = message.log, message.last
        status = self._refusal(message.generation, log, last)
        state = self._shard.find(log)
        if status is not Status.OK or state is None or not 0 < message.first <= last:
            through = last if status is Status.OK else Lsn(message.first - 1)
            self._fetched(peer, message, status, through, [])
            return
        if last > state.immutable_through and not is_metadata_log(log):
            last = state.immutable_through
            if last < message.first:
                self._fetched(peer, message, Status.AGAIN, Lsn(message.first - 1), [])
                return
        # one answer is of a range that is dirty here, or of one that is not
        dirty, last = alike_until(state.dirty or (), message.first, last)
        self._under_way += 1

        def is_held(image: bytes) -> bool:
            # of metadata logs a shard may have got back what its copyset does not say
            return is_metadata_log(log) or message.holder in members(image)

        def done(result: ReadResult, now: Micros) -> None:
            self._under_way -= 1
            self._examine(state, result)
            status, through = result.status, result.through
            if status is not Status.OK:
                self._fetched(peer, message, Status.FAILED, Lsn(message.first - 1), [])
                return
            if self._may_lack(state, message.first, through, message.generation, result):
                status = Status.REBUILDING
            sent = [(lsn, image) for lsn, image in result.entries if is_held(image)]
            readable = not (result.corrupt or result.bodiless)
            self._fetched(peer, message, status, through, sent, lossy=dirty and readable)

        bytes_max = max(1, min(message.bytes_max, self._shard.settings.digest_bytes_max))
        self._shard.reads.read(log, message.first, last, bytes_max, _ENTRIES_MAX, done, is_held)

    def _read(self, state: LogState, first: Lsn, last: Lsn, done: Callable[[ReadResult, Micros], None]) -> None:
        shard = self._shard
        shard.reads.read(state.log, first, last, shard.settings.read_bytes_max, _ENTRIES_MAX, done, no_body)

    def _may_lack(self, state: LogState, first: Lsn, last: Lsn, generation: int, result: ReadResult) -> bool:
        """Whether the shard may have lost something of the range, or cannot read it."""
        if result.corrupt or result.bodiless or state.is_dirty(first, last):
            return True
        return self._may_have_lost(state.log, generation)

    def _may_have_lost(self, log: LogId, generation: int) -> bool:
        """Whether an earlier generation may have held copies."""
        return is_metadata_log(log) and not self._shard.metadata_authoritative and not generation

    def _examine(self, state: LogState, result: ReadResult) -> None:
        if result.corrupt or result.bodiless:
            hit("comparison_met_damage")
            self._found_damage(state, result)

    def _compared(self, peer: PeerId, message: Compare, status: Status, *, equal: bool, lsns: list[int]) -> None:
        self._shard.metrics.comparisons_answered += 1
        self._shard.out.send(
            peer,
            Compared(
                request_id=message.request_id,
                shard=message.shard,
                log=message.log,
                status=status,
                equal=equal,
                lsns=lsns,
            ),
        )

    def _fetched(
        self,
        peer: PeerId,
        message: Fetch,
        status: Status,
        through: Lsn,
        entries: list[tuple[Lsn, bytes]],
        *,
        lossy: bool = False,
    ) -> None:
        images = [image for _, image in entries]
        self._shard.metrics.copies_sent += len(images)
        self._shard.out.send(
            peer,
            Fetched(
                request_id=message.request_id,
                shard=message.shard,
                log=message.log,
                status=status,
                through=through,
                entries=[(int(lsn), len(image)) for lsn, image in entries],
                images=b"".join(images),
                lossy=lossy,
            ),
        )
