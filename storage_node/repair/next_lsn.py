"""Which LSNs of an epoch has its sequencer given so far? Asked after a crash: no entry that was lost in it lies above."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logdevice_py.core.ids import LogId, NodeId, PeerId
from logdevice_py.core.lsn import EPOCH_INVALID, Epoch, Lsn
from logdevice_py.core.machine import Timer
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.membership.cluster_view import ClusterView
from logdevice_py.protocol.messages import GetSeqState, SeqState, SeqStateFlags
from storage_node.log_state import NO_NODE
from storage_node.shard import Shard

_ANSWER_TIMEOUT: Final = 2 * SECOND
_HOPS_MAX: Final = 4

NextLsnAnswered = Callable[[Lsn | None, Micros], None]


class NextLsnQuestion:
    """One question to the sequencer of a log, wherever it is. A log without one gets one, and its epoch is recovered."""

    def __init__(
        self,
        shard: Shard,
        cluster: ClusterView,
        log: LogId,
        done: NextLsnAnswered,
    ) -> None:
        """
        Args:
            done: called once for `ask`, in a later turn, with the LSN that comes next in the epoch, or None when nobody can tell, as when the epoch is over.
        """
        self._shard = shard
        self._cluster = cluster
        self._log = log
        self._epoch = EPOCH_INVALID
        self._done = done
        self._request = 0
        self._node = NO_NODE
        self._hops = 0
        self._timer: Timer | None = None

    def ask(self, epoch: Epoch, likely: NodeId, now: Micros) -> None:
        """Ask the node that is likely to know, if it lives, else some other one: it knows who does.

        Args:
            epoch: which; the sequencer is to be in it, or in a later one.
            likely: -1 when nothing is known.
        """
        shard, cluster = self._shard, self._cluster
        self._epoch = epoch
        node = likely
        if likely not in shard.config.nodes or not cluster.is_alive(likely):
            candidates = [each for each in sorted(shard.config.nodes) if cluster.may_sequence(each)]
            if not candidates:
                self._timer = shard.timers.at(now, lambda now: self._end(None, now))
                return
            node = candidates[int(shard.rng.random() * len(candidates))]
        self._timer = shard.timers.at(Micros(now + _ANSWER_TIMEOUT), lambda now: self._end(None, now))
        self._send(node)

    def _send(self, node: NodeId) -> None:
        self._node = node
        self._request = self._shard.requests.ask(
            PeerId(node), SeqState, self._on_seq_state, failed=lambda status, now: self._end(None, now)
        )
        message = GetSeqState(
            request_id=self._request, log=self._log, flags=int(SeqStateFlags.NONE), min_epoch=self._epoch
        )
        self._shard.out.send(PeerId(node), message)

    def _on_seq_state(self, message: SeqState, now: Micros) -> None:
        if message.status == Status.OK:
            self._end(message.next_lsn if message.epoch == self._epoch else None, now)
        elif message.redirect >= 0 and message.redirect != self._node and self._hops < _HOPS_MAX:
            hit("next_lsn_redirected")
            self._hops += 1
            self._send(message.redirect)
        else:
            self._end(None, now)

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self._shard.requests.forget(self._request)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, next_lsn: Lsn | None, now: Micros) -> None:
        self.cancel()
        self._done(next_lsn, now)
