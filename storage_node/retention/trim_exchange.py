"""Shards tell each other their trim points, so that these agree after a while.

A TRIM may not reach every shard, and retention moves trim points of each shard by itself. A trim point that one shard has holds for the log,
whatever becomes of that shard: it was asked for by somebody who may, or what lies below it is older than the log keeps it. The others
take it over, as soon as they know themselves that the log is released so far.

What moved is told to every other shard with the next round, in which also some logs of all, in turn, are told to one shard picked at random:
so a shard that was down learns what it missed. Each message tells the sender's clock as well, for retention by time. Only shards that know a log take its trim point; those that have a greater one answer.
"""

from __future__ import annotations

from logdevice_py.core.ids import LogId, PeerId, ShardId, is_metadata_log, node_of, node_peer
from logdevice_py.core.lsn import ESN_MAX, LSN_INVALID, LSN_MAX, Epoch, Lsn, compose_lsn, epoch_of, esn_of
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import LOGS_PER_FRAME, TrimPoints
from logdevice_py.protocol.routing import handles
from storage_node.log_state import LogState
from storage_node.retention.retention import AgreedClock
from storage_node.retention.trim import TrimHandler
from storage_node.shard import Shard


class TrimExchange:
    """Tells and takes the trim points of one shard."""

    __slots__ = ("_clock", "_shard", "_told_to", "_trim")

    def __init__(self, shard: Shard, trim: TrimHandler, clock: AgreedClock) -> None:
        self._shard = shard
        self._clock = clock
        self._trim = trim
        self._told_to = LogId(0)
        """The last log of the round before."""

    def start(self, now: Micros) -> None:
        """Begin to tell; once."""
        self._arm(now)

    def _arm(self, now: Micros) -> None:
        interval = self._shard.settings.trim_exchange_interval_us
        # not all at the same instant
        self._shard.timers.at(Micros(now + interval // 2 + self._shard.rng.randrange(interval)), self._tell)

    def _tell(self, now: Micros) -> None:
        shard = self._shard
        if shard.status() is not Status.OK:
            return
        self._arm(now)
        others = [each for each in shard.config.storage_shards() if each != shard.shard]
        moved = self._trim.take_moved()
        if not others:
            return
        for other in others if moved else ():
            self._send(other, moved)
        some = self._some()
        self._send(others[shard.rng.randrange(len(others))], some)

    def _some(self) -> list[LogState]:
        """The next logs in turn that have a trim point."""
        logs = self._shard.logs
        trimmed = sorted(log for log, state in logs.items() if state.trim_point and not is_metadata_log(log))
        following = [log for log in trimmed if log > self._told_to][:LOGS_PER_FRAME]
        self._told_to = following[-1] if len(following) == LOGS_PER_FRAME else LogId(0)
        return [logs[log] for log in following]

    def _send(self, other: ShardId, states: list[LogState]) -> None:
        shard = self._shard
        for begin in range(0, max(len(states), 1), LOGS_PER_FRAME):
            told = [(int(state.log), int(state.trim_point)) for state in states[begin : begin + LOGS_PER_FRAME]]
            shard.out.send(
                node_peer(other), TrimPoints(shard=other, sender=shard.shard, wall=self._clock.wall(), logs=told)
            )

    @handles(TrimPoints)
    def on_trim_points(self, peer: PeerId, message: TrimPoints, now: Micros) -> None:
        """What another shard told."""
        shard = self._shard
        if shard.status() is not Status.OK or message.sender not in shard.config.storage_shards():
            return
        self._clock.hear(node_of(message.sender), message.wall, now)
        moved, ahead = [], []
        for log, lsn in message.logs:
            state = shard.find(LogId(log))
            if state is None or is_metadata_log(LogId(log)) or not LSN_INVALID < lsn < LSN_MAX:
                continue
            if lsn > state.trim_point:
                if lsn > self._believable(state):
                    # Whoever says so is told again, and tells again: by then it may be known here how far the log is released.
                    hit("trim_point_not_believed")
                    continue
                state.trim_point = Lsn(lsn)
                moved.append(state)
                if not shard.may_exist(state.log) and esn_of(state.trim_point) == ESN_MAX:
                    self._trim.end_epochs(state, epoch_of(state.trim_point))
            elif state.trim_point > lsn:
                ahead.append(state)
        if moved:
            hit("trim_point_taken_over")
            shard.metrics.trims_from_others += len(moved)
            self._trim.write(moved)
        if ahead:
            self._send(message.sender, ahead)

    def _believable(self, state: LogState) -> Lsn:
        """The greatest trim point of a log that another shard may tell. Of a log that was removed, which nobody releases any more, the end of the last
        epoch that was seen here."""
        released = state.known_released
        if self._shard.may_exist(state.log):
            return released
        seen = max(epoch_of(max(released, state.highest)), state.sealed, Epoch(state.soft_epoch + 1))
        return compose_lsn(seen, ESN_MAX)
