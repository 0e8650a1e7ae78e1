"""The scrubber: reads everything that a shard holds again, now and then, and compares it with what the other shards hold.

Reading finds what does not match its checksum. Comparing finds what is not there at all: for every other shard of the nodeset, the entries
whose copyset names both are counted and digested here and there (COMPARE), range by range; where that differs, the other shard says what it
has, and what is missing here is fetched. Each shard looks after its own copies.

Only what is released is compared: it never changes. Logs are gone through in the order of their ids, at a bounded rate.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from logdevice_py.core.ids import Generation, LogId, ShardId, node_of
from logdevice_py.core.lsn import EPOCH_MIN, ESN_MAX, Lsn, compose_lsn, epoch_of
from logdevice_py.core.machine import Timer
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval, interval_at
from logdevice_py.protocol.messages import Compare, Compared
from storage_node.epochs.digest import damaged_lsns
from storage_node.epochs.purge import StartHistoryReader
from storage_node.log_state import LogState
from storage_node.log_store.interface import ReadResult
from storage_node.log_store.wanted import members
from storage_node.lsn_ranges import overlaps
from storage_node.metrics import ScrubberMetrics
from storage_node.repair.copies import EntriesDigest
from storage_node.repair.log_history import HistoryReading
from storage_node.repair.repair_queue import RepairQueue
from storage_node.repair.requests import ShardRequests
from storage_node.shard import Shard

_TIMEOUT: Final = 2 * SECOND
"""How long the others' answers are waited for, at first. Each time in vain doubles it: one that has too much to compare does what it was asked before all
the same, and would never come to an answer that is in time. It is halved after a pass in which all answers came in a quarter of it."""
_TIMEOUT_MAX: Final = 64 * SECOND
_ENTRIES_MAX: Final = 4000
_EMPTY_COST: Final = 4096
"""What a log or a range without entries costs of the rate, in bytes."""


class ScrubState(enum.Enum):
    """What the scrubber is doing."""

    RESTING = "resting"  # until the next pass is due
    PACING = "pacing"  # until the rate allows to go on
    READING_HISTORY = "reading history"  # who else has copies of the log?
    READING = "reading"  # a range of the log is with the disk
    COMPARING = "comparing"  # others digest the range
    STOPPED = "stopped"  # terminal: the disk failed


class Scrubber:
    """Goes through one shard."""

    def __init__(
        self,
        shard: Shard,
        repairs: RepairQueue,
        start_reader: StartHistoryReader,
        wall: Callable[[], Timestamp] | None,
    ) -> None:
        self.state = ScrubState.RESTING
        self.passes = 0
        """How many are complete."""
        self.began = Timestamp(0)
        """When the pass at work began, by the node's wall clock."""
        self.verified_since = Timestamp(0)
        """When the last complete pass began: everything that was released before was verified since. 0: there was none."""
        self.verified_at: Micros | None = None
        """The same by the monotonic clock; when the shard was opened as long as no pass of this run is complete. None: it is not open yet."""
        self.log: LogId | None = None
        """The log at work; those of lower ids are done in this pass."""
        self.position = Lsn(0)
        """Where in the log it goes on."""
        self.uncompared = 0
        """Ranges of this pass for which some shard of the nodeset did not answer, or could not tell."""
        self.uncompared_before = 0
        """The same of the last complete pass."""
        self._shard = shard
        self._repairs = repairs
        self._wall = wall
        self.started = False
        """It goes through the shard now and then; False also as long as the settings give it no rate."""
        self._logs: Iterator[LogId] = iter(())
        self._history: tuple[EpochInterval, ...] = ()
        self._reading = HistoryReading(shard, start_reader, self._on_history)
        self._timer: Timer | None = None
        self._next_pass = Micros(0)
        self._began_at = Micros(0)
        self._requests = ShardRequests(shard, Compared, self._on_compared, self._compared)
        self._asked_at = Micros(0)
        self._timeout = _TIMEOUT
        self._slowest = 0
        """Of the answers of this pass."""
        self._held: dict[Lsn, None] = {}
        self._cost = 0
        self._range = (Lsn(0), Lsn(0))
        self._uncertain = False

    def start(self, now: Micros) -> None:
        """Begin to look after the shard; harmless when that was done."""
        if self.verified_at is None:
            self.verified_at = now
        if self.started or not self._shard.settings.scrub_bytes_per_s:
            return
        self.started = True
        # shards that are started together need not scrub together
        first = int(self._shard.settings.scrub_interval_us * self._shard.rng.random())
        self._rest(Micros(now + first))

    def hurry(self, now: Micros) -> None:
        """Begin the next pass at once, where none is at work."""
        if self.state is ScrubState.RESTING and self._timer is not None:
            self._timer.cancel()
            self._begin_pass(now)

    def stop(self) -> None:
        """The disk failed."""
        self.state = ScrubState.STOPPED
        if self._timer is not None:
            self._timer.cancel()
        self._reading.cancel()
        self._requests.cancel()

    def coverage(self, now: Micros) -> ScrubberMetrics:
        """How much of the shard is verified."""
        return ScrubberMetrics(
            verified=int(self.passes > 0),
            verification_age=0 if self.verified_at is None else now - self.verified_at,
            uncompared_ranges=self.uncompared_before,
        )

    # ---- passes and logs

    def _rest(self, until: Micros) -> None:
        self.state = ScrubState.RESTING
        self.log = None
        self._timer = self._shard.timers.at(until, self._begin_pass)

    def _begin_pass(self, now: Micros) -> None:
        if self._shard.status() is not Status.OK:
            return
        self._next_pass = Micros(now + self._shard.settings.scrub_interval_us)
        self._began_at = now
        self.began = Timestamp(0) if self._wall is None else self._wall()
        self.uncompared = 0
        self._logs = iter(sorted(self._shard.logs))
        self._next_log(now)

    def _next_log(self, now: Micros) -> None:
        for log in self._logs:
            state = self._shard.logs.get(log)
            if state is None or state.immutable_through <= state.trim_point:
                continue
            self.log, self.position = log, max(Lsn(state.trim_point + 1), compose_lsn(EPOCH_MIN, 0))
            self.state = ScrubState.READING_HISTORY
            self._reading.read(log, now)
            return
        self.passes += 1
        self.uncompared_before = self.uncompared
        if self._slowest < self._timeout // 4:
            self._timeout = max(_TIMEOUT, self._timeout // 2)
        self._slowest = 0
        self.verified_since = self.began
        self.verified_at = self._began_at
        self._shard.metrics.scrub_passes += 1
        hit("scrub_pass_done")
        self._rest(max(self._next_pass, Micros(now + SECOND)))

    def _on_history(self, history: tuple[EpochInterval, ...], complete: bool, now: Micros) -> None:
        # an interval that was found is true; where later ones may exist that were not, comparing with too few is noted
        self._history = history
        self._cost = _EMPTY_COST
        self._pace(now)

    def _pace(self, now: Micros) -> None:
        """Go on when the rate allows."""
        self.state = ScrubState.PACING
        rate = self._shard.settings.scrub_bytes_per_s
        if rate:
            self._timer = self._shard.timers.at(Micros(now + self._cost * SECOND // rate), self._go_on)
        else:
            # an operator set it to 0 while a pass was at work
            self._timer = self._shard.timers.at(Micros(now + SECOND), self._pace)

    # ---- one range

    def _go_on(self, now: Micros) -> None:
        shard = self._shard
        if shard.status() is not Status.OK:
            return
        assert self.log is not None, self.state
        state = shard.logs[self.log]
        first = max(self.position, Lsn(state.trim_point + 1))
        last = min(state.immutable_through, self._end_of_interval(first))
        if first > last:
            self._next_log(now)
            return
        self.state = ScrubState.READING

        def done(result: ReadResult, now: Micros) -> None:
            if self.state is ScrubState.READING and result.status is Status.OK:
                self._on_read(state, first, result, now)

        shard.reads.read(self.log, first, last, shard.settings.scrub_range_bytes, _ENTRIES_MAX, done)

    def _end_of_interval(self, first: Lsn) -> Lsn:
        following = [each.since for each in self._history if each.since > epoch_of(first)]
        return Lsn(compose_lsn(following[0], 0) - 1) if following else compose_lsn(2**31 - 1, ESN_MAX)

    def _on_read(self, state: LogState, first: Lsn, result: ReadResult, now: Micros) -> None:
        shard = self._shard
        size = sum([len(image) for _, image in result.entries])
        shard.metrics.scrub_bytes += size
        shard.metrics.scrub_ranges += 1
        self._cost = size + _EMPTY_COST
        self.position = Lsn(result.through + 1)
        if result.corrupt or result.bodiless:
            hit("scrub_found_damage")
            self._repairs.found_damage(state, result)
        interval = interval_at(self._history, epoch_of(first))
        if interval is None or result.through < first:
            self.uncompared += 1
            self._pace(now)
            return
        self._held = dict.fromkeys(lsn for lsn, _ in result.entries)
        self._held.update(dict.fromkeys(damaged_lsns(result, first) or ()))
        self._range = (first, result.through)
        self._compare(state, interval, result, now)

    def _compare(self, state: LogState, interval: EpochInterval, result: ReadResult, now: Micros) -> None:
        shard = self._shard
        mine = interval.generation(shard.shard)
        if mine is None or (mine and mine != shard.generation):
            # epochs of an earlier generation: nothing is expected here
            self._pace(now)
            return
        # a node that is not in the cluster file cannot be reached
        nodes = shard.config.nodes
        digests = {peer: EntriesDigest() for peer in interval.shards if peer != shard.shard and node_of(peer) in nodes}
        self._uncertain = len(digests) < len(interval.nodeset) - 1
        for lsn, image in result.entries:
            for member in members(image):
                digest = digests.get(ShardId(member))
                if digest is not None:
                    digest.add(lsn, image)
        self.state = ScrubState.COMPARING
        self._asked_at = now
        messages = {
            peer: partial(
                Compare,
                shard=peer,
                generation=interval.generation(peer) or Generation(0),
                holder=shard.shard,
                log=state.log,
                first=self._range[0],
                last=self._range[1],
                count=digest.count,
                digest=digest.value,
            )
            for peer, digest in digests.items()
        }
        self._requests.send(messages, self._timeout, now)

    def _on_compared(self, message: Compared, now: Micros) -> None:
        """What another shard holds of the range."""
        self._uncertain |= message.status != Status.OK
        if message.status == Status.OK and not message.equal:
            self._shard.metrics.scrub_mismatches += 1
        # whatever its status: what it lists it holds
        self._note_missing(message)

    def _note_missing(self, message: Compared) -> None:
        assert self.log is not None, self.state
        first, last = self._range
        held, state = self._held, self._shard.logs[self.log]
        damage = self._repairs.damaged.get(self.log)
        unreadable = [] if damage is None else damage.unreadable
        missing = [
            Lsn(lsn)
            for lsn in message.lsns
            if first <= lsn <= last and lsn not in held and not overlaps(unreadable, lsn, lsn)
        ]
        if missing:
            hit("scrub_found_missing_copies")
            self._repairs.note_missing(state, missing)

    def _compared(self, now: Micros) -> None:
        """Everybody answered, or had the time to."""
        if self._requests.timed_out:
            self._slowest = self._timeout
            self._timeout = min(_TIMEOUT_MAX, 2 * self._timeout)
        elif not self._requests.lost:
            self._slowest = max(self._slowest, now - self._asked_at)
        if self._uncertain or self._requests.lost:
            self.uncompared += 1
        self._held = {}
        self._pace(now)
