"""Copies that a shard has lost, or cannot read any more, are stored again from the other shards.

Who reads (read streams, digests, comparisons, the scrubber) notes what it finds; one log is worked on at a time. Its metadata history says
who else may have the copies; each of those is asked for the entries whose copyset names this shard. What is stored at released LSNs never
changes, so any sound copy is as good as the one that was lost.

A range in which something is stored that cannot be read is only replaced when those that answered are an f-majority: then no copy that should
be there can be missed. And as long as nobody has anything to put there, what is there stays: damage is no reason to delete.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from logdevice_py.core.entry import EntryHeader, check_body, parse_header
from logdevice_py.core.ids import Generation, LogId, PeerId, ShardId, format_shard, is_metadata_log, node_of, node_peer
from logdevice_py.core.lsn import EPOCH_MAX, ESN_MAX, Epoch, Lsn, compose_lsn, format_lsn
from logdevice_py.core.machine import Timer
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.protocol.messages import Digested, Fetch, Fetched
from storage_node.copies import settled_until
from storage_node.log_state import LogState
from storage_node.log_store.interface import ReadResult
from storage_node.notices import Notice
from storage_node.purge import HistoryReader, StartHistoryReader
from storage_node.shard import Shard

_ANSWER_TIMEOUT: Final = 2 * SECOND
_RETRY_FIRST: Final = 500 * MILLISECOND
_RETRY_MAX: Final = 30 * SECOND
_FETCH_BYTES: Final = 256 << 10
_RANGES_MAX: Final = 10_000
"""Ranges of a log that are remembered; the scrubber finds others again."""

Range = tuple[Lsn, Lsn]


class RepairState(enum.Enum):
    """What the repair of a log is doing."""

    READING_HISTORY = "reading history"  # which shards may have the copies?
    FETCHING = "fetching"  # what do they have?
    WRITING = "writing"  # what they sent is with the disk
    DONE = "done"  # terminal


@dataclass(slots=True)
class _Part:
    """A range within one interval of the history."""

    first: Lsn
    last: Lsn
    damaged: bool
    """Something is stored there that cannot be read; otherwise copies are merely not there."""
    nodeset: tuple[tuple[ShardId, Generation], ...]
    domains: FailureDomains


@dataclass(slots=True)
class _Answer:
    through: Lsn
    vouches: bool
    images: list[tuple[Lsn, bytes]] = field(default_factory=list)


def add_range(ranges: list[Range], first: Lsn, last: Lsn) -> bool:
    """Add a range to disjoint ascending ones; False: it was covered already."""
    if any(low <= first and last <= high for low, high in ranges):
        return False
    merged = [first, last]
    kept = []
    for low, high in ranges:
        if high + 1 < merged[0] or low > merged[1] + 1:
            kept.append((low, high))
        else:
            merged = [min(low, merged[0]), max(high, merged[1])]
    kept.append((Lsn(merged[0]), Lsn(merged[1])))
    ranges[:] = sorted(kept)
    return True


def remove_range(ranges: list[Range], first: Lsn, last: Lsn) -> None:
    """Take a range out of disjoint ascending ones."""
    kept = []
    for low, high in ranges:
        if high < first or low > last:
            kept.append((low, high))
            continue
        if low < first:
            kept.append((low, Lsn(first - 1)))
        if high > last:
            kept.append((Lsn(last + 1), high))
    ranges[:] = kept


class LogDamage:
    """What is known to be wrong with a log here."""

    __slots__ = ("delay", "missing", "not_before", "state", "unreadable")

    def __init__(self, state: LogState) -> None:
        self.state = state
        self.unreadable: list[Range] = []
        self.missing: list[Range] = []
        self.not_before = Micros(0)
        """When it is worth to try again."""
        self.delay = _RETRY_FIRST

    @property
    def empty(self) -> bool:
        """Nothing is left."""
        return not self.unreadable and not self.missing

    def forget_trimmed(self) -> None:
        """What is trimmed needs no repair."""
        for ranges in (self.unreadable, self.missing):
            if ranges and ranges[0][0] <= self.state.trim_point:
                remove_range(ranges, Lsn(0), self.state.trim_point)


class LogRepair:
    """One attempt to repair what is known to be wrong with one log."""

    def __init__(
        self,
        shard: Shard,
        damage: LogDamage,
        start_reader: StartHistoryReader,
        request_ids: Iterator[int],
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
        self._shard = shard
        self._start_reader = start_reader
        self._request_ids = request_ids
        self._finished = finished
        self._parts: list[_Part] = []
        self._part: _Part | None = None
        self._requests: dict[int, ShardId] = {}
        self._answers: dict[ShardId, _Answer] = {}
        self._timer: Timer | None = None

    def start(self, now: Micros) -> None:
        """Begin."""
        log = self.damage.state.log
        if is_metadata_log(log):
            metadata = self._shard.config.metadata_log
            nodeset = tuple((shard, Generation(0)) for shard in metadata.nodeset)
            self._plan((EpochInterval(Epoch(1), nodeset, metadata.replication),))
            self._next_part(now)
        else:
            self.reader = self._start_reader(log, self._on_history, now)

    def stop(self) -> None:
        """The disk failed, or the attempt is given up."""
        self.state = RepairState.DONE
        if self.reader is not None:
            self.reader.cancel()
            self.reader = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_fetched(self, message: Fetched, now: Micros) -> None:
        """What a shard has."""
        shard = self._requests.pop(message.request_id, None)
        if shard is None or self.state is not RepairState.FETCHING:
            return
        images, at = [], 0
        for lsn, length in message.entries:
            images.append((Lsn(lsn), message.images[at : at + length]))
            at += length
        self._answers[shard] = _Answer(message.through, message.status == Status.OK, images)
        part = self._part
        assert part is not None
        # one copy is as good as several, where nothing has to be replaced
        enough = not part.damaged and part.first == part.last and images and message.status == Status.OK
        if not self._requests or enough:
            self._evaluate(now)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """Its answer is lost."""
        lost = [request for request, shard in self._requests.items() if node_peer(shard) == peer]
        for request in lost:
            del self._requests[request]
        if lost and not self._requests and self.state is RepairState.FETCHING:
            self._evaluate(now)

    def _on_history(self, history: tuple[EpochInterval, ...], complete: bool, now: Micros) -> None:
        if self.state is not RepairState.READING_HISTORY:
            return
        self.reader = None
        if complete:
            self._plan(history)
        self._next_part(now)

    def _plan(self, history: tuple[EpochInterval, ...]) -> None:
        """Cut what is wrong at the borders of intervals, and leave out what was stored before this generation of the shard."""
        shard, damage = self._shard, self.damage
        bounds = [interval.since for interval in history[1:]] + [Epoch(EPOCH_MAX)]
        for interval, end in zip(history, bounds, strict=True):
            generation = interval.generation(shard.shard)
            low = compose_lsn(interval.since, 0)
            high = min(Lsn(compose_lsn(Epoch(end - 1), ESN_MAX)), settled_until(damage.state))
            if generation is None or (generation and generation != shard.generation):
                continue
            domains = FailureDomains(interval.shards, interval.replication, shard.config.location)
            for ranges, damaged in ((damage.unreadable, True), (damage.missing, False)):
                for first, last in ranges:
                    first, last = max(first, low), min(last, high)
                    if first <= last:
                        self._parts.append(_Part(first, last, damaged, interval.nodeset, domains))

    def _next_part(self, now: Micros) -> None:
        if not self._parts:
            self.stop()
            self._finished(self, self.progress, now)
            return
        self._part = self._parts.pop(0)
        self._ask(now)

    def _ask(self, now: Micros) -> None:
        shard, part = self._shard, self._part
        assert part is not None
        self.state = RepairState.FETCHING
        self._requests.clear()
        self._answers.clear()
        for peer, generation in part.nodeset:
            if peer == shard.shard or node_of(peer) not in shard.config.nodes:
                continue
            request = next(self._request_ids)
            self._requests[request] = peer
            shard.out.send(
                node_peer(peer),
                Fetch(
                    request_id=request,
                    shard=peer,
                    generation=generation,
                    holder=shard.shard,
                    log=self.damage.state.log,
                    first=part.first,
                    last=part.last,
                    bytes_max=_FETCH_BYTES,
                ),
            )
        self._timer = shard.timers.at(Micros(now + (_ANSWER_TIMEOUT if self._requests else 0)), self._evaluate)

    def _evaluate(self, now: Micros) -> None:
        """Everybody answered, or had the time to."""
        part = self._part
        if self.state is not RepairState.FETCHING or part is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._requests.clear()
        vouching = {shard: answer for shard, answer in self._answers.items() if answer.vouches}
        through = min([part.last, *(answer.through for answer in vouching.values())])
        found = self._best_copies(part.first, through)
        complete = part.domains.f_majority(list(vouching)).is_authoritative
        everybody = len(vouching) == len(part.nodeset) - 1
        if part.damaged:
            settled = complete and through >= part.first and (found or (everybody and part.first < part.last))
        else:
            settled = bool(found)
        if not settled:
            hit("repair_finds_no_copy")
            self._next_part(now)
            return
        self._write(part, through, found)

    def _best_copies(self, first: Lsn, through: Lsn) -> dict[Lsn, tuple[EntryHeader, bytes, ShardId]]:
        """Per LSN the sound copy of highest rank that names this shard."""
        state, me = self.damage.state, self._shard.shard
        found: dict[Lsn, tuple[EntryHeader, bytes, ShardId]] = {}
        for shard in sorted(self._answers):
            for lsn, image in self._answers[shard].images:
                if not max(first, state.trim_point + 1) <= lsn <= through:
                    continue
                try:
                    header = parse_header(image)
                    check_body(image, header)
                except CorruptEntryError:
                    hit("fetched_copy_is_damaged")
                    continue
                if header.log != state.log or header.lsn != lsn or me not in header.copyset or header.is_amend:
                    continue
                if lsn not in found or header.rank > found[lsn][0].rank:
                    found[lsn] = header, image, shard
        return found

    def _write(self, part: _Part, through: Lsn, found: dict[Lsn, tuple[EntryHeader, bytes, ShardId]]) -> None:
        self.state = RepairState.WRITING
        shard, state = self._shard, self.damage.state
        # within a batch puts win over deletes: what came before must lie in an earlier one to be replaced
        shard.writes.close()
        group = shard.writes.group(True)
        if part.damaged:
            group.batch.restore(state.log, part.first, through)
        for lsn in sorted(found):
            header, image, _ = found[lsn]
            by_recovery, wave = header.rank
            group.batch.put_again(state.log, lsn, by_recovery=bool(by_recovery), wave=wave, image=image)
            state.highest = max(state.highest, lsn)

        def written(status: Status, now: Micros) -> None:
            if self.state is RepairState.WRITING:
                self._on_written(part, through, found, status, now)

        group.done.append(written)
        shard.writes.close()

    def _on_written(
        self,
        part: _Part,
        through: Lsn,
        found: dict[Lsn, tuple[EntryHeader, bytes, ShardId]],
        status: Status,
        now: Micros,
    ) -> None:
        if status is not Status.OK:
            hit("repair_write_refused")
            self._next_part(now)
            return
        shard, state, damage = self._shard, self.damage.state, self.damage
        self.progress = True
        recent = state.recent
        for lsn in sorted(found):
            image = found[lsn][1]
            if recent is not None and lsn >= recent.complete_from and lsn not in recent.images:
                shard.recent.add(recent, lsn, image)
        remove_range(damage.unreadable if part.damaged else damage.missing, part.first, through)
        shard.metrics.copies_restored += len(found)
        if found:
            hit("repair_of_unreadable" if part.damaged else "repair_of_missing")
        sources = ", ".join(format_shard(each) for each in sorted({origin for _, _, origin in found.values()}))
        what = "could not be read" if part.damaged else "were missing"
        done = f"{len(found)} stored again from {sources}" if found else "nothing else belongs there"
        self._say("repaired", f"log {state.log}: copies from {_range(part.first, through)} {what}: {done}")
        if through < part.last:
            part.first = Lsn(through + 1)
            self._ask(now)
        else:
            self._next_part(now)

    def _say(self, kind: str, text: str) -> None:
        self._shard.out.emit(Notice(self._shard.shard, kind, text))


class RepairQueue:
    """All that is known to be wrong with the logs of one shard, and its repair."""

    def __init__(self, shard: Shard, start_reader: StartHistoryReader, request_ids: Iterator[int]) -> None:
        self._shard = shard
        self._start_reader = start_reader
        self._request_ids = request_ids
        self._damaged: dict[LogId, LogDamage] = {}
        self._running: LogRepair | None = None
        self._timer: Timer | None = None
        self._new = False
        """Something was noted since the last turn ended."""

    @property
    def damaged(self) -> dict[LogId, LogDamage]:
        """What is wrong, to look at."""
        return self._damaged

    @property
    def damaged_ranges(self) -> int:
        """How many ranges are known to be damaged or missing."""
        return sum(len(each.unreadable) + len(each.missing) for each in self._damaged.values())

    def found_damage(self, state: LogState, result: ReadResult) -> None:
        """A read met something that cannot be read."""
        ranges = [*result.corrupt, *((lsn, lsn) for lsn in result.bodiless)]
        for first, last in ranges:
            self.note_unreadable(state, first, min(last, settled_until(state)))

    def found_in_files(self, state: LogState, first: Lsn, last: Lsn) -> None:
        """A file cannot be read in the range, and stays until what it held is stored again. What is trimmed is not."""
        if first <= state.trim_point:
            self._shard.writes.group(True).batch.restore(state.log, first, min(last, state.trim_point))
        self.note_unreadable(state, first, min(last, settled_until(state)))

    def note_unreadable(self, state: LogState, first: Lsn, last: Lsn) -> None:
        """Something in the range cannot be read."""
        first = max(first, Lsn(state.trim_point + 1))
        if first > last or self._shard.failed:
            return
        damage = self._of(state)
        if len(damage.unreadable) < _RANGES_MAX and add_range(damage.unreadable, first, last):
            damage.not_before = Micros(0)
            self._shard.metrics.damage_found += 1
            text = (
                f"log {state.log}: what is stored from {_range(first, last)} does not match its checksum or cannot be read; it is "
                "not served, readers get it from other shards, and it is fetched from them"
            )
            self._shard.out.emit(Notice(self._shard.shard, "damage", text))
            self._changed()

    def note_missing(self, state: LogState, lsns: Iterable[Lsn]) -> None:
        """Others hold copies that name this shard, which has none."""
        damage = self._of(state)
        count = 0
        for lsn in lsns:
            if state.trim_point < lsn <= settled_until(state) and len(damage.missing) < _RANGES_MAX:
                count += add_range(damage.missing, lsn, lsn)
        if count:
            damage.not_before = Micros(0)
            self._shard.metrics.copies_missing += count
            text = f"log {state.log}: {count} copies are not here that other shards say should be; they are fetched"
            self._shard.out.emit(Notice(self._shard.shard, "missing copies", text))
        self._changed()

    def _of(self, state: LogState) -> LogDamage:
        damage = self._damaged.get(state.log)
        if damage is None:
            damage = self._damaged[state.log] = LogDamage(state)
        return damage

    def _changed(self) -> None:
        self._new = True

    def on_turn_end(self, now: Micros) -> None:
        """Begin with what was noted."""
        if self._new:
            self._new = False
            self._begin(now)

    def on_fetched(self, message: Fetched, now: Micros) -> None:
        """An answer of another shard."""
        if self._running is not None:
            self._running.on_fetched(message, now)

    def on_digested(self, message: Digested, now: Micros) -> None:
        """An answer to the reader of a metadata log."""
        if self._running is not None and self._running.reader is not None:
            self._running.reader.on_digested(message, now)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """Questions to the peer may be lost."""
        running = self._running
        if running is not None:
            if running.reader is not None:
                running.reader.on_peer_down(peer, now)
            running.on_peer_down(peer, now)

    def stop_all(self) -> None:
        """The disk failed."""
        if self._running is not None:
            self._running.stop()
            self._running = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._damaged.clear()
        self._count()

    def _begin(self, now: Micros) -> None:
        """Take up the log whose turn it is, or wait for one."""
        self._tidy()
        if self._running is not None or not self._damaged or self._shard.failed:
            return
        damage = min(self._damaged.values(), key=lambda each: each.not_before)
        if damage.not_before > now:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._shard.timers.at(damage.not_before, self._begin)
            return
        self._running = LogRepair(self._shard, damage, self._start_reader, self._request_ids, self._on_finished)
        self._running.start(now)

    def _tidy(self) -> None:
        for damage in list(self._damaged.values()):
            damage.forget_trimmed()
            if damage.empty:
                del self._damaged[damage.state.log]
        self._count()

    def _count(self) -> None:
        self._shard.metrics.damaged_ranges = self.damaged_ranges

    def _on_finished(self, repair: LogRepair, progress: bool, now: Micros) -> None:
        self._running = None
        damage = repair.damage
        damage.missing.clear()  # what is still missing is found again when it is compared again
        if progress:
            damage.delay = _RETRY_FIRST
        damage.not_before = Micros(now + damage.delay)
        damage.delay = min(2 * damage.delay, _RETRY_MAX)
        self._begin(now)


def _range(first: Lsn, last: Lsn) -> str:
    return format_lsn(first) if first == last else f"{format_lsn(first)} to {format_lsn(last)}"
