"""Copies that a shard has lost, or cannot read any more, are stored again from the other shards.

Who reads (read streams, digests, comparisons, the scrubber) notes what it finds; one log is worked on at a time (`LogRepair`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from logdevice_py.core.ids import LogId, PeerId
from logdevice_py.core.lsn import EPOCH_MIN, Lsn, compose_lsn
from logdevice_py.core.machine import Timer
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.protocol.messages import Digested, Fetched
from storage_node.epochs.purge import StartHistoryReader
from storage_node.log_state import LogState
from storage_node.log_store.interface import ReadResult
from storage_node.lsn_ranges import add_range, format_range, overlaps, remove_range
from storage_node.repair.copies import settled_until
from storage_node.repair.fetching import IsMadeGood, nothing_is_made_good
from storage_node.repair.log_damage import RETRY_FIRST, LogDamage
from storage_node.repair.log_repair import LogRepair
from storage_node.repair.notices import Notice
from storage_node.shard import Shard

_RETRY_MAX: Final = 30 * SECOND
_RANGES_MAX: Final = 10_000
"""Ranges of a log that are remembered; the scrubber finds others again."""


class RepairQueue:
    """All that is known to be wrong with the logs of one shard, and its repair."""

    def __init__(self, shard: Shard, start_reader: StartHistoryReader, request_ids: Iterator[int]) -> None:
        self._shard = shard
        self.is_made_good: IsMadeGood = nothing_is_made_good
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
        for first, last in result.damaged:
            self.note_unreadable(state, first, min(last, settled_until(state)))

    def found_in_files(self, state: LogState, first: Lsn, last: Lsn) -> None:
        """A file cannot be read in the range, and stays until what it held is stored again. What is trimmed is not."""
        if first <= state.trim_point:
            self._shard.writes.group(True).batch.restore(state.log, first, min(last, state.trim_point))
        self.note_unreadable(state, first, min(last, settled_until(state)))

    def is_unreadable(self, log: LogId, lsn: Lsn) -> bool:
        """Whether something that is stored at the LSN is known to be unreadable."""
        damage = self._damaged.get(log)
        return damage is not None and overlaps(damage.unreadable, lsn, lsn)

    def store_begins(self, log: LogId) -> None:
        """A record of a metadata log is about to be stored, perhaps where something cannot be read."""
        if self._running is not None and self._running.damage.state.log == log:
            self._running.overtaken = True

    def stored_again(self, log: LogId, lsn: Lsn) -> None:
        """What could not be read at the LSN was replaced."""
        damage = self._damaged.get(log)
        if damage is not None:
            remove_range(damage.unreadable, lsn, lsn)
            self._changed()

    def note_unreadable(self, state: LogState, first: Lsn, last: Lsn) -> None:
        """Something in the range cannot be read."""
        first = max(first, Lsn(state.trim_point + 1), compose_lsn(EPOCH_MIN, 0))
        if first > last or self._shard.failed:
            return
        damage = self._of(state)
        if len(damage.unreadable) < _RANGES_MAX and add_range(damage.unreadable, first, last):
            damage.not_before = Micros(0)
            self._shard.metrics.damage_found += 1
            text = (
                f"log {state.log}: what is stored from {format_range(first, last)} does not match its checksum or cannot be read; it is "
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
        self._running = LogRepair(
            self._shard, damage, self._start_reader, self._request_ids, self.is_made_good, self._on_finished
        )
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
        for first, last in repair.looked_for:
            remove_range(damage.missing, first, last)  # what is still missing is found again when it is compared again
        if progress:
            damage.delay = RETRY_FIRST
        # nobody has looked yet for what was noted meanwhile
        damage.not_before = now if damage.missing else Micros(now + damage.delay)
        damage.delay = min(2 * damage.delay, _RETRY_MAX)
        self._begin(now)
