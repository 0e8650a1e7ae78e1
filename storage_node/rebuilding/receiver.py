"""REBUILD_STORE: take copies of entries of clean epochs from a donor, and give copies that are here another copyset.

Seals do not matter: what a clean epoch holds is final, so a copy that comes late says nothing new. An epoch that is not clean here yet is not
touched, or its purge would delete what lies above the agreed LNG: the donor is told to come again, and the purge begun, because
the donor says that the epoch is recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from logdevice_py.core.entry import EntryFlags, EntryHeader, check_body, encode_header, merged_header, parse_header
from logdevice_py.core.ids import LogId, PeerId, is_internal_log, is_metadata_log
from logdevice_py.core.lsn import Epoch, Lsn, epoch_of
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import Micros
from logdevice_py.event_log.settings import RebuildingMetrics
from logdevice_py.protocol.messages import RebuildStore, RebuildStored
from logdevice_py.protocol.routing import handles
from storage_node.log_state import LogState
from storage_node.log_store.interface import Purpose, ReadResult
from storage_node.log_store.precedence import is_header_of_same_body
from storage_node.log_store.wanted import no_body
from storage_node.reading.release import PurgeStarter
from storage_node.shard import Shard
from storage_node.writing.recent_entries import RecentLogEntries

_AMEND: Final = int(EntryFlags.AMEND)
_BY_RECOVERY: Final = int(EntryFlags.WRITTEN_BY_RECOVERY)
_READ_BYTES: Final = 1 << 20
CopiesStored = Callable[[Status, list[Lsn], Micros], None]
"""(outcome, the LSNs that were left out because their body is not here, now)."""
Copy = tuple[EntryHeader, bytes]
"""(header, image); the image of an AMEND is its header."""


class RebuildStoreHandler:
    """Takes the REBUILD_STOREs of one shard."""

    __slots__ = ("_metrics", "_purges", "_shard", "on_taken")

    def __init__(self, shard: Shard, purges: PurgeStarter, metrics: RebuildingMetrics) -> None:
        self.on_taken: Callable[[LogId, list[Copy], Micros], None] = lambda log, copies, now: None
        """Called when copies, or copysets, of other donors are on disk."""
        self._shard = shard
        self._purges = purges
        self._metrics = metrics

    @handles(RebuildStore)
    def on_rebuild_store(self, peer: PeerId, message: RebuildStore, now: Micros) -> None:
        """Store the copies, or refuse all of them."""

        def answer(status: Status, lacking: list[Lsn], now: Micros) -> None:
            if status is Status.OK:
                self.on_taken(message.log, copies, now)
                self._metrics.copies_taken += len(message.entries) - len(lacking)
                self._metrics.bytes_taken += len(message.images)
            self._shard.out.send(
                peer,
                RebuildStored(
                    request_id=message.request_id,
                    log=message.log,
                    shard=message.shard,
                    status=status,
                    lacking=[int(lsn) for lsn in lacking],
                    append_percent=self._shard.append_delay.percent(now),
                ),
            )

        copies: list[Copy] = []
        self._shard.append_delay.note_rebuilding(now)
        refusal = self._refusal(message)
        if refusal is not Status.OK:
            answer(refusal, [], now)
            return
        try:
            copies += self._copies(message)
        except CorruptEntryError:
            hit("rebuild_store_is_damaged")
            answer(Status.BADPAYLOAD, [], now)
            return
        if any(header.flags & _AMEND for header, _ in copies):
            self._amend(message.log, copies, answer)
        else:
            self.store(message.log, copies, [], answer, now)

    def _refusal(self, message: RebuildStore) -> Status:
        shard = self._shard
        status = shard.status()
        if status is not Status.OK:
            return status
        if message.generation != shard.generation:
            return Status.REBUILDING
        if shard.drain_mark.noted:
            hit("drained_shard_takes_no_copies")
            return Status.DISABLED  # the donor has not heard of the drain
        if shard.writes.bytes_in_flight >= shard.settings.write_bytes_in_flight_max:
            return Status.OVERLOADED
        return Status.OK

    def _copies(self, message: RebuildStore) -> Iterator[Copy]:
        """The copies of the message, checked.

        Raises:
            CorruptEntryError: one is damaged, or is not what the message says.
        """
        at, images, before = 0, message.images, 0
        for lsn, length in message.entries:
            image = images[at : at + length]
            at += length
            header = parse_header(image)
            check_body(image, header)
            if (
                header.log != message.log
                or header.lsn != lsn
                or lsn <= before
                or not lsn & 0xFFFFFFFF
                or self._shard.shard not in header.copyset
            ):
                raise CorruptEntryError("the image is not the copy that the message speaks of")
            before = lsn
            yield header, image
        if at != len(images) or not message.entries:
            raise CorruptEntryError("the images do not add up")

    def _state(self, log: LogId, last: Lsn, now: Micros) -> LogState | None:
        """The log, when the epoch of `last` is clean here; else it is being made so."""
        state = self._shard.log(log)
        epoch = epoch_of(last)
        if is_metadata_log(log) or epoch <= state.clean_epoch:
            return state
        hit("rebuild_waits_for_clean_epoch")
        if not state.clean_in_flight:
            state.fence = max(state.fence, epoch)
            self._purges.start(state, Epoch(epoch), now)
        return None

    def store(self, log: LogId, copies: list[Copy], lacking: list[Lsn], done: CopiesStored, now: Micros) -> None:
        """Write whole copies, and give copies that are here the headers of AMENDs; `done` is called when that is synced."""
        shard = self._shard
        status = shard.status()
        if status is not Status.OK:
            done(status, [], now)
            return
        if not copies:
            done(Status.OK, lacking, now)
            return
        state = self._state(log, copies[-1][0].lsn, now)
        if state is None:
            done(Status.AGAIN, [], now)
            return
        replaced = state.replaced
        if replaced is not None and any(replaced[0] <= header.lsn <= replaced[1] for header, _ in copies):
            # whoever else has such an entry was perhaps asked before it knew that this shard is to hold it: the copy would be deleted
            done(Status.AGAIN, [], now)
            return
        copies = [copy for copy in copies if copy[0].lsn > state.trim_point]
        if not copies:
            done(Status.OK, lacking, now)
            return
        whole = [header.lsn for header, _ in copies if not header.flags & _AMEND]
        if whole:
            shard.donated.note(log, whole[0], whole[-1], now)
        shard.append_delay.note_rebuilding(now)
        group = shard.writes.group_for_donors(_purpose(log, copies), deferrable=shard.append_delay.percent(now) > 0)
        if copies[-1][0].lsn > state.highest:
            if state.recent is None:
                state.recent = RecentLogEntries(Lsn(state.highest + 1))
            state.highest = copies[-1][0].lsn
        for header, image in copies:
            by_recovery = bool(header.flags & _BY_RECOVERY)
            if header.flags & _AMEND:
                alone = encode_header(merged_header(header))
                group.batch.put_header(log, header.lsn, by_recovery=by_recovery, wave=header.wave, header=alone)
            else:
                group.batch.put_entry(log, header.lsn, by_recovery=by_recovery, wave=header.wave, image=image)
            shard.writes.account(group, len(image))

        def written(status: Status, now: Micros) -> None:
            if status is Status.OK and state.recent is not None:
                for header, image in copies:
                    shard.recent.add(state.recent, header.lsn, image)
            done(status, lacking if status is Status.OK else [], now)

        group.done.append(written)

    def _amend(self, log: LogId, copies: list[Copy], done: CopiesStored) -> None:
        """Look which of the copies are here, and store the others' headers."""
        asked = {header.lsn for header, _ in copies}
        held: dict[Lsn, EntryHeader] = {}
        last = copies[-1][0].lsn

        def read(first: Lsn) -> None:
            self._shard.reads.read(log, first, last, _READ_BYTES, 4096, took, no_body)

        def took(result: ReadResult, now: Micros) -> None:
            if result.status is not Status.OK:
                done(Status.FAILED, [], now)
                return
            for lsn, image in result.entries:
                if lsn in asked:
                    held[lsn] = parse_header(image, alone=True)
            if result.through < last:
                read(Lsn(result.through + 1))
                return
            here: list[Copy] = []
            lacking: list[Lsn] = []
            for header, image in copies:
                if header.flags & _AMEND and not _speaks_for(header, held.get(header.lsn)):
                    lacking.append(header.lsn)
                else:
                    here.append((header, image))
            self.store(log, here, lacking, done, now)

        read(copies[0][0].lsn)


def _purpose(log: LogId, copies: list[Copy]) -> Purpose:
    """What the copies are stored for. Those without a body take as little room as AMENDs, and may be those that are here under another header."""
    if is_metadata_log(log) or is_internal_log(log):
        return Purpose.ESSENTIAL
    brings_bodies = any(header.body_length and not header.flags & _AMEND for header, _ in copies)
    return Purpose.REBUILDING if brings_bodies else Purpose.ESSENTIAL


def _speaks_for(amend: EntryHeader, held: EntryHeader | None) -> bool:
    """Whether the copy that is held is the one to which the AMEND gives another copyset."""
    return held is not None and is_header_of_same_body(merged_header(amend), held)
