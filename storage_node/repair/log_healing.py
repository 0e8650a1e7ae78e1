"""One attempt to get back what a crash may have taken of one log, and to take the marks of its dirty ranges away.

Only what is released is healed: it never changes, and every entry of it was on all shards of its copyset. So a range is healed when everything
in it whose copyset names this shard is here:

  - Each other shard of the nodeset is asked for those entries (FETCH). Who vouches sends all that it was given to keep and tells it is all.
  - If those who vouch are an f-majority, every entry of the range that names this shard has a copy on one of them: the range is healed.
  - If they are not, some entry may have been on this shard and on others that do not vouch, and on nobody else. When all of these were asked,
    and each has sent what its own crash left, nothing more will come to light: what nobody has is gone. Readers are told DATALOSS there, as for
    any LSN of which no shard has anything, and the mark goes with a word to the operator.
  - In any other case, as when somebody is silent, has lost its disk or cannot read what it has, the copies that were found are stored and the mark
    stays. It is tried again.

The end of the range is open while the sequencer of the last dirty epoch goes on. It is asked which LSN comes next: this shard has lost nothing
at or above.

The mark is narrowed on disk by the synced batch that carries the copies, and in memory when that is written.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import PeerId, ShardId
from logdevice_py.core.lsn import ESN_MAX, Lsn, epoch_of, esn_of
from logdevice_py.core.machine import Timer
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.membership.cluster_view import ClusterView
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.placement.failure_domains import Authority
from logdevice_py.protocol.messages import Digested, Fetched, SeqState
from storage_node.epochs.purge import HistoryReader, StartHistoryReader
from storage_node.log_state import LogState
from storage_node.log_store.interface import LogMetadataKind, ReadResult
from storage_node.lsn_ranges import Range, add_range, overlaps, remove_range
from storage_node.repair.copies import settled_until
from storage_node.repair.fetching import (
    Answers,
    CopyFetcher,
    FoundCopies,
    IsMadeGood,
    best_copies,
    put_again,
    remember,
    spans,
)
from storage_node.repair.next_lsn import NextLsnQuestion
from storage_node.repair.throttle import Throttle
from storage_node.shard import Shard
from storage_node.stored_metadata import encode_ranges

_READ_BYTES: Final = 1 << 20
_ENTRIES_MAX: Final = 4000
_QUESTION_COST: Final = 4096
"""What a range without entries costs of the rate, in bytes."""


class HealingState(enum.Enum):
    """What the healing of a log is doing."""

    ASKING_SEQUENCER = "asking the sequencer"  # up to where may entries be gone?
    READING_HISTORY = "reading history"  # which shards may have the copies?
    PACING = "pacing"  # until the rate allows to go on
    FETCHING = "fetching"  # what do they have?
    READING = "reading"  # what of that is here?
    WRITING = "writing"  # what is not here is with the disk, and the narrower mark
    DONE = "done"  # terminal


@dataclass(slots=True)
class _Part:
    """A range within one interval of the history."""

    first: Lsn
    last: Lsn
    interval: EpochInterval | None
    """None: this shard, as it is, was given nothing to keep there."""


@dataclass(slots=True)
class _Step:
    """What the answers about the beginning of a part come to."""

    through: Lsn
    healed: bool
    """The mark goes."""
    authoritative: bool
    """No entry of the range can have had copies only here and where they may be gone as well."""
    found: FoundCopies


class LogHealing:
    """One attempt to heal the dirty ranges of one log."""

    def __init__(
        self,
        shard: Shard,
        state: LogState,
        cluster: ClusterView,
        start_reader: StartHistoryReader,
        request_ids: Iterator[int],
        throttle: Throttle,
        found_damage: Callable[[LogState, ReadResult], None],
        is_made_good: IsMadeGood,
        finished: Callable[[LogHealing, Micros], None],
    ) -> None:
        """
        Args:
            found_damage: gets reads that met damage.
            finished: called once, in a later turn.
        """
        self.state = HealingState.READING_HISTORY
        self.log = state
        self.reader: HistoryReader | None = None
        self.restored = 0
        """Copies that were not here any more and are again."""
        self.progress = False
        """A mark was narrowed."""
        self.given_up: list[Range] = []
        """Where some entries may have no copy left."""
        self.hindrance = "entries to be released"
        """What else than shards was in the way, for people."""
        self.waits_for: set[ShardId] = set()
        """Who would have had to answer for more to be healed."""
        self._shard = shard
        self._cluster = cluster
        self._start_reader = start_reader
        self._request_ids = request_ids
        self._throttle = throttle
        self._found_damage = found_damage
        self._is_made_good = is_made_good
        self._finished = finished
        self._parts: list[_Part] = []
        self._fetcher = CopyFetcher(shard, request_ids, self._on_answers)
        self._question: NextLsnQuestion | None = None
        self._timer: Timer | None = None

    def start(self, now: Micros) -> None:
        """Begin."""
        state = self.log
        assert state.dirty is not None, "there is nothing to heal"
        last = state.dirty[-1][1]
        if last > settled_until(state) and esn_of(last) == ESN_MAX:
            self.state = HealingState.ASKING_SEQUENCER
            epoch = epoch_of(last)
            self._question = NextLsnQuestion(
                self._shard, self._cluster, self._request_ids, state.log, epoch, self._on_next_lsn
            )
            self._question.ask(state.soft_node, now)
        else:
            self._read_history(now)

    def stop(self) -> None:
        """The disk failed, or the attempt is over."""
        self.state = HealingState.DONE
        if self.reader is not None:
            self.reader.cancel()
            self.reader = None
        if self._question is not None:
            self._question.cancel()
            self._question = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._fetcher.cancel()

    def on_fetched(self, message: Fetched, now: Micros) -> None:
        """What a shard has."""
        self._fetcher.on_fetched(message, now)

    def on_seq_state(self, message: SeqState, now: Micros) -> None:
        """How far a sequencer is."""
        if self._question is not None:
            self._question.on_seq_state(message, now)

    def on_digested(self, message: Digested, now: Micros) -> None:
        """An answer to the reader of the metadata log."""
        if self.reader is not None:
            self.reader.on_digested(message, now)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """Questions to the peer may be lost."""
        if self._question is not None:
            self._question.on_peer_down(peer, now)
        if self.reader is not None:
            self.reader.on_peer_down(peer, now)
        self._fetcher.on_peer_down(peer, now)

    # --- which ranges --------------------------------------------------------------------------------------------------------

    def _on_next_lsn(self, next_lsn: Lsn | None, now: Micros) -> None:
        self._question = None
        state = self.log
        if next_lsn is not None and state.dirty is not None:
            # a mark on disk that is wider than that in memory does no harm: it is written when something else is
            hit("dirty_range_has_an_end")
            last = state.dirty[-1][1]
            if next_lsn <= last:
                state.forget_dirty(next_lsn, last)
                group = self._shard.writes.group(False)
                group.batch.put_log_metadata(state.log, LogMetadataKind.DIRTY, encode_ranges(state.dirty or ()))
                self.progress = True
        self._read_history(now)

    def _read_history(self, now: Micros) -> None:
        state = self.log
        if state.dirty is None or state.dirty[0][0] > settled_until(state):
            self._timer = self._shard.timers.at(now, self._finish)
            return
        self.state = HealingState.READING_HISTORY
        self.reader = self._start_reader(state.log, self._on_history, now)

    def _on_history(self, history: tuple[EpochInterval, ...], complete: bool, now: Micros) -> None:
        if self.state is not HealingState.READING_HISTORY:
            return
        self.reader = None
        if complete and history:
            self._plan(history)
        else:
            hit("healing_without_history")
            self.hindrance = "the metadata log to be readable"
        self._next_part(now)

    def _plan(self, history: tuple[EpochInterval, ...]) -> None:
        """Cut what is dirty and settled at the borders of intervals."""
        state, shard = self.log, self._shard
        rest = [(first, min(last, settled_until(state))) for first, last in state.dirty or ()]
        rest = [(first, last) for first, last in rest if first <= last]
        for interval, low, high in spans(history):
            for first, last in list(rest):
                first, last = max(first, low), min(last, high)
                if first <= last:
                    member = interval.generation(shard.shard) in (shard.generation, 0)
                    self._parts.append(_Part(first, last, interval if member else None))
                    remove_range(rest, first, last)
        self._parts.extend(_Part(first, last, None) for first, last in rest)  # before the log had metadata
        self._parts.sort(key=lambda part: part.first)

    # --- one range -----------------------------------------------------------------------------------------------------------

    def _next_part(self, now: Micros) -> None:
        if self._parts:
            self._pace(0, now)
        else:
            self._finish(now)

    def _pace(self, size: int, now: Micros) -> None:
        """Go on with the part when the rate allows."""
        self.state = HealingState.PACING
        self._timer = self._shard.timers.at(self._throttle.reserve(size + _QUESTION_COST, now), self._ask)

    def _ask(self, now: Micros) -> None:
        part, state = self._parts[0], self.log
        part.first = max(part.first, Lsn(state.trim_point + 1))
        if part.first > part.last:
            del self._parts[0]
            self._next_part(now)
        elif part.interval is None:
            hit("healing_of_what_was_not_given_here")
            self._write(_Step(part.last, True, True, {}), [])
        else:
            self.state = HealingState.FETCHING
            self._fetcher.ask(state.log, part.interval.nodeset, part.first, part.last, now)

    def _on_answers(self, answers: Answers, now: Micros) -> None:
        """Everybody answered, or had the time to."""
        if self.state is not HealingState.FETCHING:
            return
        part, state = self._parts[0], self.log
        interval = part.interval
        assert interval is not None, part
        told = {
            shard: answer
            for shard, answer in answers.items()
            if (answer.vouches or answer.lossy) and answer.through >= part.first
        }
        through = min([part.last, *(answer.through for answer in told.values())])
        domains = interval.domains(self._shard.config.location)
        waits_for = set(interval.shards) - {self._shard.shard, *told}
        for shard, generation in interval.nodeset:
            if shard in waits_for and self._is_made_good(shard, generation):
                hit("healing_beside_rebuilt_shard")
                domains.set_authority(shard, Authority.AUTHORITATIVE_EMPTY)
                waits_for.discard(shard)
        vouching = [shard for shard, answer in told.items() if answer.vouches]
        authoritative = domains.f_majority(vouching).is_authoritative
        if waits_for and not authoritative:
            hit("healing_waits_for_shards")
            self.waits_for |= waits_for
        found = best_copies(state, self._shard.shard, answers, part.first, through)
        step = _Step(through, authoritative or not waits_for, authoritative, found)
        self._throttle.reserve(sum([answer.size for answer in answers.values()]), now)
        if found:
            self._compare(step)
        elif step.healed:
            self._write(step, [])
        else:
            self._go_on(through, now)

    def _compare(self, step: _Step) -> None:
        """Look which of the copies are here."""
        self.state = HealingState.READING
        state, first = self.log, self._parts[0].first

        def done(result: ReadResult, now: Micros) -> None:
            if self.state is not HealingState.READING:
                return
            if result.status is not Status.OK:
                self.stop()
                return
            damaged = result.damaged
            if damaged:
                hit("healing_met_damage")
                self._found_damage(state, result)
            held = {lsn: parse_header(image).rank for lsn, image in result.entries}
            step.through = min(step.through, result.through)
            missing = [
                lsn
                for lsn in sorted(step.found)
                if lsn <= step.through
                and (lsn not in held or held[lsn] < step.found[lsn][0].rank)
                and not overlaps(damaged, lsn, lsn)
            ]
            if missing or step.healed:
                self._write(step, missing)
            else:
                self._go_on(step.through, now)

        self._shard.reads.read(state.log, first, step.through, _READ_BYTES, _ENTRIES_MAX, done)

    def _write(self, step: _Step, missing: list[Lsn]) -> None:
        self.state = HealingState.WRITING
        shard, state, part = self._shard, self.log, self._parts[0]
        first = part.first
        group = shard.writes.group(True)
        put_again(group.batch, state, step.found, missing)
        if step.healed:
            rest = list(state.dirty or ())
            remove_range(rest, first, step.through)
            group.batch.put_log_metadata(state.log, LogMetadataKind.DIRTY, encode_ranges(rest))

        def written(status: Status, now: Micros) -> None:
            if self.state is not HealingState.WRITING:
                return
            if status is not Status.OK:
                hit("healing_write_refused")
                self._finish(now)
                return
            remember(shard, state, [(lsn, step.found[lsn][1]) for lsn in missing])
            self.restored += len(missing)
            shard.metrics.copies_healed += len(missing)
            if missing:
                hit("healing_restored")
            if step.healed:
                state.forget_dirty(first, step.through)
                self.progress = True
                if not step.authoritative:
                    hit("healing_not_authoritative")
                    add_range(self.given_up, first, step.through)
            self._go_on(step.through, now)

        group.done.append(written)
        shard.writes.close()

    def _go_on(self, through: Lsn, now: Micros) -> None:
        """The part is done with up to there."""
        part = self._parts[0]
        if through < part.last:
            part.first = Lsn(through + 1)
        else:
            del self._parts[0]
        self._next_part(now)

    def _finish(self, now: Micros) -> None:
        self.stop()
        self._finished(self, now)
