"""What the shards hold of an epoch above its LNG, as far as they have told."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from logdevice_py.core.entry import EntryFlags, EntryHeader, check_body, parse_header
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import Epoch, Esn, Lsn, compose_lsn, esn_of
from logdevice_py.core.status import CorruptEntryError

Rank = tuple[int, int]
_ORDERED = int(EntryFlags.WRITE_STREAM | EntryFlags.CONDITIONAL)


class CopyKind(enum.Enum):
    """What one ESN holds."""

    ENTRY = "entry"  # a record or a batch of them
    HOLE = "hole"  # nothing, for ever
    BRIDGE = "bridge"  # nothing, and the epoch ends


def kind_of(header: EntryHeader) -> CopyKind:
    """What a copy says its ESN holds."""
    if header.is_bridge:
        return CopyKind.BRIDGE
    return CopyKind.HOLE if header.is_hole else CopyKind.ENTRY


@dataclass(slots=True)
class Copy:
    """One shard's copy of one ESN."""

    kind: CopyKind
    rank: Rank
    copyset: tuple[ShardId, ...]


@dataclass(slots=True)
class DigestEntry:
    """What is known of one ESN."""

    header: EntryHeader | None = None
    """Of the copy of highest rank; None while only damaged copies were seen."""
    image: bytes = b""
    copies: dict[ShardId, Copy] = field(default_factory=dict)
    damaged: set[ShardId] = field(default_factory=set)
    """Shards whose copy cannot be read."""


class EpochDigest:
    """Collects copies; of each ESN the image of highest rank is kept, the others are only remembered as headers.

    An old sequencer never had more bytes above the LNG than its window, so that is about what a digest holds.
    """

    __slots__ = ("bytes_held", "entries", "epoch", "log")

    def __init__(self, log: LogId, epoch: Epoch) -> None:
        self.log = log
        self.epoch = epoch
        self.entries: dict[Esn, DigestEntry] = {}
        self.bytes_held = 0

    def add(self, shard: ShardId, lsn: Lsn, image: bytes) -> bool:
        """A copy that the shard holds. An empty image: it holds one that cannot be read; that counts as damaged, not as absent.

        False: the image is not what the shard sent, since shards check what they read. It says nothing of the copy.
        """
        assert lsn >> 32 == self.epoch, (lsn, self.epoch)
        if not image:
            self._entry(lsn).damaged.add(shard)
            return True
        try:
            header = parse_header(image)
            check_body(image, header)
        except CorruptEntryError:
            return False
        entry = self._entry(lsn)
        if header.is_amend or header.lsn != lsn or header.log != self.log:
            entry.damaged.add(shard)
            return True
        entry.copies[shard] = Copy(kind_of(header), header.rank, header.copyset)
        if entry.header is None or header.rank > entry.header.rank:
            self.bytes_held += len(image) - len(entry.image)
            entry.header, entry.image = header, image
        return True

    def _entry(self, lsn: Lsn) -> DigestEntry:
        return self.entries.setdefault(esn_of(lsn), DigestEntry())

    def drop_shard(self, shard: ShardId) -> None:
        """The shard's copies no longer count. An image that came from it stays: it was stored, so it may be chosen."""
        for entry in self.entries.values():
            entry.copies.pop(shard, None)
            entry.damaged.discard(shard)

    def lsn(self, esn: Esn) -> Lsn:
        """The LSN of an ESN of the epoch."""
        return compose_lsn(self.epoch, esn)

    def damaged_shards(self, above: Esn) -> dict[Esn, set[ShardId]]:
        """Per ESN above `above` of which a copy is damaged: the shards that hold one."""
        return {esn: entry.damaged for esn, entry in self.entries.items() if esn > above and entry.damaged}


def is_ordered(header: EntryHeader) -> bool:
    """It was acknowledged only when all before it was stored: it holds frames of write streams, or a conditional append."""
    return bool(header.flags & _ORDERED)
