"""All recoveries of logs at one node: the part of the sequencer node's root that deals with recovery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from epoch_store.interface import Result
from logdevice_py.core.ids import LogId, NodeId, PeerId, node_peer
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.machine import Outbox, Rng, Timer, TimerQueue
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.protocol.messages import Mutated
from logdevice_py.protocol.requests import Requests
from logdevice_py.protocol.routing import handles
from sequencer.recovery.coalescing import RequestCoalescer
from sequencer.recovery.context import RecoveryCluster, RecoveryContext
from sequencer.recovery.log_recovery import LogRecovery, LogRecoveryState, nobody_waits
from sequencer.recovery.metrics import RecoveryMetrics
from sequencer.recovery.result import EpochContents, RecoveryOutcome, RecoveryResult
from sequencer.recovery.settings import RecoverySettings

OnDone = Callable[[RecoveryResult, Micros], None]
_EARLIER_MAX: Final = 1000
"""Epochs of which a recovery is told what others found: activations may go on without end before one of them is released."""


class NodeRecoveries:
    """Starts, limits and routes to the `LogRecovery` machines of one node."""

    def __init__(
        self,
        node: NodeId,
        *,
        outbox: Outbox,
        timers: TimerQueue,
        rng: Rng,
        settings: RecoverySettings,
        metrics: RecoveryMetrics,
        cluster: RecoveryCluster,
        wall: Callable[[], Timestamp],
        next_token: Callable[[], int],
        requests: Requests,
    ) -> None:
        self._requests = RequestCoalescer(node, outbox, requests)
        self._context = RecoveryContext(
            node, outbox, timers, rng, settings, metrics, cluster, self._requests, wall, next_token
        )
        self._running: dict[LogId, LogRecovery] = {}
        self._queue: dict[LogId, LogRecovery] = {}
        self._resting: dict[LogId, LogRecovery] = {}
        """They had a turn and heard from too few shards; they get the next one after those in `_queue`."""
        self._turns: Timer | None = None
        self._following: dict[LogId, LogRecovery] = {}
        """What begins when the recovery of the same log in `_running` or `_resting` is done."""
        self._found: dict[LogId, tuple[EpochContents, ...]] = {}
        """Of logs that are in a later epoch than the one that was last recovered for: what the next recovery need not look at again."""

    def start(
        self,
        log: LogId,
        next_epoch: Epoch,
        metadata: EpochMetaData,
        on_done: OnDone,
        now: Micros,
        *,
        on_sealed: Callable[[Epoch, Micros], None] = nobody_waits,
    ) -> None:
        """Recover a log for its activation in `next_epoch`, after an older recovery of the log. `on_done` is called at a later event. `on_sealed`: as with
        `LogRecovery`."""
        self.supersede(log, now)

        def done(result: RecoveryResult, now: Micros) -> None:
            self._on_done(recovery, result, now)
            on_done(result, now)

        recovery = LogRecovery(log, next_epoch, metadata, self._context, on_done=done, on_sealed=on_sealed)
        recovery.earlier = self._found.pop(log, ())
        if log in self._running or log in self._resting:
            self._following[log] = recovery
        else:
            self._queue[log] = recovery
            self.run_waiting(now)

    def supersede(self, log: LogId, now: Micros) -> None:
        """This node's sequencer of the log is in a later epoch: one that has begun to recover goes on, any other is aborted.

        The epochs that it recovers are below the later epoch too. If each activation made recovery begin again, a log whose epochs are shorter
        than the recovery of one would never be recovered.
        """
        self._following.pop(log, None)
        recovery = self.find(log)
        if recovery is None:
            return
        if recovery.state is LogRecoveryState.RECOVERING:
            hit("recovery_goes_on_in_later_epoch")
            self._found[log] = ()
        else:
            self.abort(log, now)
            self._found[log] = recovery.found

    def abort(self, log: LogId, now: Micros) -> None:
        """Stop the log's recovery, if there is one, without a result."""
        self._following.pop(log, None)
        self._found.pop(log, None)
        if self._queue.pop(log, None) is None:
            running = self._running.pop(log, None) or self._resting.pop(log, None)
            if running is not None:
                running.abort()
        self.run_waiting(now)

    def use_settings(self, settings: RecoverySettings, now: Micros) -> None:
        """Go on with other settings; what was begun keeps its times."""
        self._context.settings = settings
        self.run_waiting(now)

    def recovery(self, log: LogId) -> LogRecovery | None:
        """The recovery of a log that is in progress, to look at."""
        return self._running.get(log)

    def find(self, log: LogId) -> LogRecovery | None:
        """The recovery of a log that is in progress or queued, to look at."""
        return self._running.get(log) or self._queue.get(log) or self._resting.get(log)

    def running(self) -> list[LogId]:
        """The logs whose recovery is in progress."""
        return list(self._running)

    def logs(self) -> list[LogId]:
        """The logs whose recovery is in progress, then those that wait, in order."""
        return [*self._running, *self._queue, *self._resting]

    def run_waiting(self, now: Micros) -> None:
        """Begin or resume as many of those that wait as may run at once."""
        metrics = self._context.metrics
        settings = self._context.settings
        while (waiting := self._queue or self._resting) and len(self._running) < settings.concurrent_log_recoveries:
            if self._running and metrics.digest_bytes >= settings.digest_memory_bytes_max:
                hit("recovery_waits_for_memory")
                break
            log, recovery = next(iter(waiting.items()))
            del waiting[log]
            self._running[log] = recovery
            if recovery.is_resting:
                recovery.resume(now)
            else:
                metrics.log_recoveries_started += 1
                recovery.start(now)
        metrics.log_recoveries_running = len(self._running)
        metrics.log_recoveries_queued = len(self._queue) + len(self._resting)
        if waiting and self._turns is None:
            self._turns = self._context.timers.at(now + settings.turn_us // 2, self._take_turns)

    def _take_turns(self, now: Micros) -> None:
        """Recoveries that can only wait let others go first, the one that has waited longest before the rest."""
        self._turns = None
        turn = self._context.settings.turn_us
        waits = [(since, log) for log, recovery in self._running.items() if (since := recovery.waits_since) is not None]
        over = sorted((since, log) for since, log in waits if now - since >= turn)
        for _, log in over[: len(self._queue) + len(self._resting)]:
            self.rest(log)
        self.run_waiting(now)

    def rest(self, log: LogId) -> None:
        """Have the running recovery of a log wait behind the others."""
        recovery = self._running.pop(log)
        recovery.rest()
        self._resting[log] = recovery

    def _on_done(self, recovery: LogRecovery, result: RecoveryResult, now: Micros) -> None:
        popped = self._running.pop(recovery.log)
        assert popped is recovery
        metrics = self._context.metrics
        if result.outcome is RecoveryOutcome.OK:
            metrics.log_recoveries_completed += 1
        else:
            metrics.log_recoveries_preempted += 1
        following = self._following.pop(recovery.log, None)
        if following is not None:
            following.earlier = recovery.found[-_EARLIER_MAX:]
            self._queue[recovery.log] = following
        elif recovery.log in self._found:
            self._found[recovery.log] = recovery.found[-_EARLIER_MAX:]
        self.run_waiting(now)

    @handles(Mutated)
    def on_mutated(self, peer: PeerId, message: Mutated, now: Micros) -> None:
        """MUTATED, from the node of the shard that it names; from others it is ignored."""
        if node_peer(message.shard) != peer:
            hit("recovery_answer_of_other_peer")
            return
        recovery = self._running.get(message.log)
        if recovery is not None:
            recovery.on_mutated(message, now)

    def on_epoch_store(self, token: int, result: Result, now: Micros) -> bool:
        """The outcome of an `EpochStoreRequest`. False: the token is not one that recovery waits for."""
        handler = self._context.epoch_store_handlers.pop(token, None)
        if handler is None:
            return False
        handler(result, now)
        return True

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """The connection to a node was lost, and with it perhaps requests and answers."""
        self._requests.on_peer_down(peer)
        for recovery in list(self._running.values()):
            recovery.on_peer_down(peer, now)

    def on_peer_up(self, peer: PeerId, now: Micros) -> None:
        """A node can be reached again."""
        for recovery in list(self._running.values()):
            recovery.on_peer_up(peer, now)

    def on_cluster_state(self, now: Micros) -> None:
        """Nodes died or came back, as `RecoveryCluster.is_alive` tells."""
        for recovery in list(self._running.values()):
            recovery.on_cluster_changed(now)

    on_shard_status = on_cluster_state
    """The cluster file or the authority of shards changed, as `RecoveryCluster` tells."""

    def on_turn_end(self, now: Micros) -> None:
        """Send what the turn asked for."""
        self._requests.on_turn_end()
