"""All that is known to be wrong with the copies of a shard, and when it is repaired.

Who reads (read streams, digests, comparisons, the scrubber) notes what it finds unreadable or missing; which logs have dirty ranges after a crash is
known when the shard is opened. A bounded number of logs is worked on at a time (`LogRepair`); what was noted last comes first. A log of which nothing
could be repaired waits longer each time, since most often something is not released yet, or a shard is away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Final

from logdevice_py.core.ids import LogId, format_shard
from logdevice_py.core.lsn import EPOCH_MIN, Lsn, compose_lsn
from logdevice_py.core.machine import Timer
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.membership.cluster_view import ClusterView
from storage_node.epochs.purge import StartHistoryReader
from storage_node.log_state import LogState
from storage_node.log_store.interface import ReadResult
from storage_node.lsn_ranges import add_range, format_range, format_ranges, overlaps, remove_range
from storage_node.repair.fetching import IsReReplicated, nothing_is_re_replicated
from storage_node.repair.log_damage import RETRY_FIRST, LogDamage
from storage_node.repair.log_repair import LogRepair
from storage_node.repair.notices import Notice
from storage_node.repair.throttle import Throttle
from storage_node.shard import Shard

_RANGES_MAX: Final = 10_000
"""Ranges of a log that are remembered; the scrubber finds others again."""
_LOGS_NAMED: Final = 5
"""In a line of the node's log."""


