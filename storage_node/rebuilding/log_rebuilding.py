"""A donor's part for one log: which epochs list lost shards, when they are final, and what of them is to be re-replicated."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.entry import EntryHeader, parse_header
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import EPOCH_INVALID, EPOCH_MAX, ESN_MAX, Epoch, Lsn, compose_lsn
from logdevice_py.core.machine import Timer, backoff
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.event_log.events import DonorFlags, RebuildMode
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.placement.policy import CopysetSource
from logdevice_py.protocol.messages import SeqStateFlags
from storage_node.epochs.purge import HistoryReader
from storage_node.log_state import LogState
from storage_node.log_store.interface import ReadResult
from storage_node.log_store.wanted import members
from storage_node.reading.release import PurgeStarter
from storage_node.rebuilding.chunk import ChunkRebuilding, EntryWork, entry_work
from storage_node.rebuilding.context import DonorContext, TryLimit
from storage_node.rebuilding.pace import LOG_COST, READ_SHARE, DonorPace
from storage_node.rebuilding.receiver import RebuildStoreHandler
from storage_node.shard import Shard

_ENTRIES_MAX: Final = 1000
_AVOIDED_US: Final = 5 * SECOND


class LogRebuildingState(enum.Enum):
    """How far the log is."""

    HISTORY = "reading history"  # which epochs list a lost shard?
    SEQUENCER = "asking the sequencer"  # for an epoch without it, and until all before are recovered
    WIDENING = "asking for wider nodesets"  # those of its epochs have no place for copies any more
    CLEAN = "waiting for clean epochs"  # what this shard holds of them is not final yet
    SCANNING = "scanning"  # entries are looked through, and re-replicated
    DONE = "done"  # terminal


@dataclass(slots=True)
class _Range:
    """Epochs that list a shard of the set."""

    interval: EpochInterval
    affected: Mapping[ShardId, RebuildMode]
    first: Epoch
    last: Epoch
    """Inclusive; `EPOCH_MAX` while no later interval is known."""

    def kept_if_given_by(self, giver: ShardId, copyset: Sequence[int]) -> tuple[ShardId, ...] | None:
        """The members of a copyset that keep their copies, if `giver` is to see to it that others get some; None if not."""
        affected = self.affected
        if not any(member in affected for member in copyset):
            return None
        shards = [ShardId(member) for member in copyset]
        kept = tuple(member for member in shards if member not in affected)
        givers = kept or tuple(member for member in shards if affected[member] is RebuildMode.RELOCATE)
        return kept if givers and givers[0] == giver else None


class LogRebuilding:
    """One log on one donor, for one round."""

    def __init__(
        self,
        log: LogId,
        shard: Shard,
        purges: PurgeStarter,
        own_store: RebuildStoreHandler,
        context: DonorContext,
        pace: DonorPace,
        try_limit: TryLimit,
        found_damage: Callable[[LogState, ReadResult], None],
        finished: Callable[[LogRebuilding, Micros], None],
    ) -> None:
        """
        Args:
            found_damage: gets reads that met damage.
        """
        self.log = log
        self.state = LogRebuildingState.HISTORY
        self.flags = DonorFlags.NONE
        self.lacks_space = False
        """Some entries have no place as long as shards lack space: the log is to be looked through again."""
        self.is_cut_short = False
        """The log was in the cluster file no more, so that nobody was to end its epochs: what is not final was left out."""
        self.reader: HistoryReader | None = None
        self._shard = shard
        self._purges = purges
        self._own_store = own_store
        self._context = context
        self._pace = pace
        self._try_limit = try_limit
        self._found_damage = found_damage
        self._finished = finished
        self._timer: Timer | None = None
        self._pauses = self._new_pauses()
        self._tries = 0
        self._asked = False
        self._widened: Epoch = EPOCH_INVALID
        """The metadata record of this epoch, and so each nodeset that was widened with it or before, is certain to be in the metadata log."""
        self._escapes = 0
        """How often wider nodesets were asked for."""
        self._is_escape_over = False
        """They were asked for as often as is worth it."""
        self._ranges: list[_Range] = []
        self._last = Epoch(0)
        self._position = Lsn(0)
        self._selector: CopysetSource | None = None
        self._avoided: dict[ShardId, tuple[Micros, Status]] = {}
        """Shards that did not store what they should: until when they are left alone, and what they said."""
        self._targets: dict[tuple[ShardId, ...], tuple[ShardId, ...]] = {}
        self._block_bytes = 0
        self._entries: list[tuple[Lsn, bytes]] = []
        self._through = Lsn(0)
        self._chunk: ChunkRebuilding | None = None

    def start(self, now: Micros) -> None:
        """Begin when its turn has come."""
        self._pace.admit(LOG_COST, self._begin, now)

    def _begin(self, now: Micros) -> None:
        if self.state is LogRebuildingState.HISTORY:
            self._read_history(now)

    def stop(self) -> None:
        """The round is over, or the disk failed. What is under way is left as it is."""
        self.state = LogRebuildingState.DONE
        if self._timer is not None:
            self._timer.cancel()
        if self.reader is not None:
            self.reader.cancel()
            self.reader = None
        if self._chunk is not None:
            self._chunk.cancel()
            self._chunk = None

    def explain(self) -> str:
        """What it does at this moment, for people."""
        return self.state.value

    # --- which epochs ------------------------------------------------------------------------------------------------------

    def _read_history(self, now: Micros) -> None:
        self.state = LogRebuildingState.HISTORY
        self.reader = self._context.start_reader(self.log, self._on_history, now)

    def _on_history(self, history: tuple[EpochInterval, ...], complete: bool, now: Micros) -> None:
        if self.state is not LogRebuildingState.HISTORY:
            return
        self.reader = None
        if not history or not complete:
            if self._out_of_tries():
                hit("rebuilding_history_incomplete")
                self.flags |= DonorFlags.UNPLACED
            else:
                self._later(self._read_history, now)
                return
        self._ranges = []
        context = self._context
        for at, interval in enumerate(history):
            affected = context.affected(interval)
            last = Epoch(history[at + 1].since - 1) if at + 1 < len(history) else EPOCH_MAX
            if affected:
                self._ranges.append(_Range(interval, affected, interval.since, last))
                domains = interval.domains(context.config.location)
                if domains.can_replicate(context.may_hide_records(interval.nodeset)):
                    self.flags |= DonorFlags.UNCERTAIN
        if not self._ranges:
            self._finish(now)
            return
        self._last = self._ranges[-1].last
        if self._last == EPOCH_MAX:
            if self._asked and self._context.is_left_soon(self.log, history):
                # Its sequencer may be slow to read the event log, or to come to this log: however long that takes, nothing is short of places.
                hit("rebuilding_awaits_sequencer")
                self._ask_sequencer(now)
                return
            if not self._asked or not self._out_of_tries():
                self._ask_sequencer(now)
                return
            # the nodeset cannot do without the shard: what is clean of its epochs is looked through all the same
            hit("rebuilding_nodeset_too_small")
            self.flags |= DonorFlags.UNPLACED
            self._last = self._clean_epoch()
        if self._clean_epoch() >= self._last and self._widest() <= self._widened:
            self._scan(now)
        else:
            self._ask_sequencer(now)

    def _widest(self) -> Epoch:
        """With which epoch the nodesets were widened last. What was read may be a record that is still on its way to the metadata log: until the sequencer says that it is there,
        shards that joined get nothing, as others may read the narrower nodeset."""
        return max((each.interval.widened for each in self._ranges), default=EPOCH_INVALID)

    def _clean_epoch(self) -> Epoch:
        state = self._shard.find(self.log)
        return Epoch(0) if state is None else state.clean_epoch

    # --- until they are final ----------------------------------------------------------------------------------------------

    def _ask_sequencer(self, now: Micros) -> None:
        self.state = LogRebuildingState.SEQUENCER
        above = Epoch(0) if self._last == EPOCH_MAX else Epoch(self._last + 1)
        above = max(above, self._widest())
        wanted = SeqStateFlags.WAIT_FOR_RECOVERY

        def answered(status: Status, now: Micros) -> None:
            self._on_sequencer(status, above, now)

        self._context.ask_sequencer(self.log, above, wanted, answered, now)

    def _on_sequencer(self, status: Status, asked_for: Epoch, now: Micros) -> None:
        if self.state is not LogRebuildingState.SEQUENCER:
            return
        if status is Status.NOTFOUND and self._context.is_removed(self.log):
            hit("rebuilding_log_not_in_config")
            self.is_cut_short = True
            self._last = min(self._last, self._clean_epoch())
            self._scan(now)
        elif status is not Status.OK:
            self._later(self._ask_sequencer, now)
        elif self._last == EPOCH_MAX:
            self._asked = True
            self._later(self._read_history, now)
        else:
            self._widened = max(self._widened, asked_for)
            self.state = LogRebuildingState.CLEAN
            self._await_clean(now)

    # --- wider nodesets ----------------------------------------------------------------------------------------------------

    def _widen(self, now: Micros) -> None:
        """Records have no place in their nodeset: have it widened, then read the history anew. Copies that are stored by then are passed over."""
        self.state = LogRebuildingState.WIDENING
        self._entries = []
        self._context.ask_sequencer(self.log, EPOCH_INVALID, SeqStateFlags.WIDEN, self._on_wider, now)

    def _on_wider(self, status: Status, now: Micros) -> None:
        if self.state is not LogRebuildingState.WIDENING:
            return
        self._escapes += 1
        if self._try_limit.is_over(self._escapes):
            self._is_escape_over = True
        if status is Status.OK or self._is_escape_over:
            self._later(self._read_history, now)
        else:
            hit("rebuilding_asks_again_for_wider_nodesets")
            self._later(self._widen, now)

    def _await_clean(self, now: Micros) -> None:
        state = self._shard.log(self.log)
        if state.clean_epoch >= self._last:
            self._scan(now)
            return
        if not state.clean_in_flight:
            hit("rebuilding_starts_purge")
            state.fence = max(state.fence, self._last)
            self._purges.start(state, self._last, now)
        self._later(self._await_clean, now)

    # --- their entries -----------------------------------------------------------------------------------------------------

    def _scan(self, now: Micros) -> None:
        self.state = LogRebuildingState.SCANNING
        self._next_range(now)

    def _leave_range(self, now: Micros) -> None:
        del self._ranges[0]
        self._next_range(now)

    def _next_range(self, now: Micros) -> None:
        self._ranges = [each for each in self._ranges if each.first <= self._last]
        if not self._ranges:
            self._finish(now)
            return
        at = self._ranges[0]
        interval = at.interval
        state = self._shard.find(self.log)
        first, last = compose_lsn(at.first, 0), compose_lsn(min(at.last, self._last), ESN_MAX)
        if state is not None and state.is_dirty(first, last):
            # what a crash took from here nobody else takes for his to give
            if not self._out_of_tries():
                hit("rebuilding_waits_for_repair")
                self._later(self._next_range, now)
                return
            hit("rebuilding_dirty_range")
            self.flags |= DonorFlags.UNPLACED
        context = self._context
        self._selector = context.placement.copysets(interval.domains(context.config.location), None, context.rng)
        self._targets = {}
        self._position = compose_lsn(at.first, 1)
        self._pauses, self._tries = self._new_pauses(), 0
        if context.lacks_places(interval) and self._may_escape(at):
            hit("rebuilding_escapes_at_once")
            self._widen(now)
            return
        self._read(now)

    def _may_escape(self, at: _Range) -> bool:
        """Whether the nodeset can be widened: its epochs have all ended, and there are shards that would help. Of a log that was removed nobody changes the metadata."""
        is_closed = at.last != EPOCH_MAX and not self.is_cut_short
        return is_closed and not self._is_escape_over and self._context.may_widen(at.interval)

    def _read(self, now: Micros) -> None:
        state = self._shard.find(self.log)
        at = self._ranges[0]
        end = compose_lsn(min(at.last, self._last), ESN_MAX)
        if state is not None:
            self._position = max(self._position, Lsn(state.trim_point + 1))
        if state is None or self._position > min(end, state.highest):
            self._leave_range(now)
            return
        self._pace.admit(0, lambda at: self._read_now(end, at), now)

    def _read_now(self, end: Lsn, now: Micros) -> None:
        if self.state is not LogRebuildingState.SCANNING:
            return
        at, me = self._ranges[0], self._shard.shard
        self._shard.reads.read(
            self.log,
            self._position,
            end,
            self._pace.piece_bytes,
            _ENTRIES_MAX,
            self._on_read,
            lambda image: at.kept_if_given_by(me, members(image)) is not None,
        )

    def _on_read(self, result: ReadResult, now: Micros) -> None:
        if self.state is not LogRebuildingState.SCANNING:
            return
        self._shard.append_delay.note_rebuilding(now)
        self._pace.charge(sum([len(image) for _, image in result.entries]) // READ_SHARE, now)
        if result.status is not Status.OK:
            self.stop()
            return
        if result.corrupt or result.bodiless:
            state = self._shard.find(self.log)
            assert state is not None
            self._found_damage(state, result)
            if not self._out_of_tries():
                hit("rebuilding_waits_for_repair")
                # the repair waits two seconds for who is silent, as lost shards are
                self._timer = self._context.timers.at(now + self._context.settings.retry_us_max, self._read)
                return
            hit("rebuilding_meets_damage")
            self.flags |= DonorFlags.UNPLACED
        self._entries, self._through = result.entries, result.through
        self._tries = 0
        self._store(now)

    def _store(self, now: Micros) -> None:
        """Work on the entries that were read."""
        self._avoided = {shard: avoided for shard, avoided in self._avoided.items() if avoided[0] > now}
        work: list[EntryWork] = []
        unplaced = 0
        for _, image in self._entries:
            header = parse_header(image, alone=True)
            todo = self._plan(header, image)
            if todo is None:
                unplaced += 1
            elif todo:
                work.append(todo[0])
        lacks_space = any(status is Status.NOSPC for _, status in self._avoided.values())
        if unplaced and not lacks_space and not self._out_of_tries():
            # some shard may be away for a moment only
            self._later(self._store, now)
            return
        if unplaced and not lacks_space and self._may_escape(self._ranges[0]):
            hit("rebuilding_escapes_after_tries")
            self._widen(now)
            return
        if unplaced and lacks_space:
            # that may take long: neither other logs nor other nodesets need wait for it
            self.lacks_space = True
            if not work:
                self._entries = []
                self._leave_range(now)
                return
        elif unplaced:
            hit("rebuilding_record_unplaced")
            self.flags |= DonorFlags.UNPLACED
            self._context.metrics.records_unplaced += unplaced
        if not work:
            self._go_on(now)
            return
        interval = self._ranges[0].interval
        retries = self._tries < self._context.settings.tries_max
        chunk = self._chunk = ChunkRebuilding(
            self.log,
            work,
            self._shard.shard,
            dict(interval.nodeset),
            self._context,
            self._own_store,
            self._on_chunk,
            retries=retries,
        )
        self._pace.admit(chunk.size, chunk.start, now)

    def _plan(self, header: EntryHeader, image: bytes) -> tuple[EntryWork, ...] | None:
        """What is to be done for an entry here: nothing (empty), something, or None: there is no place for it."""
        kept = self._ranges[0].kept_if_given_by(self._shard.shard, header.copyset)
        if kept is None:
            return ()
        added = self._choose(kept, len(image))
        return None if added is None else (entry_work(header, image, kept, added),)

    def _choose(self, kept: tuple[ShardId, ...], size: int) -> tuple[ShardId, ...] | None:
        """Who gets copies beside those that are left; the same for neighbouring entries, so that they travel together."""
        self._block_bytes += size
        if self._block_bytes > self._context.settings.chunk_bytes:
            self._block_bytes = 0
            self._targets = {}
        interval, context = self._ranges[0].interval, self._context
        unsure = interval.joined if interval.widened > self._widened else ()
        added = self._targets.get(kept)
        if added is None or any(shard in self._avoided for shard in added):
            assert self._selector is not None
            chosen = self._selector.replace(
                kept,
                lambda shard: (
                    shard not in self._ranges[0].affected
                    and shard not in self._avoided
                    and shard not in unsure
                    and context.is_eligible(shard, interval)
                ),
            )
            if chosen is None:
                return None
            added = self._targets[kept] = chosen[len(kept) :]
        return added

    def _on_chunk(self, failed: dict[ShardId, Status], now: Micros) -> None:
        if self.state is not LogRebuildingState.SCANNING:
            return
        if self._shard.failed:
            self.stop()
            return
        if not failed:
            self._go_on(now)
            return
        hit("rebuilding_chunk_failed")
        for shard, status in failed.items():
            if status is not Status.AGAIN and shard != self._shard.shard:
                self._avoided[shard] = Micros(now + _AVOIDED_US), status
        self._targets = {}
        if all(status is Status.NOSPC and shard in self._avoided for shard, status in failed.items()):
            self._store(now)  # on others, of which there are fewer each time
            return
        self._tries += 1
        self._later(self._store, now)

    def _go_on(self, now: Micros) -> None:
        self._entries = []
        self._pauses, self._tries = self._new_pauses(), 0
        self._position = Lsn(self._through + 1)
        self._read(now)

    # --- in general --------------------------------------------------------------------------------------------------------

    def _new_pauses(self) -> Iterator[int]:
        settings = self._context.settings
        return backoff(self._context.rng, initial_us=settings.retry_us_min, max_us=settings.retry_us_max)

    def _later(self, step: Callable[[Micros], None], now: Micros) -> None:
        self._timer = self._context.timers.at(now + next(self._pauses), step)

    def _out_of_tries(self) -> bool:
        self._tries += 1
        return self._try_limit.is_over(self._tries)

    def _finish(self, now: Micros) -> None:
        self.stop()
        self._finished(self, now)
