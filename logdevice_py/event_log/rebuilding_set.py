"""What the events so far amount to: which shards are lost or being emptied, and how far they are rebuilt.

The state follows from the events and their LSNs alone, so every node that has applied the same events has the same state. Events that say nothing
new change nothing. What an event may do is judged by the event and the state, never by the cluster file, of which nodes may have other versions:

1. Named: an event that a shard is lost or to be emptied names the shard among its candidates, else it is refused.
2. Bounded: there are at most `SHARDS_MAX` entries. A further one takes the place of the latest of a shard that its event does not name: whoever names
   all shards of the cluster can always add one of them, and what was said before anybody invented shards stays.
3. Past: nothing in a snapshot is later than the snapshot.
4. Kept: while something is not certainly re-replicated, an event adds candidates and takes none away: who may have to give something is not forgotten because
   somebody names others. An event with which they would be more than `DONORS_MAX` is refused. One that left the cluster with what it held is none any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import msgpack

from logdevice_py.core.ids import Generation, ShardId
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.event_log.events import (
    DONORS_MAX,
    GENERATION_MAX,
    LSN_LAST,
    DonorFlags,
    Event,
    RebuildMode,
    ShardAbortRebuild,
    ShardIsRebuilt,
    ShardNeedsRebuild,
    ShardsNeverUsed,
    ShardTookRecords,
    candidates_field,
    generation_field,
    shard_field,
    unpack_bounded,
    whole,
)
from logdevice_py.placement.failure_domains import Authority

SHARDS_MAX: Final = 4096
"""Entries of a state: a snapshot of as many, with `DONORS_MAX` candidates and donors, is no larger than `ENCODED_MAX`."""
_SOURCE_SIZE_MAX: Final = 64
"""Bytes of the text that is kept of an entry."""
_SNAPSHOT_VERSION: Final = 2
_NO_GENERATION: Final = Generation(0)
_TOOK_RECORDS: Final = "it took records after it was drained"


@dataclass(frozen=True, slots=True)
class RebuildingShard:
    """A shard that is lost or being emptied, in all its generations up to `generation`."""

    shard: ShardId
    generation: Generation
    mode: RebuildMode
    since: Lsn
    """The event that put it into the set."""
    recoverable: bool
    """Its data may come back with the node."""
    rebuilt: bool = False
    """What it held was re-replicated elsewhere, as far as there were copies and shards to take them."""
    flags: DonorFlags = DonorFlags.NONE
    """Of the round that rebuilt it, all donors taken together."""
    source: str = ""
    drained: bool = False
    """It was being emptied when it was lost, or is to be: it goes on to be emptied when it is back."""
    restored_before: Generation = _NO_GENERATION
    """What its generations up to this one held was re-replicated, whatever becomes of the later ones."""

    @property
    def lost(self) -> Generation:
        """Its generations up to this one lost their data. A shard that is being emptied lost those before the present one."""
        return self.generation if self.mode is RebuildMode.RESTORE else Generation(self.generation - 1)

    @property
    def is_to_be_emptied(self) -> bool:
        """It is being emptied, or goes on to be when it is back."""
        return self.drained or (self.mode is RebuildMode.RELOCATE and self.restored < self.generation)

    @property
    def restored(self) -> Generation:
        """What its generations up to this one held was certainly re-replicated elsewhere."""
        return self.generation if self.rebuilt and not self.flags else self.restored_before

    @property
    def restored_earlier(self) -> Generation:
        """As `restored`, of those before the present one: it stays so when the present one is used again."""
        return Generation(min(self.restored, self.generation - 1))

    def authority_of(self, generation: Generation) -> Authority:
        """What the silence of the shard proves to readers of an epoch that lists this generation."""
        if generation <= self.restored:
            return Authority.AUTHORITATIVE_EMPTY
        if generation > self.lost or (self.mode is RebuildMode.RESTORE and self.recoverable):
            return Authority.FULLY_AUTHORITATIVE
        return Authority.UNDERREPLICATION

    @property
    def authority(self) -> Authority:
        """That of its latest generation."""
        return self.authority_of(self.generation)

    @property
    def silent_up_to(self) -> Generation:
        """The latest generation of which the silence proves less than that there is nothing; 0: there is none. All before it may count as it does."""
        generations = (self.generation, self.lost, self.restored)
        return max(
            (each for each in generations if self.authority_of(each) is not Authority.FULLY_AUTHORITATIVE),
            default=_NO_GENERATION,
        )

    @property
    def status(self) -> str:
        """How far it is, in a word: rebuilding; rebuilt; unplaced: rebuilt, but some records have copies less; uncertain: records may be gone."""
        if not self.rebuilt:
            return "rebuilding"
        if self.flags & DonorFlags.UNCERTAIN:
            return "uncertain"
        return "unplaced" if self.flags else "rebuilt"


class RebuildingSet:
    """The state machine of the event log."""

    def __init__(self) -> None:
        self.version: Lsn = LSN_INVALID
        """The LSN of the last event."""
        self.round: Lsn = LSN_INVALID
        """The event that began the present round; 0: there was none."""
        self.shards: dict[ShardId, RebuildingShard] = {}
        self.candidates: dict[ShardId, Generation] = {}
        """The storage shards that events named since everything was re-replicated last, with the latest generation that any told (0: none did)."""
        self.donors: dict[ShardId, DonorFlags | None] = {}
        """Of the present round: how each finished; None: it has not."""

    # Questions

    def find(self, shard: ShardId, generation: Generation) -> RebuildingShard | None:
        """The entry that covers this generation of the shard."""
        entry = self.shards.get(shard)
        return entry if entry is not None and generation <= entry.generation else None

    def authority(self, shard: ShardId, generation: Generation) -> Authority:
        """What the silence of the shard proves to readers of an epoch that lists this generation."""
        entry = self.find(shard, generation)
        return Authority.FULLY_AUTHORITATIVE if entry is None else entry.authority_of(generation)

    @property
    def open_shards(self) -> list[RebuildingShard]:
        """Those that are not rebuilt yet, ascending."""
        return [entry for _, entry in sorted(self.shards.items()) if not entry.rebuilt]

    def awaits(self, donor: ShardId) -> bool:
        """Whether the present round is not done and waits for this donor."""
        return bool(self.open_shards) and donor in self.donors and self.donors[donor] is None

    def speaks_for(self, donor: ShardId, generation: Generation) -> bool:
        """Whether a donor of this generation can say that its part is done: what earlier ones held is known to be lost. A round that began before
        that was known is not done by it: the loss begins another one."""
        entry = self.shards.get(donor)
        return generation <= 1 or (entry is not None and generation - 1 <= max(entry.lost, entry.restored))

    def says_something_new(self, event: ShardNeedsRebuild) -> bool:
        """Whether the event, were it the next one, would change anything."""
        return self._entry_after(event) is not None

    # Events

    def apply(self, event: Event | None, lsn: Lsn) -> bool:
        """Take the event at `lsn` (None: one that means nothing here). Whether it changed anything but the version."""
        assert lsn > self.version, (lsn, self.version)
        self.version = lsn
        if event is None:
            return False
        if isinstance(event, ShardNeedsRebuild):
            return self._needs_rebuild(event)
        if isinstance(event, ShardIsRebuilt):
            return self._is_rebuilt(event)
        if isinstance(event, ShardAbortRebuild):
            return self._abort(event)
        if isinstance(event, ShardTookRecords):
            return self._took_records(event)
        if isinstance(event, ShardsNeverUsed):
            return self._never_used(event)
        entry = self.shards.get(event.shard)
        if entry is None or entry.generation != event.generation or not entry.recoverable:
            return False
        self.shards[event.shard] = replace(entry, recoverable=False)
        return True

    def _needs_rebuild(self, event: ShardNeedsRebuild) -> bool:
        before, entry = self.shards.get(event.shard), self._entry_after(event)
        if entry is None:
            return False
        begins_round = entry.since == self.version
        candidates = self._candidates_with(event) if begins_round else self.candidates
        if len(candidates) > DONORS_MAX:
            hit("event_names_too_many_candidates")
            return False
        if before is None and not self._make_room(event):
            return False
        self.shards[event.shard] = entry
        if not begins_round:
            return True
        if before is not None and event.generation == before.generation:
            hit("rebuilding_once_more" if event.mode is before.mode else "drained_shard_is_lost")
        self.candidates = candidates
        self._begin_round()
        return True

    def _candidates_with(self, event: ShardNeedsRebuild) -> dict[ShardId, Generation]:
        """Rule Kept."""
        is_all_restored = all(entry.restored == entry.generation for entry in self.shards.values())
        kept = {} if is_all_restored else self.candidates
        named = {
            shard: max(generation, self.candidates.get(shard, Generation(0))) for shard, generation in event.candidates
        }
        return {**kept, **named}

    def _make_room(self, event: ShardNeedsRebuild) -> bool:
        """Rule Bounded; False: there is no room."""
        named = {shard for shard, _ in event.candidates}
        while len(self.shards) >= SHARDS_MAX:
            unnamed = (entry for entry in self.shards.values() if entry.shard not in named)
            latest = max(unnamed, key=lambda entry: (entry.since, entry.shard), default=None)
            if latest is None:
                return False
            hit("event_log_entry_makes_room")
            del self.shards[latest.shard]
        return True

    def _entry_after(self, event: ShardNeedsRebuild) -> RebuildingShard | None:
        """What the event makes of the entry of its shard; None: it says nothing new, or is refused. One that begins a round is `since` the present
        version."""
        if all(shard != event.shard for shard, _ in event.candidates):
            hit("event_of_unknown_shard")
            return None
        entry = self.shards.get(event.shard)
        made = RebuildingShard(
            event.shard, event.generation, event.mode, self.version, event.recoverable, source=_cut(event.source)
        )
        if entry is None:
            return made
        is_lost = event.mode is RebuildMode.RESTORE
        made = replace(made, restored_before=entry.restored, drained=is_lost and entry.is_to_be_emptied)
        if event.generation > entry.generation:
            return made
        if not is_lost and entry.mode is RebuildMode.RESTORE and not entry.is_to_be_emptied:
            # It cannot be emptied as long as it is not back.
            return replace(entry, drained=True)
        if event.generation < entry.generation:
            return None
        if is_lost and entry.mode is RebuildMode.RELOCATE and entry.is_to_be_emptied:
            return made
        if event.mode is entry.mode and entry.rebuilt and entry.flags:
            return replace(made, recoverable=event.recoverable and entry.recoverable)
        return None

    def _begin_round(self) -> None:
        """Every shard gives that is not lost, in its latest generation that is known."""
        self.round = self.version
        self.donors = dict.fromkeys(sorted(shard for shard in self.candidates if not self._is_lost(shard)))
        self._settle()

    def _is_lost(self, candidate: ShardId) -> bool:
        entry = self.find(candidate, self.candidates[candidate])
        return entry is not None and entry.mode is RebuildMode.RESTORE

    def _is_rebuilt(self, event: ShardIsRebuilt) -> bool:
        if event.round != self.round or event.donor not in self.donors or self.donors[event.donor] is not None:
            hit("donor_of_another_round")
            return False
        if not self.speaks_for(event.donor, event.generation):
            hit("donor_lost_what_it_was_to_give")
            return False
        self.donors[event.donor] = event.flags
        if not event.generation and event.flags:
            self.candidates.pop(event.donor, None)  # rule Kept
        self._settle()
        return True

    def _abort(self, event: ShardAbortRebuild) -> bool:
        entry = self.shards.get(event.shard)
        if entry is None or entry.generation != event.generation:
            return False
        if event.mode is not None and event.mode is not entry.mode:
            hit("called_off_already")
            return False
        if entry.drained:
            hit("drained_shard_is_back")
            self.shards[event.shard] = replace(
                entry,
                mode=RebuildMode.RELOCATE,
                since=self.version,
                recoverable=True,
                rebuilt=False,
                flags=DonorFlags.NONE,
                drained=False,
                restored_before=entry.restored_earlier,
            )
        elif entry.restored_earlier:
            hit("earlier_generations_stay_rebuilt")
            self.shards[event.shard] = RebuildingShard(
                event.shard,
                entry.restored_earlier,
                RebuildMode.RESTORE,
                self.version,
                recoverable=False,
                rebuilt=True,
                source=entry.source,
            )
        else:
            del self.shards[event.shard]
        self._returned(event)
        self._look_again()
        return True

    def _took_records(self, event: ShardTookRecords) -> bool:
        entry = self.shards.get(event.shard)
        if entry is None or (entry.generation, entry.since) != (event.generation, event.since):
            return False
        if entry.mode is not RebuildMode.RELOCATE or not entry.rebuilt:
            return False  # it is being emptied
        hit("drained_shard_is_drained_once_more")
        before = entry.restored_earlier
        self.shards[event.shard] = replace(
            entry,
            since=self.version,
            rebuilt=False,
            flags=DonorFlags.NONE,
            restored_before=before,
            source=_TOOK_RECORDS,
        )
        self._returned(event)
        self._begin_round()
        return True

    def _never_used(self, event: ShardsNeverUsed) -> bool:
        known = [shard for shard in event.shards if shard in self.shards or shard in self.candidates]
        for shard in known:
            self.shards.pop(shard, None)
            self.candidates.pop(shard, None)
            self.donors.pop(shard, None)
        if known:
            hit("event_log_invention_forgotten")
            self._look_again()
        return bool(known)

    def _look_again(self) -> None:
        """The records that the shard shares with others of the set were left to somebody else, or to nobody: everyone looks again, it too."""
        for shard, entry in self.shards.items():
            if entry.rebuilt and entry.flags:
                self.shards[shard] = replace(entry, rebuilt=False, flags=DonorFlags.NONE)
        if self.open_shards:
            self._begin_round()

    def _returned(self, event: ShardAbortRebuild | ShardTookRecords) -> None:
        """Whoever named the candidates may not have had it in his cluster file."""
        if event.shard in self.candidates or len(self.candidates) < DONORS_MAX:
            self.candidates[event.shard] = max(self.candidates.get(event.shard, Generation(0)), event.generation)

    def _settle(self) -> None:
        """The round ends when every donor has finished. Where all are lost, nobody has stored anything again."""
        if any(flags is None for flags in self.donors.values()):
            return
        flags = DonorFlags.NONE if self.donors else DonorFlags.UNPLACED | DonorFlags.UNCERTAIN
        for each in self.donors.values():
            flags |= each or DonorFlags.NONE
        for entry in self.open_shards:
            self.shards[entry.shard] = replace(entry, rebuilt=True, flags=flags)

    # Snapshots

    def encode(self) -> bytes:
        """The bytes of a snapshot."""
        encoded: bytes = msgpack.packb(
            [
                _SNAPSHOT_VERSION,
                self.version,
                self.round,
                [
                    [
                        entry.shard,
                        entry.generation,
                        int(entry.mode),
                        entry.since,
                        entry.recoverable,
                        entry.rebuilt,
                        int(entry.flags),
                        _cut(entry.source),
                        entry.drained,
                        entry.restored_before,
                    ]
                    for _, entry in sorted(self.shards.items())
                ],
                [[donor, -1 if flags is None else int(flags)] for donor, flags in sorted(self.donors.items())],
                [list(each) for each in sorted(self.candidates.items())],
            ]
        )
        return encoded

    @classmethod
    def decode(cls, data: bytes) -> RebuildingSet:
        """From `encode`.

        Raises:
            CorruptEntryError: the bytes are no snapshot.
        """
        try:
            fields = unpack_bounded(data)
            if whole(fields[0], 0, 1 << 16) != _SNAPSHOT_VERSION:
                raise ValueError(f"version {fields[0]} is not known, this program knows {_SNAPSHOT_VERSION}")
            found = cls()
            version = found.version = Lsn(whole(fields[1], 0, LSN_LAST))
            found.round = Lsn(whole(fields[2], 0, version))
            for row in _rows(fields[3]):
                entry = _entry(row, version)
                found.shards[entry.shard] = entry
            for row in _rows(fields[4]):
                flags = whole(row[1], -1, 3)
                found.donors[shard_field(row[0])] = None if flags < 0 else DonorFlags(flags)
            found.candidates = dict(candidates_field(fields[5]))
            listed = len(found.shards), len(found.donors), len(found.candidates)
            if listed != tuple(map(len, fields[3:6])):
                raise ValueError("a shard is listed twice")
        except (ValueError, IndexError, msgpack.UnpackException) as error:
            raise CorruptEntryError(f"this is no snapshot of the event log: {error}") from None
        return found


def _rows(value: Any) -> list[list[Any]]:
    if type(value) is not list or any(type(row) is not list for row in value):
        raise ValueError("an array of arrays expected")
    return value


def _cut(source: str) -> str:
    """As much of the text as is kept."""
    return source.encode(errors="replace")[:_SOURCE_SIZE_MAX].decode(errors="ignore")


def _entry(row: list[Any], version: Lsn) -> RebuildingShard:
    drained = row[8]
    if type(row[4]) is not bool or type(row[5]) is not bool or type(row[7]) is not str or type(drained) is not bool:
        raise ValueError("three flags and a text expected")
    return RebuildingShard(
        shard_field(row[0]),
        generation_field(row[1]),
        RebuildMode(whole(row[2], 0, 1)),
        Lsn(whole(row[3], 0, version)),
        row[4],
        row[5],
        DonorFlags(whole(row[6], 0, 3)),
        row[7],
        drained,
        Generation(whole(row[9], 0, GENERATION_MAX)) if len(row) > 9 else _NO_GENERATION,
    )
