"""One read stream: what one reader wants of one log from this shard, and how far it has been told.

The reader learns for every LSN up to its window either that it holds an entry of this shard's to deliver or that it does not: RECORDS say so
for the LSNs between their entries too, GAPs for the rest. Nothing beyond the release pointer is ever spoken of, except that it is trimmed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from logdevice_py.core.entry import EntryFlags, encode_header, parse_header
from logdevice_py.core.ids import PeerId
from logdevice_py.core.lsn import LSN_MAX, LSN_OLDEST, Lsn
from logdevice_py.core.machine import Outbox
from logdevice_py.core.states import MachineState, transitions
from logdevice_py.protocol.messages import GapReason, Records, ShardGap, Start, StartFlags, Window
from storage_node.epochs.epoch_ends import END_COST, known_ends, with_ends
from storage_node.log_state import LogState
from storage_node.log_store.wanted import (
    SingleCopy,
    Wants,
    no_body,
    pack_order,
    pack_shards,
    single_copy,
    unpack_order,
    unpack_shards,
)
from storage_node.lsn_ranges import alike_until
from storage_node.metrics import StorageMetrics
from storage_node.reading.read_quotas import ReadAllowance

_AMEND: Final = EntryFlags.AMEND
ENTRY_COST: Final = 2048
"""What it costs of a turn to look at an entry beside its bytes, in bytes: some 2 us."""
ENTRIES_PER_MESSAGE_MAX: Final = 4000
"""Below what the declaration of RECORDS allows, so that its fields stay small."""


class ServerStreamState(MachineState):
    """What a read stream is doing."""

    WAITING = "waiting"  # for RELEASE, WINDOW or TRIM: nothing can be sent
    QUEUED = "queued"  # in line to be served
    THROTTLED = "throttled"  # in the line of a quota
    READING = "reading"  # a read of its is with the disk, or in line for it
    CLOSED = "closed"  # stopped, read to its end, or its reader is gone


_S = ServerStreamState
SERVER_STREAM_TRANSITIONS: Final = transitions(
    {
        _S.WAITING: (_S.QUEUED, _S.THROTTLED, _S.READING, _S.CLOSED),
        _S.QUEUED: (_S.WAITING, _S.CLOSED),
        _S.THROTTLED: (_S.WAITING, _S.CLOSED),
        _S.READING: (_S.WAITING, _S.CLOSED),
        _S.CLOSED: (),
    }
)


class StreamQueue(Protocol):
    """Where a stream gets in line."""

    def push(self, stream: ServerReadStream) -> None:
        """Serve the stream when its turn comes."""


class ServerReadStream:
    """A stream of one reader. `CatchupQueue` decides when it is served.

    A shard has up to hundreds of thousands, most of them idle: what they have in common is not kept in each.
    """

    __slots__ = (
        "_known_down",
        "_metrics",
        "_no_payload",
        "_order",
        "_out",
        "_queue",
        "_replication",
        "_shard",
        "_single_copy",
        "credit",
        "filter_version",
        "hedge",
        "log",
        "peer",
        "place",
        "position",
        "sent",
        "state",
        "stream",
        "until",
        "window_high",
    )

    def __init__(
        self, peer: PeerId, log: LogState, start: Start, queue: StreamQueue, out: Outbox, metrics: StorageMetrics
    ) -> None:
        self.peer = peer
        self.log = log
        self.stream = start.stream
        self.place = -1
        self.state = ServerStreamState.WAITING
        self._shard = start.shard
        self._queue = queue
        self._out = out
        self._metrics = metrics
        self.rewind(start)

    def rewind(self, start: Start) -> None:
        """Begin (again) at `start.first` under its filter version."""
        self.filter_version = start.filter_version
        self.position: Lsn = max(start.first, LSN_OLDEST)
        """The first LSN of which the reader has not been told."""
        self.until: Lsn = LSN_MAX if start.until >= LSN_MAX else start.until
        self.window_high: Lsn = self.until if start.window_high >= self.until else start.window_high
        """The last LSN that the reader takes; nothing beyond `until` matters."""
        self.credit = start.bytes_credit
        self.sent = 0
        """Bytes of images sent under this filter version; stays below the credit until one entry passes it, so that each window lets
        at least one entry through, however large."""
        self._single_copy = bool(start.flags & StartFlags.SINGLE_COPY)
        self._no_payload = bool(start.flags & StartFlags.NO_PAYLOAD)
        self.hedge = bool(start.flags & StartFlags.HEDGE)
        """It asks for what another shard should have sent."""
        self._known_down = pack_shards(start.known_down)
        self._order = pack_order(tuple(start.order)) if start.order else b""
        self._replication = start.replication

    def become(self, state: ServerStreamState) -> None:
        """Only its queue calls this."""
        assert state in self.state.followed_by, (self.state, state)
        self.state = state

    def wake(self) -> None:
        """Something moved that the stream may have waited for."""
        if self.state is ServerStreamState.WAITING:
            self._queue.push(self)

    def awaits(self, image: bytes) -> bool:
        """The reader is to get this entry, which is not released yet, from here."""
        return not self._single_copy or self._is_to_ship(image)

    @property
    def _is_to_ship(self) -> SingleCopy:
        """What single copy delivery leaves to this shard."""
        return single_copy(self._shard, self._known_down, self._replication, self._order)

    def on_window(self, message: Window) -> None:
        """The reader can take more."""
        if message.filter_version != self.filter_version:
            return
        if message.high > self.window_high:
            self.window_high = min(self.until, message.high)
        self.credit = max(self.credit, message.bytes_credit)
        self.wake()

    @property
    def single_copy(self) -> bool:
        """The reader gets each entry from one shard of its copyset."""
        return self._single_copy

    @property
    def known_down(self) -> frozenset[int]:
        """Shards that the reader gets nothing from."""
        return unpack_shards(self._known_down)

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """Shards and their tiers, by which the reader wants entries to be sent; empty: by their places in the header."""
        return unpack_order(self._order)

    @property
    def wants(self) -> Wants | None:
        """Of which entries the body has to be read."""
        if self._no_payload:
            return no_body
        return self._is_to_ship if self._single_copy else None

    @property
    def limit(self) -> Lsn:
        """The last LSN of which the reader may be told now."""
        return min(self.until, self.window_high, self.log.last_released)

    @property
    def has_credit(self) -> bool:
        """Whether the reader takes another entry."""
        return self.sent < self.credit

    @property
    def takes_more(self) -> bool:
        """Whether the reader can be told of more as soon as the log goes on; otherwise it is the reader who has to move first."""
        return self.sent < self.credit and self.position <= self.window_high

    @property
    def finished(self) -> bool:
        """The reader has been told of everything that it asked for."""
        return self.position > self.until

    def skip_trimmed(self) -> None:
        """Tell the reader of what is trimmed from where it stands."""
        trim_point = self.log.trim_point
        if self.position <= trim_point:
            self._send_gap(self.position, trim_point, GapReason.TRIM)

    def deliver(
        self,
        entries: Iterable[tuple[Lsn, bytes]],
        through: Lsn,
        message_bytes: int,
        bytes_max: int,
        corrupt: Sequence[tuple[Lsn, Lsn]] = (),
        allowance: ReadAllowance | None = None,
    ) -> int:
        """Send the entries at or after the position, all of them up to `through`, as far as credit and `bytes_max` go.

        Args:
            entries: ascending; nothing else is stored in [position, through], save in `corrupt`. Ends of epochs are added.
            through: not beyond `limit`.
            message_bytes: small entries are joined up to this size.
            bytes_max: stop when the images looked at reach this.
            corrupt: ascending ranges in which something is stored that cannot be read.
            allowance: what quotas let through; None: they do not matter.
        Returns:
            what that costs of a turn, in bytes of images looked at.
        """
        assert through <= self.log.last_released, (through, self.log.last_released)
        batch: list[tuple[int, int]] = []
        images: list[bytes] = []
        size = scanned = filtered = cost = 0
        ranges = iter(corrupt)
        damaged = next(ranges, None)
        dirty = self.log.dirty
        is_to_ship = self._is_to_ship if self._single_copy else None
        if is_to_ship is None:
            # A reader that misses something asks all shards for all that they have.
            ends, through = known_ends(self.log, self._shard, self.position, through)
            entries = with_ends(entries, ends, corrupt)
            cost = END_COST * len(ends)
        for lsn, image in entries:
            cost += ENTRY_COST
            if lsn < self.position or lsn > through:
                continue
            if self.sent >= self.credit or scanned >= bytes_max or (allowance is not None and allowance.is_used_up):
                through = Lsn(lsn - 1)
                break
            scanned += len(image)
            if is_to_ship is not None and not is_to_ship(image):
                filtered += 1
                continue
            if self._no_payload:
                image = header_only(image)
            length = len(image)
            if damaged is not None and damaged[0] < lsn:
                self._send_records(batch, images)
                batch, images, size = [], [], 0
                while damaged is not None and damaged[0] < lsn:
                    self._tell_damage(damaged, Lsn(lsn - 1))
                    damaged = next(ranges, None)
            gapped = dirty is not None and self._is_dirty_between(batch, lsn)
            if batch and (size + length > message_bytes or len(batch) >= ENTRIES_PER_MESSAGE_MAX or gapped):
                self._send_records(batch, images)
                batch, images, size = [], [], 0
            if gapped:
                self._tell_nothing(Lsn(lsn - 1))
            batch.append((lsn, length))
            images.append(image)
            size += length
            self.sent += length
            if allowance is not None:
                allowance.take(image)
        self._send_records(batch, images)
        while damaged is not None and damaged[0] <= through:
            self._tell_damage(damaged, through)
            damaged = next(ranges, None)
        if through >= self.position:
            self._tell_nothing(through)
        self._metrics.records_filtered += filtered
        return scanned + cost

    def _is_dirty_between(self, batch: list[tuple[int, int]], lsn: Lsn) -> bool:
        """Whether something before the LSN, of which the reader was not told, is not to be told by silence."""
        told = batch[-1][0] + 1 if batch else self.position
        return lsn > told and self.log.is_dirty(told, lsn - 1)

    def _send_records(self, batch: list[tuple[int, int]], images: list[bytes]) -> None:
        if not batch:
            return
        self._metrics.records_sent += len(batch)
        payload = images[0] if len(images) == 1 else b"".join(images)
        self._metrics.records_bytes_sent += len(payload)
        self._out.send(
            self.peer,
            Records(
                log=self.log.log,
                stream=self.stream,
                shard=self._shard,
                filter_version=self.filter_version,
                entries=batch,
                images=payload,
            ),
        )
        self.position = Lsn(batch[-1][0] + 1)

    def _tell_damage(self, damaged: tuple[Lsn, Lsn], last: Lsn) -> None:
        """GAP of a damaged range, within [position, last], and of what lies before it."""
        first = max(damaged[0], self.position)
        last = min(damaged[1], last)
        if first > last:
            return
        if first > self.position:
            self._tell_nothing(Lsn(first - 1))
        self._metrics.corrupt_ranges += 1
        self._send_gap(first, last, GapReason.CHECKSUM_FAIL)

    def _tell_nothing(self, last: Lsn) -> None:
        """GAPs from the position to `last`; in ranges that may have lost entries the shard does not claim that there is nothing."""
        while self.position <= last:
            dirty, until = alike_until(self.log.dirty or (), self.position, last)
            self._send_gap(self.position, until, GapReason.UNDER_REPLICATED if dirty else GapReason.NO_RECORDS)

    def _send_gap(self, first: Lsn, last: Lsn, reason: GapReason) -> None:
        metrics = self._metrics
        metrics.gaps_sent += 1
        if reason is GapReason.TRIM:
            metrics.gaps_trimmed += 1
        elif reason is GapReason.CHECKSUM_FAIL:
            metrics.gaps_damaged += 1
        elif reason is GapReason.UNDER_REPLICATED:
            metrics.gaps_under_replicated += 1
        self._out.send(
            self.peer,
            ShardGap(
                log=self.log.log,
                stream=self.stream,
                shard=self._shard,
                filter_version=self.filter_version,
                first=first,
                last=last,
                reason=int(reason),
                last_released=self.log.last_released,
            ),
        )
        self.position = Lsn(last + 1)


def header_only(image: bytes) -> bytes:
    """The image without its body: the header says so in the way of an AMEND, and keeps the length and checksum of the body."""
    header = parse_header(image, alone=True)
    return encode_header(replace(header, flags=header.flags | _AMEND)) if header.body_length else image