class RepairQueue:
    """The logs of one shard with something to repair."""

    def __init__(self, shard: Shard, cluster: ClusterView, start_reader: StartHistoryReader) -> None:
        self.re_replicated_by_now: Callable[[], IsReReplicated] = lambda: nothing_is_re_replicated
        """Gives what is known of that at this moment. A repair goes by what was known before it read the history: what was re-replicated since may lie on shards that have
        joined a nodeset since."""
        self.dirty_logs = 0
        """Logs with dirty ranges."""
        self._shard = shard
        self._cluster = cluster
        self._start_reader = start_reader
        self._throttle = Throttle(shard.settings.repair_bytes_per_s)
        self._damaged: dict[LogId, LogDamage] = {}
        self._due: list[tuple[Micros, LogId]] = []
        """When the next attempt of each waiting log is due, as a heap; entries are passed over whose log is due at another time by now."""
        self._running: dict[LogId, LogRepair] = {}
        self._timer: Timer | None = None
        self._noted = False
        """Something was noted since the last turn ended."""
        self._beginning = False
        self._began: Micros | None = None
        self._told_of_dirty = False
        """The operator was told that there are dirty ranges, and not yet that they are repaired."""
        self._dirty_restored = 0
        self._lossy_logs = 0
        for _, state in sorted(shard.logs.items()):
            if state.dirty is not None:
                self._recount(self._of(state))

    @property
    def damaged(self) -> dict[LogId, LogDamage]:
        """What is wrong, to look at."""
        return self._damaged

    @property
    def damaged_ranges(self) -> int:
        """How many ranges are known to be unreadable or missing."""
        return sum(len(each.unreadable) + len(each.missing) for each in self._damaged.values())

    def explain(self, state: LogState) -> str | None:
        """What the repair of a log does or waits for, for people; None: there is nothing to repair."""
        running, damage = self._running.get(state.log), self._damaged.get(state.log)
        if running is not None:
            return running.state.value
        if damage is None:
            return None
        return "queued" if damage.waits_for is None else f"waits for {damage.waits_for}"

    # --- what is noted -------------------------------------------------------------------------------------------------------

    def found_damage(self, state: LogState, result: ReadResult) -> None:
        """A read met something that cannot be read."""
        for first, last in result.damaged:
            self.note_unreadable(state, first, min(last, state.immutable_through))

    def found_in_files(self, state: LogState, first: Lsn, last: Lsn) -> None:
        """A file cannot be read in the range, and stays until what it held is restored. What is trimmed is not."""
        if first <= state.trim_point:
            self._shard.writes.group(True).batch.restore(state.log, first, min(last, state.trim_point))
        self.note_unreadable(state, first, min(last, state.immutable_through))

    def is_unreadable(self, log: LogId, lsn: Lsn) -> bool:
        """Whether something that is stored at the LSN is known to be unreadable."""
        damage = self._damaged.get(log)
        return damage is not None and overlaps(damage.unreadable, lsn, lsn)

    def store_begins(self, log: LogId) -> None:
        """A record of a metadata log is about to be stored, perhaps where something cannot be read."""
        running = self._running.get(log)
        if running is not None:
            running.overtaken = True

    def damage_replaced(self, log: LogId, lsn: Lsn) -> None:
        """What could not be read at the LSN was replaced."""
        damage = self._damaged.get(log)
        if damage is not None:
            remove_range(damage.unreadable, lsn, lsn)
            self._recount(damage)

    def note_unreadable(self, state: LogState, first: Lsn, last: Lsn) -> None:
        """Something in the range cannot be read."""
        first = max(first, Lsn(state.trim_point + 1), compose_lsn(EPOCH_MIN, 0))
        if first > last or self._shard.failed:
            return
        damage = self._of(state)
        if len(damage.unreadable) < _RANGES_MAX and add_range(damage.unreadable, first, last):
            self._shard.metrics.damage_found += 1
            text = (
                f"log {state.log}: what is stored from {format_range(first, last)} does not match its checksum or cannot be read; it is "
                "not served, readers get it from other shards, and it is fetched from them"
            )
            self._say("damage", text)
            self._is_noted(damage)

    def note_missing(self, state: LogState, lsns: Iterable[Lsn]) -> None:
        """Others hold copies that name this shard, which has none."""
        damage = self._of(state)
        count = 0
        for lsn in lsns:
            if state.trim_point < lsn <= state.immutable_through and len(damage.missing) < _RANGES_MAX:
                count += add_range(damage.missing, lsn, lsn)
        if count:
            self._shard.metrics.copies_missing += count
            text = f"log {state.log}: {count} copies are not here that other shards say should be; they are fetched"
            self._say("missing copies", text)
            self._is_noted(damage)
        self._recount(damage)

    def _of(self, state: LogState) -> LogDamage:
        damage = self._damaged.get(state.log)
        if damage is None:
            damage = self._damaged[state.log] = LogDamage(state)
        return damage

    def _is_noted(self, damage: LogDamage) -> None:
        damage.noted = self._noted = True
        if damage.state.log not in self._running:
            self._queue(damage, Micros(0))
        self._recount(damage)

    def _recount(self, damage: LogDamage) -> bool:
        """Count what is wrong with a log, and forget the log when that is nothing; whether it is."""
        metrics, (ranges, dirty) = self._shard.metrics, damage.counted
        damage.counted = len(damage.unreadable) + len(damage.missing), damage.state.dirty is not None
        metrics.damaged_ranges += damage.counted[0] - ranges
        metrics.dirty_logs += damage.counted[1] - dirty
        self.dirty_logs += damage.counted[1] - dirty
        if not damage.empty or damage.state.log in self._running:
            return False
        del self._damaged[damage.state.log]
        return True

    # --- events --------------------------------------------------------------------------------------------------------------

    def on_turn_end(self, now: Micros) -> None:
        """Begin with what was noted; in the first turn with what the crash before left."""
        if self._began is None:
            self._began = now
            dirty = [damage for damage in self._damaged.values() if damage.state.dirty is not None]
            for damage in dirty:
                self._queue(damage, now)
            if dirty:
                self._say("dirty ranges", self._opening_words([damage.state for damage in dirty]))
                self._noted = self._told_of_dirty = True
        if self._noted:
            self._noted = False
            self._begin(now)

    def on_peer_up(self, now: Micros) -> None:
        """What was waited for may be there: do not wait for the retry."""
        soon = Micros(now + RETRY_FIRST)
        for log, damage in self._damaged.items():
            if log not in self._running and damage.not_before > soon:
                self._queue(damage, soon)
        if self._due:
            self._begin(now)

    def stop_all(self) -> None:
        """The disk failed."""
        for repair in self._running.values():
            repair.stop()
        metrics = self._shard.metrics
        metrics.damaged_ranges -= sum(each.counted[0] for each in self._damaged.values())
        metrics.dirty_logs -= self.dirty_logs
        self.dirty_logs = 0
        self._running.clear()
        self._damaged.clear()
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- attempts ------------------------------------------------------------------------------------------------------------

    def _queue(self, damage: LogDamage, due: Micros) -> None:
        damage.not_before = due
        heappush(self._due, (due, damage.state.log))

    def _begin(self, now: Micros) -> None:
        """Take up the logs that are due, and wait for the others."""
        shard, due = self._shard, self._due
        if self._beginning or shard.failed:
            return
        self._beginning = True
        while due and len(self._running) < shard.settings.repair_logs_max and due[0][0] <= now:
            at, log = heappop(due)
            damage = self._damaged.get(log)
            if damage is None or damage.not_before != at or log in self._running:
                continue
            damage.forget_trimmed()
            if not self._recount(damage):
                self._start(damage, now)
        self._beginning = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due and len(self._running) < shard.settings.repair_logs_max:
            self._timer = shard.timers.at(due[0][0], self._begin)
        if self._told_of_dirty and not self.dirty_logs:
            self._told_of_dirty = False
            self._closing_words(now)

    def _start(self, damage: LogDamage, now: Micros) -> None:
        self._shard.metrics.repairs += 1
        damage.noted = False
        repair = self._running[damage.state.log] = LogRepair(
            self._shard,
            damage,
            self._cluster,
            self._start_reader,
            self._throttle,
            self.found_damage,
            self.re_replicated_by_now(),
            self._on_finished,
        )
        repair.start(now)

    def _on_finished(self, repair: LogRepair, now: Micros) -> None:
        damage, state = repair.damage, repair.log
        del self._running[state.log]
        for first, last in repair.looked_for:
            remove_range(damage.missing, first, last)  # what is still missing is found again when it is compared again
        self._dirty_restored += repair.dirty_restored
        if repair.lossy:
            self._lossy_logs += 1
            self._shard.metrics.crash_losses += 1
            text = (
                f"log {state.log}: entries from {format_ranges(repair.lossy)} may have lost all their copies, on several shards, when machines "
                "went down before they were on disk; every shard that could have one has answered, so what is not there is gone, and "
                "readers are told DATALOSS"
            )
            self._say("lost in a crash", text)
        if repair.progress:
            damage.made_progress()
        damage.waits_for = ", ".join(map(format_shard, sorted(repair.waits_for))) or repair.hindrance
        if not self._recount(damage):
            # nobody has looked yet for what was noted meanwhile
            self._queue(damage, now if damage.noted else Micros(now + damage.next_delay(self._shard)))
        self._begin(now)

    # --- words ---------------------------------------------------------------------------------------------------------------

    def _opening_words(self, dirty: list[LogState]) -> str:
        named = [f"log {state.log} from {format_ranges(state.dirty or ())}" for state in dirty[:_LOGS_NAMED]]
        more = len(dirty) - len(named)
        rest = f" and {more} others" if more else ""
        return (
            f"the machine went down before all was on disk that was acknowledged of asynchronous logs: {len(dirty)} logs may lack "
            f"records here ({'; '.join(named)}{rest}); they are fetched from other shards, and readers get them from these meanwhile"
        )

    def _closing_words(self, now: Micros) -> None:
        assert self._began is not None, "it is told in the first turn what is dirty"
        seconds = (now - self._began) / SECOND
        lost = f"; of {self._lossy_logs} logs some may be gone for good" if self._lossy_logs else ""
        text = (
            f"nothing is missing here any more because the machine went down: {self._dirty_restored} copies were re-replicated in "
            f"{seconds:.1f} s{lost}"
        )
        self._say("dirty ranges repaired", text)

    def _say(self, kind: str, text: str) -> None:
        self._shard.out.emit(Notice(self._shard.shard, kind, text))
