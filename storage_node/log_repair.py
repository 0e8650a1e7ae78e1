"""One attempt to store again what a shard has lost, or cannot read any more, of one log.

The metadata history of the log says who else may have the copies; each of those is asked for the entries whose copyset names this shard.
What is stored at released LSNs never changes, so any sound copy is as good as the one that was lost.

A range in which something is stored that cannot be read is only replaced when those that answered are an f-majority: then no copy that should
be there can be missed. And as long as nobody has anything to put there, what is there stays: damage is no reason to delete.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from logdevice_py.core.entry import EntryHeader, check_body, parse_header
from logdevice_py.core.ids import Generation, PeerId, ShardId, format_shard, is_metadata_log, node_of, node_peer
from logdevice_py.core.lsn import EPOCH_MAX, ESN_MAX, Epoch, Lsn, compose_lsn
from logdevice_py.core.machine import Timer
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.protocol.messages import Fetch, Fetched
from storage_node.copies import settled_until
from storage_node.log_damage import LogDamage
from storage_node.lsn_ranges import format_range, remove_range
from storage_node.notices import Notice
from storage_node.purge import HistoryReader, StartHistoryReader
from storage_node.shard import Shard

_ANSWER_TIMEOUT: Final = 2 * SECOND
_FETCH_BYTES: Final = 256 << 10


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
    images: list[tuple[Lsn, EntryHeader, bytes]] = field(default_factory=list)


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
        images, through, at = [], message.through, 0
        for lsn, length in message.entries:
            image = message.images[at : at + length]
            at += length
            try:
                header = parse_header(image)
                check_body(image, header)
            except CorruptEntryError:
                hit("fetched_copy_is_damaged")
                through = min(through, Lsn(lsn - 1))  # there is something, so its absence is not vouched for
            else:
                images.append((Lsn(lsn), header, image))
        self._answers[shard] = _Answer(through, message.status == Status.OK, images)
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
            for lsn, header, image in self._answers[shard].images:
                if not max(first, state.trim_point + 1) <= lsn <= through:
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
        self._say("repaired", f"log {state.log}: copies from {format_range(part.first, through)} {what}: {done}")
        if through < part.last:
            part.first = Lsn(through + 1)
            self._ask(now)
        else:
            self._next_part(now)

    def _say(self, kind: str, text: str) -> None:
        self._shard.out.emit(Notice(self._shard.shard, kind, text))
