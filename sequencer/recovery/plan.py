"""What recovery decides that an epoch holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from logdevice_py.core.entry import EntryFlags, EntryHeader, body_of, encode_entry, with_copyset
from logdevice_py.core.epoch_summary import EpochSummary
from logdevice_py.core.extensions import NO_TAIL_STATE, TailFlags, encode_summary
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import ESN_INVALID, ESN_MAX, LSN_INVALID, Epoch, Esn, compose_lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import TailRecord, tail_record
from sequencer.recovery.digest import CopyKind, DigestEntry, EpochDigest, Rank, is_ordered, kind_of
from sequencer.recovery.result import EpochContents

_KEPT_FLAGS = int(
    EntryFlags.WRITE_STREAM
    | EntryFlags.EPOCH_BEGIN
    | EntryFlags.METADATA
    | EntryFlags.KEYED
    | EntryFlags.CONDITIONAL
    | EntryFlags.CONTROL
)


@dataclass(slots=True)
class Decision:
    """What one ESN holds, for ever."""

    kind: CopyKind
    timestamp: Timestamp
    header: EntryHeader | None = None
    """Of an entry."""
    image: bytes = b""
    """Of an entry, until it is known to be fully replicated; empty afterwards."""


class Plan:
    """The decisions about one epoch.

    A shard keeps one copy of an LSN for each seal epoch, so everything that a recovery stores at an LSN must say the same, whatever attempt it
    comes from: a decision once made is never changed, even if a later attempt meets other shards. Whether the epoch is authoritative is
    decided by the first attempt too: then every ESN is decided, and what turns up later is a hole. Otherwise later attempts may
    still find further entries.
    """

    __slots__ = (
        "authoritative",
        "bridge",
        "decisions",
        "epoch",
        "guarded",
        "last",
        "late",
        "lng",
        "log",
        "lost",
        "seal_epoch",
        "summary",
        "tail",
        "tail_record",
    )

    def __init__(
        self, log: LogId, epoch: Epoch, seal_epoch: Epoch, lng: Esn, *, authoritative: bool, guarded: bool = False
    ) -> None:
        """`guarded`: entries of the epoch carry a tail state."""
        self.log = log
        self.epoch = epoch
        self.seal_epoch = seal_epoch
        self.lng = lng
        self.authoritative = authoritative
        self.guarded = guarded
        self.decisions: dict[Esn, Decision] = {}
        """Entries, and holes where something else had been stored. Other ESNs up to `last` are plugged if authoritative."""
        self.lost: set[Esn] = set()
        """ESNs whose copies are all damaged, or gone: neither stored nor plugged."""
        self.tail = lng
        """Greatest ESN that holds an entry; 0 if none."""
        self.bridge: Esn = ESN_INVALID
        """0: no bridge."""
        self.last = lng
        """Greatest ESN that must be looked at."""
        self.late = 0
        """Entries that were turned into holes."""
        self.tail_record: TailRecord | None = None
        self.summary: EpochSummary | None = None
        """What the epoch holds; None: its entries are not counted, or it is not authoritative."""

    @property
    def images_held(self) -> int:
        """Bytes of images kept."""
        return sum(len(decision.image) for decision in self.decisions.values())

    def decide(
        self,
        digest: EpochDigest,
        *,
        first: bool,
        unreadable: Collection[Esn],
        sealed_tail: TailRecord | None,
        previous_tail: TailRecord | None,
    ) -> None:
        """Decide what the digest shows and is not decided yet.

        Args:
            digest: of this attempt.
            first: this is the first attempt that comes this far.
            unreadable: ESNs that too many shards hold damaged, of which no good copy is known.
            sealed_tail: the last entry up to the LNG that a shard knows.
            previous_tail: the last entry of earlier epochs.
        """
        fallback = latest(sealed_tail, previous_tail)
        if first and self.lng:
            self.tail_record = self._tail_at_lng(digest.entries.get(self.lng), sealed_tail, fallback)
        elif first:
            self.tail_record = previous_tail
        self._walk(digest, first=first, unreadable=unreadable)
        for esn in sorted(self.decisions, reverse=True):
            decision = self.decisions[esn]
            if decision.kind is CopyKind.ENTRY:
                if esn > self.tail:
                    self.tail = esn
                    assert decision.header is not None
                    self.tail_record = tail_record_of(decision.header)
                break
        if self.guarded:
            self._judge_tail(previous_tail)
        if self.authoritative and first:
            end = max([self.tail, *self.lost])
            if end < ESN_MAX:
                self.bridge = Esn(end + 1)
            else:
                hit("recovery_no_room_for_bridge")
        self.last = max([self.last, self.bridge, *self.decisions, *self.lost])
        self._stamp_plugs(fallback)

    def _tail_at_lng(
        self, entry: DigestEntry | None, sealed_tail: TailRecord | None, fallback: TailRecord | None
    ) -> TailRecord:
        lsn = compose_lsn(self.epoch, self.lng)
        if sealed_tail is not None and sealed_tail.lsn == lsn and (sealed_tail.state or not self.guarded):
            return sealed_tail
        if entry is not None and entry.header is not None:
            return tail_record_of(entry.header)
        hit("recovery_tail_lost")
        return TailRecord(lsn, fallback.timestamp if fallback is not None else Timestamp(0))

    def _judge_tail(self, previous: TailRecord | None) -> None:
        """Where what was behind the last readable entry is not known, the tail record says so: nobody may take its state for the latest."""
        record = self.tail_record
        of_epoch = record is not None and record.lsn >> 32 == self.epoch
        certain = self.authoritative and not any(esn > self.tail for esn in self.lost)
        if certain and (not of_epoch or (record is not None and record.state is not None)):
            return
        hit("recovery_tail_state_lost")
        known = next((each.state for each in (record, previous) if each is not None and each.state), NO_TAIL_STATE)
        state = replace(known, flags=known.flags | TailFlags.LOST)
        self.tail_record = replace(record or TailRecord(LSN_INVALID, Timestamp(0)), state=state)

    def _walk(self, digest: EpochDigest, *, first: bool, unreadable: Collection[Esn]) -> None:
        bridge_rank: Rank | None = None
        broken = False  # a hole was seen: frames of write streams behind it were never acknowledged
        expected = self.lng + 1
        total = self.authoritative and not first
        for esn in sorted({esn for esn in digest.entries if esn > self.lng} | set(self.decisions)):
            if self.authoritative and esn != expected:
                broken = True
            expected = esn + 1
            entry = digest.entries.get(esn)
            decided = self.decisions.get(esn)
            if decided is not None:
                if entry is not None:
                    self._refresh(decided, entry)
                broken = broken or decided.kind is not CopyKind.ENTRY
                continue
            assert entry is not None
            if total and esn not in self.lost:
                if entry.header is not None and not entry.header.is_hole:
                    hit("recovery_entry_after_decision")
                self.last = max(self.last, esn)
                continue
            if entry.header is None:
                if esn in unreadable or not self.authoritative:
                    self.lost.add(esn)
                else:
                    # Enough other shards hold nothing: it is plugged, also behind the bridge, for the copy may become readable again.
                    broken = True
                    self.last = max(self.last, esn)
                continue
            kind = kind_of(entry.header)
            if kind is CopyKind.BRIDGE:
                rank = entry.header.rank
                bridge_rank = rank if bridge_rank is None else max(bridge_rank, rank)
            elif kind is CopyKind.ENTRY and bridge_rank is not None and entry.header.rank < bridge_rank:
                hit("recovery_entry_behind_bridge")
                self.late += 1
                kind = CopyKind.HOLE
            elif kind is CopyKind.ENTRY and broken and is_ordered(entry.header):
                hit("recovery_stream_broken")
                self.late += 1
                kind = CopyKind.HOLE
            self.lost.discard(esn)
            if kind is CopyKind.ENTRY:
                self.decisions[esn] = Decision(kind, entry.header.timestamp, entry.header, entry.image)
            else:
                broken = True
                self.decisions[esn] = Decision(CopyKind.HOLE, entry.header.timestamp)

    def _refresh(self, decided: Decision, entry: DigestEntry) -> None:
        """A later attempt may need the image again: any copy of an entry has the same body."""
        if (
            decided.kind is CopyKind.ENTRY
            and not decided.image
            and entry.header is not None
            and not entry.header.is_hole
        ):
            decided.header, decided.image = entry.header, entry.image

    def _stamp_plugs(self, fallback: TailRecord | None) -> None:
        """Holes that replace something take the timestamp of the entry before them, so that timestamps do not jump."""
        stamp = self._stamp_before_first(fallback)
        for esn in sorted(self.decisions):
            decision = self.decisions[esn]
            if decision.kind is CopyKind.ENTRY:
                stamp = decision.timestamp
            else:
                decision.timestamp = stamp

    def _stamp_before_first(self, fallback: TailRecord | None) -> Timestamp:
        if self.lng and self.tail_record is not None and self.tail_record.lsn == compose_lsn(self.epoch, self.lng):
            return self.tail_record.timestamp
        for esn in sorted(self.decisions):
            if self.decisions[esn].kind is CopyKind.ENTRY:
                return self.decisions[esn].timestamp
        return fallback.timestamp if fallback is not None else Timestamp(0)

    def positions(self, fallback: TailRecord | None) -> Iterator[tuple[Esn, Decision]]:
        """What each ESN above the LNG holds, ascending; an ESN about which nothing may be said is left out."""
        stamp = self._stamp_before_first(fallback)
        if not self.authoritative:
            yield from ((esn, self.decisions[esn]) for esn in sorted(self.decisions))
            return
        for number in range(self.lng + 1, self.last + 1):
            esn = Esn(number)
            decision = self.decisions.get(esn)
            if decision is not None and decision.kind is CopyKind.ENTRY:
                stamp = decision.timestamp
                yield esn, decision
            elif self.bridge and esn >= self.bridge:
                # What is plugged behind the bridge is one as well: the first one may be trimmed away, or a reader begin behind it.
                yield esn, Decision(CopyKind.BRIDGE, stamp)
            elif decision is not None:
                yield esn, decision
            elif esn not in self.lost:
                yield esn, Decision(CopyKind.HOLE, stamp)

    def contents(self) -> EpochContents:
        """What the epoch holds, once its shards have been brought to it."""
        entries = sorted(esn for esn, decision in self.decisions.items() if decision.kind is CopyKind.ENTRY)
        return EpochContents(
            self.epoch,
            self.lng,
            tuple(esn for esn in entries if esn not in self.lost),
            frozenset(self.lost),
            self.tail,
            self.authoritative,
        )

    def encode(self, esn: Esn, decision: Decision, copyset: tuple[ShardId, ...]) -> bytes:
        """The image that recovery stores on the shards of `copyset`."""
        flags = int(EntryFlags.WRITTEN_BY_RECOVERY)
        if decision.kind is CopyKind.ENTRY:
            assert decision.header is not None
            assert decision.image, esn
            header = with_copyset(
                decision.header,
                wave=self.seal_epoch,
                copyset=copyset,
                flags=flags | (decision.header.flags & _KEPT_FLAGS),
            )
            header.lng = self.lng
            return encode_entry(header, body_of(decision.image))
        flags |= int(EntryFlags.HOLE)
        lsn = compose_lsn(self.epoch, esn)
        header = EntryHeader(self.log, lsn, decision.timestamp, self.seal_epoch, copyset, self.lng, 0, flags)
        if decision.kind is CopyKind.BRIDGE:
            header.flags |= int(EntryFlags.BRIDGE)
            if self.summary is not None:
                header.extensions = encode_summary(self.summary)
        return encode_entry(header, b"")


def tail_record_of(header: EntryHeader) -> TailRecord:
    """The tail record of an epoch that ends with an entry."""
    return tail_record(header.lsn, header.timestamp, header.records, header.extensions)


def latest(one: TailRecord | None, other: TailRecord | None) -> TailRecord | None:
    """The later of two tail records that may be missing; of one entry the record that says more."""
    if one is None or other is None:
        return one or other
    if one.lsn == other.lsn and one.records is None:
        return other
    return one if one.lsn >= other.lsn else other
