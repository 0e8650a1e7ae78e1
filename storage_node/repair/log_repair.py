"""One attempt to repair what is wrong with the copies that a shard should hold of one log.

The metadata history of the log says who else may have the copies; each of those is asked for the entries whose copyset names this shard (FETCH).
Only what is released is repaired: it never changes, so any sound copy is as good as the one that was lost, and every entry of it was on all
shards of its copyset at one time. A shard is *authoritative* in its answer if it has all that it was given to keep in the range, and could read it.
If those who are make up an f-majority, every entry of the range that names this shard came from one of them. A shard that was lost and
whose data was re-replicated counts as one that holds nothing.

                     dirty range                    unreadable range                   missing range
what it is           a crash may have taken copies  something there cannot be read     others list copies; none is here
the history must be  complete                       complete                           true as far as it was found
given to another     the mark goes at once          left as it is                      left as it is
generation or shard
it is repaired when  those who are authoritative are an f-majority; or everybody else  those who are authoritative are     somebody has a copy
                     says that a crash took from it as well: nothing more will come    an f-majority, and a copy was found
                     to light (lossy)                  or nobody has one (see below)
else                 what was found is stored, the  nothing is changed                 nothing is changed
                     mark stays
what is deleted      nothing                        all of the range; what can be read nothing
                                                    of it by then is put back
what is written      copies that are not here, and  the copies found, and what can     copies that are not here
                     the narrower mark, in a batch  be read
tried again          until the mark is gone         until something replaces it        when another comparison lists it

Rules for unreadable ranges:

  - As long as nobody has anything to put there, what is there stays: damage is no reason to delete. Only where a range spans several LSNs, and
    everybody says that there is nothing which names this shard, it is emptied.
  - The range is read once more before it is replaced: a copy beside the damage, or one that could not be read for a while, no other shard has to know of.
  - While others are asked, donors of a rebuilding store nothing there (`LogState.replaced`). Where one has of late, others do not know yet that the
    copy belongs here: the range waits.
  - A record of a metadata log tells everything that the ones before it do: with a sound one nothing below it is missed, whoever else is silent.

The end of a dirty range is open while the sequencer of its epoch goes on. It is asked which LSN comes next: this shard has lost nothing at or
above. The mark is narrowed in memory when the batch is written: on disk it is never narrower than the truth.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import ShardId, format_shard, is_metadata_log
from logdevice_py.core.lsn import ESN_MAX, LSN_INVALID, Lsn, epoch_of, esn_of
from logdevice_py.core.machine import Timer
from logdevice_py.core.marks import hit
from logdevice_py.core.states import MachineState, transitions
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.membership.cluster_view import ClusterView
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.placement.failure_domains import Authority
from storage_node.epochs.purge import StartHistoryReader
from storage_node.log_state import LogState
from storage_node.log_store.interface import LogMetadataKind, ReadResult
from storage_node.lsn_ranges import Range, add_range, format_range, overlaps, remove_range
from storage_node.repair.fetching import (
    Answers,
    CopyFetcher,
    FoundCopies,
    IsReReplicated,
    best_copies,
    put_copies,
    remember,
)
from storage_node.repair.log_damage import LogDamage
from storage_node.repair.log_history import HistoryReading, spans
from storage_node.repair.next_lsn import NextLsnQuestion
from storage_node.repair.notices import Notice
from storage_node.repair.throttle import Throttle
from storage_node.shard import Shard
from storage_node.stored_metadata import encode_ranges

_READ_BYTES: Final = 1 << 20
_ENTRIES_MAX: Final = 4000
_REQUEST_COST: Final = 4096
"""What a range without entries costs of the rate, in bytes."""


class RepairState(MachineState):
    """What the repair of a log is doing."""

    READING_HISTORY = "reading history"  # which shards may have the copies?
    ASKING_SEQUENCER = "asking the sequencer"  # up to where may a crash have taken entries?
    PACING = "pacing"  # until the rate allows to go on
    FETCHING = "fetching"  # what do they have?
    READING = "reading"  # what of the range is here?
    WRITING = "writing"  # what belongs there is with the disk
    DONE = "done"  # nothing more to do in this attempt, or the disk failed


_S = RepairState
REPAIR_TRANSITIONS: Final = transitions(
    {
        _S.READING_HISTORY: (_S.READING_HISTORY, _S.ASKING_SEQUENCER, _S.PACING, _S.DONE),
        _S.ASKING_SEQUENCER: (_S.READING_HISTORY, _S.DONE),
        _S.PACING: (_S.FETCHING, _S.WRITING, _S.DONE),
        _S.FETCHING: (_S.READING, _S.WRITING, _S.PACING, _S.DONE),
        _S.READING: (_S.WRITING, _S.FETCHING, _S.PACING, _S.DONE),
        _S.WRITING: (_S.PACING, _S.DONE),
        _S.DONE: (_S.DONE,),
    }
)


class RangeKind(enum.Enum):
    """What is wrong with a range: see the module."""

    UNREADABLE = "unreadable"
    MISSING = "missing"
    DIRTY = "dirty"


@dataclass(slots=True)
class _Part:
    """A range within one interval of the history."""

    kind: RangeKind
    first: Lsn
    last: Lsn
    interval: EpochInterval | None
    """None: this shard, as it is, was given nothing to keep there."""


@dataclass(slots=True)
class _Outcome:
    """What the answers about the beginning of a part come to."""

    through: Lsn
    found: FoundCopies
    authoritative: bool
    """No entry of the range can have had copies only here and where they may be gone as well."""
    repaired: bool
    """With what is found the range is repaired."""


class LogRepair:
    """One attempt to repair what is known to be wrong with one log: its unreadable, missing and dirty ranges, one after the other."""

    def __init__(
        self,
        shard: Shard,
        damage: LogDamage,
        cluster: ClusterView,
        start_reader: StartHistoryReader,
        throttle: Throttle,
        found_damage: Callable[[LogState, ReadResult], None],
        is_re_replicated: IsReReplicated,
        finished: Callable[[LogRepair, Micros], None],
    ) -> None:
        """
        Args:
            throttle: of what is fetched for dirty ranges.
            found_damage: gets reads that met damage.
            finished: called once.
        """
        self.state = RepairState.READING_HISTORY
        self.damage = damage
        self.log: Final[LogState] = damage.state
        self.progress = False
        """A range is repaired that was not."""
        self.dirty_restored = 0
        """Copies of dirty ranges that were not here any more and are again."""
        self.lossy: list[Range] = []
        """Where some entries may have no copy left."""
        self.waits_for: set[ShardId] = set()
        """Who would have had to answer for more to be repaired."""
        self.hindrance = "a sound copy" if self.log.dirty is None else "entries to be released"
        """What else than shards was in the way, for people."""
        self.overtaken = False
        """Something was stored in the log since the others were asked: what was read before does not show it."""
        self.looked_for: list[Range] = []
        """What was known to be missing when it was planned; what is noted later is for the next attempt."""
        self._shard = shard
        self._throttle = throttle
        self._found_damage = found_damage
        self._is_re_replicated = is_re_replicated
        self._finished = finished
        self._parts: list[_Part] = []
        self._history = HistoryReading(shard, start_reader, self._on_history)
        self._fetcher = CopyFetcher(shard, self._on_answers)
        self._question = NextLsnQuestion(shard, cluster, self.log.log, self._on_next_lsn)
        self._timer: Timer | None = None

    def _become(self, state: RepairState) -> None:
        assert state in self.state.followed_by, (self.state, state)
        self.state = state

    def start(self, now: Micros) -> None:
        """Begin."""
        dirty = self.log.dirty
        last = LSN_INVALID if dirty is None else dirty[-1][1]
        if last > self.log.immutable_through and esn_of(last) == ESN_MAX:
            self._become(RepairState.ASKING_SEQUENCER)
            self._question.ask(epoch_of(last), self.log.soft_node, now)
        else:
            self._read_history(now)

    def stop(self) -> None:
        """The disk failed, or the attempt is over."""
        self._become(RepairState.DONE)
        self.log.replaced = None
        self._history.cancel()
        self._question.cancel()
        self._fetcher.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- which ranges --------------------------------------------------------------------------------------------------------

    def _on_next_lsn(self, next_lsn: Lsn | None, now: Micros) -> None:
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
        damage, state = self.damage, self.log
        waits = state.dirty is None or state.dirty[0][0] > state.immutable_through
        if waits and not damage.unreadable and not damage.missing:
            self._finish(now)
            return
        self._become(RepairState.READING_HISTORY)
        self._history.read(state.log, now)

    def _on_history(self, history: tuple[EpochInterval, ...], complete: bool, now: Micros) -> None:
        """Cut what is wrong and immutable at the borders of intervals."""
        damage, state, shard = self.damage, self.log, self._shard
        damage.noted = False
        self.looked_for = list(damage.missing)
        wrong: dict[RangeKind, list[Range]] = {RangeKind.MISSING: damage.missing}
        if complete and history:
            wrong = {RangeKind.UNREADABLE: damage.unreadable, **wrong, RangeKind.DIRTY: state.dirty or []}
        else:
            hit("repair_without_history")
            self.hindrance = "the metadata log to be readable"
        for kind, ranges in wrong.items():
            for interval, low, high in spans(history):
                high = min(high, state.immutable_through)
                # what was stored before this generation of the shard is nothing that it has to have
                is_member = interval is not None and interval.generation(shard.shard) in (shard.generation, 0)
                if not is_member and kind is not RangeKind.DIRTY:
                    continue
                for first, last in ranges:
                    first, last = max(first, low), min(last, high)
                    if first <= last:
                        self._parts.append(_Part(kind, first, last, interval if is_member else None))
        self._parts.reverse()
        self._next_part(now)

    # --- one range -----------------------------------------------------------------------------------------------------------

    @property
    def _part(self) -> _Part:
        """The part at work."""
        return self._parts[-1]

    def _go_on(self, through: Lsn, now: Micros) -> None:
        """The part is done with up to there."""
        if through < self._part.last:
            self._part.first = Lsn(through + 1)
        else:
            self._parts.pop()
            self.log.replaced = None
        self._next_part(now)

    def _next_part(self, now: Micros) -> None:
        if not self._parts:
            self._finish(now)
            return
        self._become(RepairState.PACING)
        begin = self._throttle.reserve(_REQUEST_COST, now) if self._part.kind is RangeKind.DIRTY else now
        if begin <= now:
            self._ask(now)
        else:
            self._timer = self._shard.timers.at(begin, self._ask)

    def _ask(self, now: Micros) -> None:
        """Ask the others about a part, passing over those that cannot be repaired now."""
        self.log.replaced = None
        while self._parts and self._is_passed_over(self._part, now):
            self._parts.pop()
        if not self._parts:
            self._finish(now)
            return
        part = self._part
        if part.interval is None:
            hit("repair_of_what_was_not_given_here")
            self._write(part, _Outcome(part.last, {}, authoritative=True, repaired=True), {})
            return
        self._become(RepairState.FETCHING)
        self.overtaken = False
        if part.kind is RangeKind.UNREADABLE:
            self.log.replaced = part.first, part.last
        # one copy is as good as several, where nothing has to be replaced
        one_is_enough = part.kind is RangeKind.MISSING and part.first == part.last
        self._fetcher.ask(self.log.log, part.interval, part.first, part.last, now, one_is_enough=one_is_enough)

    def _is_passed_over(self, part: _Part, now: Micros) -> bool:
        if part.last <= self.log.trim_point:
            return True
        if part.kind is RangeKind.UNREADABLE and self._shard.donated.any_in(self.log.log, part.first, part.last, now):
            hit("repair_waits_for_donors")
            return True
        return False

    def _on_answers(self, answers: Answers, now: Micros) -> None:
        """Everybody answered, or had the time to."""
        if self.state is not RepairState.FETCHING:
            return
        part, outcome = self._part, self._judge(self._part, answers)
        if part.kind is RangeKind.DIRTY:
            self._throttle.reserve(sum([answer.size for answer in answers.values()]), now)
        is_replaced = part.kind is RangeKind.UNREADABLE
        if not outcome.repaired and (is_replaced or not outcome.found):
            hit("repair_finds_no_copy")
            self._go_on(part.last if is_replaced else outcome.through, now)
        elif is_replaced or outcome.found:
            self._read(part, outcome)
        else:
            self._write(part, outcome, {})

    def _judge(self, part: _Part, answers: Answers) -> _Outcome:
        """What the answers prove."""
        interval, state, me = part.interval, self.log, self._shard.shard
        assert interval is not None, part
        told = {
            shard: answer
            for shard, answer in answers.items()
            if (answer.authoritative or answer.lossy) and answer.through >= part.first
        }
        through = min([part.last, *(answer.through for answer in told.values())])
        found = best_copies(state, me, answers, part.first, through)
        authorities = {shard for shard, answer in told.items() if answer.authoritative}
        domains = interval.domains(self._shard.config.location)
        uncertain = set(interval.shards) - {me} - authorities
        for shard, generation in interval.nodeset:
            # of metadata logs generations are not known
            if generation and shard in uncertain and self._is_re_replicated(shard, generation):
                hit("repair_beside_rebuilt_shard")
                domains.set_authority(shard, Authority.AUTHORITATIVE_EMPTY)
                uncertain.discard(shard)
        authoritative = domains.f_majority(sorted(authorities)).is_authoritative
        silent = uncertain - told.keys()
        if part.kind is RangeKind.DIRTY:
            repaired = authoritative or not silent
        elif part.kind is RangeKind.UNREADABLE:
            if found and not authoritative and is_metadata_log(state.log):
                hit("repair_by_one_metadata_record")
                authoritative, through = True, max(found)
            repaired = authoritative and (bool(found) or (not uncertain and part.first < part.last))
        else:
            repaired = bool(found)
        if not repaired and silent:
            hit("repair_waits_for_shards")
            self.waits_for |= silent
        return _Outcome(through, found, authoritative, repaired)

    def _read(self, part: _Part, outcome: _Outcome) -> None:
        """Look which copies are here."""
        self._become(RepairState.READING)

        def done(result: ReadResult, now: Micros) -> None:
            if self.state is not RepairState.READING:
                return
            if result.status is not Status.OK:
                self.stop()
                return
            is_replaced = part.kind is RangeKind.UNREADABLE
            if is_replaced and self.overtaken:
                hit("repair_is_overtaken_by_a_store")
                self._ask(now)
                return
            outcome.through = min(outcome.through, result.through)
            copies = self._replacement(outcome, result) if is_replaced else self._copies_not_here(outcome, result)
            if copies or (outcome.repaired and part.kind is not RangeKind.MISSING):
                self._write(part, outcome, copies)
            else:
                self._go_on(outcome.through, now)

        self._shard.reads.read(self.log.log, part.first, outcome.through, _READ_BYTES, _ENTRIES_MAX, done)

    def _copies_not_here(self, outcome: _Outcome, result: ReadResult) -> FoundCopies:
        """The copies that were found and are not here, as far as the range was read. What cannot be read is repaired for itself."""
        damaged = result.damaged
        if damaged:
            hit("repair_met_damage")
            self._found_damage(self.log, result)
        held = {lsn: parse_header(image).rank for lsn, image in result.entries}
        return {
            lsn: copy
            for lsn, copy in outcome.found.items()
            if lsn <= outcome.through
            and (lsn not in held or held[lsn] < copy[0].rank)
            and not overlaps(damaged, lsn, lsn)
        }

    def _replacement(self, outcome: _Outcome, result: ReadResult) -> FoundCopies:
        """All that is to be in the range when what cannot be read is gone."""
        state, found = self.log, outcome.found
        best = {lsn: copy for lsn, copy in found.items() if state.trim_point < lsn <= outcome.through}
        if found and is_metadata_log(state.log):
            best[max(found)] = found[max(found)]  # what stands for all below it is not left for later
        for lsn, image in result.entries:
            header = parse_header(image)
            if lsn > state.trim_point and (lsn not in best or header.rank >= best[lsn][0].rank):
                hit("repair_keeps_what_it_can_read")
                best[lsn] = header, image, self._shard.shard
        return best

    def _write(self, part: _Part, outcome: _Outcome, copies: FoundCopies) -> None:
        self._become(RepairState.WRITING)
        shard, state, first, through = self._shard, self.log, part.first, outcome.through
        # within a batch puts win over deletes: what came before must lie in an earlier one to be replaced
        shard.writes.close()
        group = shard.writes.group(True)
        if part.kind is RangeKind.UNREADABLE:
            group.batch.restore(state.log, first, through)
        put_copies(group.batch, state, [copies[lsn][:2] for lsn in sorted(copies)])
        mark_goes = part.kind is RangeKind.DIRTY and outcome.repaired
        if mark_goes:
            rest = list(state.dirty or ())
            remove_range(rest, first, through)
            group.batch.put_log_metadata(state.log, LogMetadataKind.DIRTY, encode_ranges(rest))

        def written(status: Status, now: Micros) -> None:
            if self.state is not RepairState.WRITING:
                return
            if status is not Status.OK:
                hit("repair_write_refused")
                self._go_on(part.last, now)
                return
            remember(shard, state, [(lsn, copies[lsn][1]) for lsn in sorted(copies)])
            if part.kind is not RangeKind.DIRTY:
                self._note_repaired(part, through, copies)
            else:
                self._note_dirty_restored(first, outcome, len(copies))
            self._go_on(through, now)

        group.done.append(written)
        shard.writes.close()

    def _note_dirty_restored(self, first: Lsn, outcome: _Outcome, copies: int) -> None:
        """Copies of a dirty range are on disk, and the narrower mark where it is repaired."""
        self.dirty_restored += copies
        self._shard.metrics.dirty_copies_restored += copies
        if copies:
            hit("repair_of_dirty")
        if outcome.repaired:
            self.log.forget_dirty(first, outcome.through)
            self.progress = True
            if not outcome.authoritative:
                hit("repair_not_authoritative")
                add_range(self.lossy, first, outcome.through)

    def _note_repaired(self, part: _Part, through: Lsn, copies: FoundCopies) -> None:
        """What was unreadable or missing is on disk."""
        shard, damage, first = self._shard, self.damage, part.first
        unreadable = part.kind is RangeKind.UNREADABLE
        self.progress = True
        remove_range(damage.unreadable if unreadable else damage.missing, first, through)
        origins = [origin for _, _, origin in copies.values() if origin != shard.shard]
        shard.metrics.copies_restored += len(origins)
        if origins:
            hit("repair_of_unreadable" if unreadable else "repair_of_missing")
        sources = ", ".join(format_shard(each) for each in sorted(set(origins)))
        what = "could not be read" if unreadable else "were missing"
        done = f"{len(origins)} re-replicated from {sources}" if origins else "nothing else belongs there"
        if len(copies) > len(origins):
            done += f"; {len(copies) - len(origins)} can be read, and stay"
        text = f"log {self.log.log}: copies from {format_range(first, through)} {what}: {done}"
        shard.out.emit(Notice(shard.shard, "repaired", text))

    def _finish(self, now: Micros) -> None:
        self.stop()
        self._finished(self, now)
