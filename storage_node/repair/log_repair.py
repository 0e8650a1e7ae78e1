"""One attempt to store again what a shard has lost, or cannot read any more, of one log.

The metadata history of the log says who else may have the copies; each of those is asked for the entries whose copyset names this shard.
What is stored at released LSNs never changes, so any sound copy is as good as the one that was lost.

A range in which something is stored that cannot be read is only replaced when those that answered are an f-majority: then no copy that should
be there can be missed. A shard that was lost and rebuilt is left out of account: what it held others have. And as long as nobody has anything to
put there, what is there stays: damage is no reason to delete. For the same reason the range is read again before it is replaced, and what can be read
of it by then is put back: a copy beside the damage, or one that could not be read for a while, which no other shard has to know of.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import Generation, PeerId, format_shard, is_metadata_log
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.placement.failure_domains import Authority, FailureDomains
from logdevice_py.protocol.messages import Fetched
from storage_node.epochs.purge import HistoryReader, StartHistoryReader
from storage_node.log_store.interface import ReadResult
from storage_node.lsn_ranges import Range, format_range, remove_range
from storage_node.repair.copies import settled_until
from storage_node.repair.fetching import (
    Answers,
    CopyFetcher,
    FoundCopies,
    IsMadeGood,
    Nodeset,
    best_copies,
    put_again,
    remember,
    spans,
)
from storage_node.repair.log_damage import LogDamage
from storage_node.repair.notices import Notice
from storage_node.shard import Shard

_READ_BYTES: Final = 1 << 20
_ENTRIES_MAX: Final = 4000


class RepairState(enum.Enum):
    """What the repair of a log is doing."""

    READING_HISTORY = "reading history"  # which shards may have the copies?
    FETCHING = "fetching"  # what do they have?
    READING = "reading"  # what of the range that is to be replaced can be read after all?
    WRITING = "writing"  # what they sent is with the disk
    DONE = "done"  # terminal


@dataclass(slots=True)
class _Part:
    """A range within one interval of the history."""

    first: Lsn
    last: Lsn
    damaged: bool
    """Something is stored there that cannot be read; otherwise copies are merely not there."""
    nodeset: Nodeset
    domains: FailureDomains


class LogRepair:
    """One attempt to repair what is known to be wrong with one log."""

    def __init__(
        self,
        shard: Shard,
        damage: LogDamage,
        start_reader: StartHistoryReader,
        request_ids: Iterator[int],
        is_made_good: IsMadeGood,
        finished: Callable[[LogRepair, bool, Micros], None],
    ) -> None:
        """
        Args:
            finished: called once, with whether anything could be done.
        """
        self.state = RepairState.READING_HISTORY
        self.damage = damage
        self.reader: HistoryReader | None = None
        self.progress = False
        self.overtaken = False
        """Something was stored in the log since the others were asked: what was read before does not show it."""
        self.looked_for: list[Range] = []
        """What was known to be missing when it was planned; what is noted later is for the next attempt."""
        self._shard = shard
        self._start_reader = start_reader
        self._is_made_good = is_made_good
        self._finished = finished
        self._parts: list[_Part] = []
        self._part: _Part | None = None
        self._fetcher = CopyFetcher(shard, request_ids, self._evaluate)

    def start(self, now: Micros) -> None:
        """Begin."""
        log = self.damage.state.log
        if is_metadata_log(log):
            metadata = self._shard.config.metadata_log
            nodeset = tuple((shard, Generation(0)) for shard in metadata.nodeset)
            self._plan((EpochInterval(Epoch(1), nodeset, metadata.replication),), damaged=True)
            self._next_part(now)
        else:
            self.reader = self._start_reader(log, self._on_history, now)

    def stop(self) -> None:
        """The disk failed, or the attempt is given up."""
        self.state = RepairState.DONE
        if self.reader is not None:
            self.reader.cancel()
            self.reader = None
        self.damage.state.replaced = None
        self._fetcher.cancel()

    def on_fetched(self, message: Fetched, now: Micros) -> None:
        """What a shard has."""
        self._fetcher.on_fetched(message, now)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """Its answer is lost."""
        self._fetcher.on_peer_down(peer, now)

    def _on_history(self, history: tuple[EpochInterval, ...], complete: bool, now: Micros) -> None:
        if self.state is not RepairState.READING_HISTORY:
            return
        self.reader = None
        # Whatever has an entry tells of which shards it is: a copy that is not here can be taken from anybody who has one. To replace what is stored
        # takes the nodeset for certain.
        self._plan(history, damaged=complete)
        self._next_part(now)

    def _plan(self, history: tuple[EpochInterval, ...], *, damaged: bool) -> None:
        """Cut what is wrong at the borders of intervals, and leave out what was stored before this generation of the shard.

        Args:
            damaged: what cannot be read may be replaced.
        """
        shard, damage = self._shard, self.damage
        self.looked_for = list(damage.missing)
        wrong = [(damage.unreadable, True)] if damaged else []
        wrong.append((damage.missing, False))
        for interval, low, high in spans(history):
            generation = interval.generation(shard.shard)
            high = min(high, settled_until(damage.state))
            if generation is None or (generation and generation != shard.generation):
                continue
            domains = interval.domains(shard.config.location)
            for ranges, unreadable in wrong:
                for first, last in ranges:
                    first, last = max(first, low), min(last, high)
                    if first <= last:
                        self._parts.append(_Part(first, last, unreadable, interval.nodeset, domains))

    def _next_part(self, now: Micros) -> None:
        state = self.damage.state
        state.replaced = None
        while self._parts and self._parts[0].damaged:
            part = self._parts[0]
            if not self._shard.given.any_in(state.log, part.first, part.last, now):
                break
            hit("repair_waits_for_donors")
            del self._parts[0]
        if not self._parts:
            self.stop()
            self._finished(self, self.progress, now)
            return
        self._part = self._parts.pop(0)
        self._ask(now)

    def _ask(self, now: Micros) -> None:
        part = self._part
        assert part is not None
        self.state = RepairState.FETCHING
        self.overtaken = False
        self.damage.state.replaced = (part.first, part.last) if part.damaged else None
        # one copy is as good as several, where nothing has to be replaced
        one_is_enough = not part.damaged and part.first == part.last
        self._fetcher.ask(self.damage.state.log, part.nodeset, part.first, part.last, now, one_is_enough=one_is_enough)

    def _evaluate(self, answers: Answers, now: Micros) -> None:
        """Everybody answered, or had the time to."""
        part = self._part
        if self.state is not RepairState.FETCHING or part is None:
            return
        vouching = {shard: answer for shard, answer in answers.items() if answer.vouches}
        through = min([part.last, *(answer.through for answer in vouching.values())])
        found = best_copies(self.damage.state, self._shard.shard, answers, part.first, through)
        asked = {shard for shard, _ in part.nodeset if shard != self._shard.shard}
        for shard, generation in part.nodeset:
            # of metadata logs generations are not known
            if generation and shard in asked - vouching.keys() and self._is_made_good(shard, generation):
                hit("repair_beside_rebuilt_shard")
                part.domains.set_authority(shard, Authority.AUTHORITATIVE_EMPTY)
                asked.discard(shard)
        complete = part.domains.f_majority(list(vouching)).is_authoritative
        if found and part.damaged and not complete and is_metadata_log(self.damage.state.log):
            # a record tells everything that the ones before it do: with a sound one nothing below it is missed
            hit("repair_by_one_metadata_record")
            complete, through = True, max(found)
        everybody = asked <= vouching.keys()
        if part.damaged:
            settled = complete and through >= part.first and (found or (everybody and part.first < part.last))
        else:
            settled = bool(found)
        if not settled:
            hit("repair_finds_no_copy")
            self._next_part(now)
        elif part.damaged:
            self._read(part, through, found)
        else:
            self._write(part, through, found)

    def _read(self, part: _Part, through: Lsn, found: FoundCopies) -> None:
        self.state = RepairState.READING
        state = self.damage.state

        def done(result: ReadResult, now: Micros) -> None:
            if self.state is not RepairState.READING:
                return
            if result.status is not Status.OK:
                self.stop()
                return
            if self.overtaken:
                hit("repair_is_overtaken_by_a_store")
                self._ask(now)
                return
            replaced = min(through, result.through)
            best = {lsn: copy for lsn, copy in found.items() if state.trim_point < lsn <= replaced}
            if found and is_metadata_log(state.log):
                best[max(found)] = found[max(found)]  # what stands for all below it is not left for later
            for lsn, image in result.entries:
                header = parse_header(image)
                if lsn > state.trim_point and (lsn not in best or header.rank >= best[lsn][0].rank):
                    hit("repair_keeps_what_it_can_read")
                    best[lsn] = header, image, self._shard.shard
            self._write(part, replaced, best)

        self._shard.reads.read(state.log, part.first, through, _READ_BYTES, _ENTRIES_MAX, done)

    def _write(self, part: _Part, through: Lsn, found: FoundCopies) -> None:
        self.state = RepairState.WRITING
        shard, state = self._shard, self.damage.state
        # within a batch puts win over deletes: what came before must lie in an earlier one to be replaced
        shard.writes.close()
        group = shard.writes.group(True)
        if part.damaged:
            group.batch.restore(state.log, part.first, through)
        put_again(group.batch, state, found, sorted(found))

        def written(status: Status, now: Micros) -> None:
            if self.state is RepairState.WRITING:
                self._on_written(part, through, found, status, now)

        group.done.append(written)
        shard.writes.close()

    def _on_written(
        self,
        part: _Part,
        through: Lsn,
        found: FoundCopies,
        status: Status,
        now: Micros,
    ) -> None:
        if status is not Status.OK:
            hit("repair_write_refused")
            self._next_part(now)
            return
        shard, state, damage = self._shard, self.damage.state, self.damage
        self.progress = True
        remember(shard, state, [(lsn, found[lsn][1]) for lsn in sorted(found)])
        remove_range(damage.unreadable if part.damaged else damage.missing, part.first, through)
        origins = [origin for _, _, origin in found.values() if origin != shard.shard]
        shard.metrics.copies_restored += len(origins)
        if origins:
            hit("repair_of_unreadable" if part.damaged else "repair_of_missing")
        sources = ", ".join(format_shard(each) for each in sorted(set(origins)))
        what = "could not be read" if part.damaged else "were missing"
        done = f"{len(origins)} stored again from {sources}" if origins else "nothing else belongs there"
        if len(found) > len(origins):
            done += f"; {len(found) - len(origins)} can be read, and stay"
        self._say("repaired", f"log {state.log}: copies from {format_range(part.first, through)} {what}: {done}")
        if through < part.last:
            part.first = Lsn(through + 1)
            self._ask(now)
        else:
            self._next_part(now)

    def _say(self, kind: str, text: str) -> None:
        self._shard.out.emit(Notice(self._shard.shard, kind, text))
