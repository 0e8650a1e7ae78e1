"""What one shard does in a round of rebuilding: it looks through every log that it holds something of, some at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from logdevice_py.core.ids import LogId, data_log_of, is_metadata_log
from logdevice_py.core.lsn import EPOCH_INVALID, EPOCH_MAX, LSN_INVALID, LSN_OLDEST, Epoch, Lsn, epoch_of
from logdevice_py.core.machine import Timer, backoff
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.event_log.events import DonorFlags, RebuildMode
from logdevice_py.event_log.rebuilding_set import RebuildingSet, RebuildingShard
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.protocol.messages import SeqStateFlags
from storage_node.log_state import LogState
from storage_node.log_store.interface import ReadResult
from storage_node.log_store.wanted import members
from storage_node.reading.release import PurgeStarter
from storage_node.rebuilding.context import DonorContext, SequencerAnswered, TryLimit
from storage_node.rebuilding.log_rebuilding import LogRebuilding
from storage_node.rebuilding.pace import DonorPace
from storage_node.rebuilding.receiver import Copy, RebuildStoreHandler
from storage_node.shard import Shard

_NEVER_TAKEN_UP: Final = Epoch(-1)
_SPACE_PAUSE_US_MIN: Final = 5 * SECOND
_SPACE_PAUSE_US_MAX: Final = 30 * SECOND
_TREE_PAUSE_US: Final = SECOND // 4
_TREE_TRIES: Final = 120


class ShardDonor:
    """One shard as donor. A new round begins from the start; what has its copies is skipped."""

    def __init__(
        self,
        shard: Shard,
        purges: PurgeStarter,
        own_store: RebuildStoreHandler,
        context: DonorContext,
        found_damage: Callable[[LogState, ReadResult], None],
    ) -> None:
        """
        Args:
            found_damage: gets reads that met damage.
        """
        self.round: Lsn = LSN_INVALID
        """The round that it works for, or has finished; 0: none."""
        self.result: DonorFlags | None = None
        """How the round ended here; None: it is under way, or there is none."""
        self.lacking_space: list[LogId] = []
        """Logs of which entries have no place until shards have space again. They are looked through once more when all others are done."""
        self.running: dict[LogId, LogRebuilding] = {}
        self._shard = shard
        self._purges = purges
        self._own_store = own_store
        self._context = context
        self._found_damage = found_damage
        self.pace = DonorPace(
            shard.shard, shard.append_delay.percent, context.pressure, context.settings, context.timers
        )
        self._try_limit = TryLimit(context.settings.tries_max)
        self._waiting: deque[LogId] = deque()
        self._seen: dict[LogId, Epoch] = {}
        """Logs that were taken up, and up to which epoch: beyond it there may be more to give."""
        self._cut_short: set[LogId] = set()
        """Logs that were looked through as far as they were final, because they had left the cluster file: they may come back."""
        self._metadata = 0
        self._flags = DonorFlags.NONE
        self._space_timer: Timer | None = None
        self._is_needed_timer: Timer | None = None
        """Runs while too few others live to do without this shard, which is being emptied."""
        self._needed_tries = 0
        """How often that was seen in this round."""
        self._tree_timer: Timer | None = None
        """Runs while the round waits for the log tree."""
        self._tree_tries = 0
        self._space_pauses = self._new_space_pauses()

    @property
    def logs_left(self) -> int:
        """How many logs are not done."""
        return len(self.running) + len(self._waiting) + len(self.lacking_space) + self._metadata

    def on_set(self, state: RebuildingSet, now: Micros) -> None:
        """The event log says something else than before."""
        self.judge_mark()
        wanted = state.round if state.awaits(self._shard.shard) else LSN_INVALID
        if wanted == self.round:
            begun = wanted != LSN_INVALID and self._tree_timer is None
            if begun and not self.logs_left and self.result is None and not self._shard.failed:
                self._look_for_logs(now)
            return
        self.stop()
        self.round = wanted
        if wanted != LSN_INVALID and not self._shard.failed:
            hit("donor_begins_round")
            self._begin_round(now)

    def _begin_round(self, now: Micros) -> None:
        """Not before the log tree is read, if there is one, which says how logs are replicated: a node that has just started may need a moment. Not
        for ever, as the tree may be lost."""
        self._tree_timer = None
        if not self._context.config.all_logs_known and self._tree_tries < _TREE_TRIES:
            hit("donor_awaits_log_tree")
            self._tree_tries += 1
            self._tree_timer = self._context.timers.at(now + _TREE_PAUSE_US, self._begin_round)
            return
        if self._is_uncertain():
            self._flags |= DonorFlags.UNCERTAIN
        self._look_for_logs(now)

    def judge_mark(self) -> None:
        """What the event log says, or whom it leaves out, may be something else than before: does the shard's mark hold?"""
        shard, state = self._shard, self._context.set
        mark = shard.drain_mark
        if not mark.noted or state.version < mark.noted:
            return  # what was read so far is older than the mark
        entry = state.shards.get(shard.shard)
        if entry is None or entry.since != mark.noted or entry.flags:
            mark.clear()
        else:
            mark.is_needed = shard.shard not in shard.config.excluded
        shard.judge_writable()

    def outcome(self, now: Micros) -> DonorFlags | None:
        """As `result`, at this moment: a shard that took records after it was done is not."""
        if self.result is not None and self._lacks_mark():
            hit("emptied_shard_took_records")
            self.result = None
            self._look_for_logs(now)
        return self.result

    def on_copies_taken(self, log: LogId, copies: list[Copy], now: Micros) -> None:
        """Copies of another donor are on disk. One that has not heard of the last events leaves shards in copysets that are lost or drained by now: such
        an entry may be this shard's to give, and came after it looked through the log."""
        open_shards = {entry.shard for entry in self._context.set.open_shards}
        if self.round == LSN_INVALID or not any(open_shards.intersection(header.copyset) for header, _ in copies):
            return
        hit("donor_takes_copies_of_an_earlier_round")
        self._seen.pop(log, None)
        if not self.logs_left and self._tree_timer is None:
            self.result = None
            self._look_for_logs(now)

    def _own_drain(self) -> RebuildingShard | None:
        """The entry of this shard when it is being emptied."""
        entry = self._context.set.shards.get(self._shard.shard)
        return None if entry is None or entry.rebuilt or entry.mode is not RebuildMode.RELOCATE else entry

    def _lacks_mark(self) -> bool:
        """Whether it is being emptied, and may take records as yet. One that cannot be emptied goes on to take them."""
        own = self._own_drain()
        return own is not None and not self._flags and self._shard.drain_mark.durable != own.since

    def stop(self) -> None:
        """Do nothing more for the round."""
        for each in self.running.values():
            each.stop()
        self.running.clear()
        self.pace.stop()
        self._waiting.clear()
        self._seen.clear()
        self._cut_short.clear()
        self._metadata = 0
        self._flags = DonorFlags.NONE
        self._try_limit = TryLimit(self._context.settings.tries_max)
        self.lacking_space.clear()
        if self._space_timer is not None:
            self._space_timer.cancel()
        if self._is_needed_timer is not None:
            self._is_needed_timer.cancel()
            self._is_needed_timer = None
        self._needed_tries = 0
        if self._tree_timer is not None:
            self._tree_timer.cancel()
            self._tree_timer = None
        self._tree_tries = 0
        self._space_pauses = self._new_space_pauses()
        self.result = None
        self.round = LSN_INVALID

    def _is_uncertain(self) -> bool:
        """Whether a record of some log may have had all its copies on lost shards: of logs that only those held, nobody else can tell."""
        context = self._context
        config = context.config
        lost = context.may_hide_records((shard, entry.lost) for shard, entry in context.set.shards.items())
        if not config.all_logs_known:
            return bool(lost)
        return any(
            FailureDomains.by_file(lost, replication, config.location).can_replicate(lost)
            for replication in config.values_in_use("replicate")
        )

    def _look_for_logs(self, now: Micros) -> None:
        """Take up the logs that were not met before; when there are none, the round is done here. Not as long as a shard that is being emptied
        gives: it may get records until the epochs of its logs have ended, and this shard the other copies, also of logs that it never met, or in
        epochs later than those that it has looked at."""
        logs, awaits_emptied = self._shard.logs, self._awaits_emptied()
        goes_on = awaits_emptied or self._own_drain() is not None
        returned = {log for log in self._cut_short if log in logs and not self._context.is_removed(log)}
        if returned:
            hit("donor_meets_returned_log")
            self._cut_short -= returned
        found = sorted(
            log
            for log, state in logs.items()
            if log in returned or self._seen.get(log, _NEVER_TAKEN_UP) < epoch_of(state.highest)
        )
        for log in found:
            if log in self._seen:
                hit("donor_looks_again")
            self._seen[log] = epoch_of(logs[log].highest) if goes_on else EPOCH_MAX
        self._waiting.extend(found)
        if not found:
            if self.lacking_space:
                hit("donor_awaits_space")
                self._space_timer = self._context.timers.at(now + next(self._space_pauses), self._try_again)
            elif awaits_emptied:
                hit("donor_awaits_emptied_shard")
            elif self._lacks_mark():
                self._mark(now)
            else:
                self.result = self._flags
            return
        self._go_on(now)

    def _mark(self, now: Micros) -> None:
        """Take no records from here on, durably; then look for those that came before."""
        own, shard = self._own_drain(), self._shard
        assert own is not None
        if shard.drain_mark.noted == own.since or self._is_needed_timer is not None:
            return  # it is being written, or waits
        if shard.shard in shard.config.excluded:
            shard.drain_mark.note(own.since, self._look_once_more)
            shard.judge_writable()
            return
        self._needed_tries += 1
        if self._needed_tries > self._context.settings.tries_max:
            hit("emptied_shard_stays_needed")
            self._flags |= DonorFlags.UNPLACED
            self._look_for_logs(now)
        else:
            hit("emptied_shard_is_needed")
            again = now + self._context.settings.retry_us_max
            self._is_needed_timer = self._context.timers.at(again, self._look_once_more)

    def _look_once_more(self, now: Micros) -> None:
        self._is_needed_timer = None
        if self.round != LSN_INVALID and self.result is None and not self.logs_left and not self._shard.failed:
            self._look_for_logs(now)

    def _awaits_emptied(self) -> bool:
        state = self._context.set
        emptied = {entry.shard for entry in state.open_shards if entry.mode is RebuildMode.RELOCATE}
        return self._shard.shard not in emptied and any(map(state.awaits, emptied))

    def _new_space_pauses(self) -> Iterator[int]:
        return backoff(self._context.rng, initial_us=_SPACE_PAUSE_US_MIN, max_us=_SPACE_PAUSE_US_MAX)

    def _try_again(self, now: Micros) -> None:
        """Look through the logs again of which entries had no place. Nothing else re-replicates what a full disk refused."""
        self._waiting.extend(self.lacking_space)
        self.lacking_space.clear()
        self._go_on(now)

    def _begin(self, now: Micros) -> None:
        while self._waiting and len(self.running) + self._metadata < self._context.settings.logs_in_flight:
            log = self._waiting.popleft()
            if is_metadata_log(log):
                self._look_at_metadata(log)
                continue
            each = self.running[log] = LogRebuilding(
                log,
                self._shard,
                self._purges,
                self._own_store,
                self._context,
                self.pace,
                self._try_limit,
                self._found_damage,
                self._on_finished,
            )
            each.start(now)

    def _on_finished(self, log: LogRebuilding, now: Micros) -> None:
        if self.running.get(log.log) is log:
            del self.running[log.log]
            if log.lacks_space:
                self.lacking_space.append(log.log)
            else:
                self._flags |= log.flags
                if log.is_cut_short:
                    self._cut_short.add(log.log)
            self._go_on(now)

    def _go_on(self, now: Micros) -> None:
        self._begin(now)
        if not self.running and not self._waiting and not self._metadata:
            self._look_for_logs(now)

    # --- metadata logs -----------------------------------------------------------------------------------------------------

    def _look_at_metadata(self, log: LogId) -> None:
        """The latest record tells everything that the ones before it do: have that one stored again where a lost shard held it."""
        round_, state = self.round, self._shard.logs[log]
        self._metadata += 1
        tries = 0

        def look(now: Micros) -> None:
            if self.round == round_ and not self._shard.failed:
                self._shard.reads.read_last_header(log, LSN_OLDEST, state.highest, read)

        def read(result: ReadResult, now: Micros) -> None:
            nonlocal tries
            if self.round != round_ or self._shard.failed:
                return
            if result.corrupt:
                hit("donor_meets_damaged_metadata")
                self._found_damage(state, result)
                tries += 1
                if not self._try_limit.is_over(tries):
                    self._context.timers.at(now + self._context.settings.retry_us_max, look)
                    return
                self._flags |= DonorFlags.UNPLACED
            open_shards = {entry.shard for entry in self._context.set.open_shards}
            for _, image in result.entries:
                copyset = members(image)
                kept = [member for member in copyset if member not in open_shards]
                if len(kept) < len(copyset) and kept and kept[0] == self._shard.shard:
                    hit("donor_has_metadata_stored_again")
                    self._context.ask_sequencer(
                        data_log_of(log), EPOCH_INVALID, SeqStateFlags.STORE_METADATA, asked, now
                    )
                    return
            done(now)

        def asked(status: Status, now: Micros) -> None:
            if self.round != round_:
                return
            if status is Status.OK or (status is Status.NOTFOUND and self._context.is_removed(data_log_of(log))):
                done(now)
            else:
                settings = self._context.settings
                again = now + settings.retry_us_max
                self._context.timers.at(again, lambda at: self._ask_again(log, round_, asked, at))

        def done(now: Micros) -> None:
            self._metadata -= 1
            self._go_on(now)

        if state.highest < LSN_OLDEST:
            self._metadata -= 1
            return
        self._shard.reads.read_last_header(log, LSN_OLDEST, state.highest, read)

    def _ask_again(self, log: LogId, round_: Lsn, asked: SequencerAnswered, now: Micros) -> None:
        if self.round == round_:
            self._context.ask_sequencer(data_log_of(log), EPOCH_INVALID, SeqStateFlags.STORE_METADATA, asked, now)
