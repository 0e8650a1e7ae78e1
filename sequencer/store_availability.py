"""Which shards a new copyset may contain. One object a node, shared by all its logs."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core import marks
from logdevice_py.core.ids import NodeId, ShardId, node_of, node_peer, shard_id
from logdevice_py.core.machine import Outbox, Timer, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.membership.cluster_view import ClusterView
from logdevice_py.protocol.messages import CheckSeal, SealChecked
from logdevice_py.protocol.requests import Requests
from sequencer.metrics import SequencerMetrics
from sequencer.settings import SequencerSettings


class Reason(enum.Enum):
    """Why a shard is not picked."""

    OVERLOADED = enum.auto()  # it said so
    NO_SPACE = enum.auto()  # its disk is full
    DISABLED = enum.auto()  # it takes no writes, or its disk failed
    UNROUTABLE = enum.auto()  # the connection to its node broke
    SLOW = enum.auto()  # graylisted: a STORE timed out while others answered
    PROBING = enum.auto()  # the graylist expired; a probe is out


STATUS_OF: Final = {
    Reason.OVERLOADED: Status.OVERLOADED,
    Reason.NO_SPACE: Status.NOSPC,
    Reason.DISABLED: Status.DISABLED,
    Reason.UNROUTABLE: Status.UNROUTABLE,
    Reason.SLOW: Status.OVERLOADED,
    Reason.PROBING: Status.OVERLOADED,
}
REASON_OF: Final = {
    Status.OVERLOADED: Reason.OVERLOADED,
    Status.NOSPC: Reason.NO_SPACE,
    Status.DISABLED: Reason.DISABLED,
    Status.FAILED: Reason.DISABLED,
    Status.NOTSTORAGE: Reason.DISABLED,
    Status.SHUTDOWN: Reason.UNROUTABLE,
}
"""What an answer to STORE says of the shard; other statuses say nothing."""


class StoreAvailability:
    """The shards that new waves avoid, and for how long.

    `version` grows whenever an answer of `is_available` may have changed, so that owners of a sticky copyset compare one number.
    """

    __slots__ = (
        "_blocked",
        "_cluster",
        "_metrics",
        "_outbox",
        "_requests",
        "_settings",
        "_timers",
        "_usable",
        "_writable",
        "version",
    )

    def __init__(
        self,
        config: ClusterConfig,
        settings: SequencerSettings,
        outbox: Outbox,
        timers: TimerQueue,
        cluster: ClusterView,
        metrics: SequencerMetrics,
        requests: Requests,
    ) -> None:
        self.version = 0
        self._settings = settings
        self._outbox = outbox
        self._timers = timers
        self._cluster = cluster
        self._metrics = metrics
        self._requests = requests
        self._writable = frozenset(config.writable_shards())
        self._blocked: dict[ShardId, tuple[Reason, Timer]] = {}
        self._usable: dict[ShardId, bool] = {}

    def use_settings(self, settings: SequencerSettings) -> None:
        """Go on with other settings; what was begun keeps its times."""
        self._settings = settings

    def is_available(self, shard: ShardId) -> bool:
        """Read-write in the configuration, its node alive, and nothing known against it."""
        usable = self._usable.get(shard)
        if usable is None:
            usable = shard in self._writable and shard not in self._blocked and self._cluster.is_alive(node_of(shard))
            self._usable[shard] = usable
        return usable

    def reason(self, shard: ShardId) -> Reason | None:
        """What is known against a shard; None for nothing."""
        blocked = self._blocked.get(shard)
        return blocked[0] if blocked is not None else None

    def blocked(self) -> list[tuple[ShardId, Reason]]:
        """Every shard that something is known against, ascending."""
        return sorted((shard, reason) for shard, (reason, _) in self._blocked.items())

    def note_status(self, shard: ShardId, status: Status, now: Micros) -> None:
        """A shard refused a STORE."""
        reason = REASON_OF.get(status)
        if reason is not None:
            self.block(shard, reason, now)

    def block(self, shard: ShardId, reason: Reason, now: Micros) -> None:
        """Do not pick the shard until the time for `reason` has passed."""
        before = self._blocked.get(shard)
        if before is not None:
            if reason is Reason.SLOW and before[0] is not Reason.PROBING:
                return
            before[1].cancel()
        if reason is Reason.SLOW:
            self._metrics.shards_graylisted += 1
            marks.hit("shard_graylisted")
        timer = self._timers.at(now + self._duration(reason), partial(self._on_expired, shard))
        self._blocked[shard] = (reason, timer)
        self._changed()

    def forgive_slow(self, shards: Iterable[ShardId]) -> bool:
        """Take these shards off the graylist, for when no copyset can be made without them. False when none was on it."""
        forgiven = False
        for shard in shards:
            blocked = self._blocked.get(shard)
            if blocked is not None and blocked[0] in (Reason.SLOW, Reason.PROBING):
                self._unblock(shard)
                forgiven = True
        if forgiven:
            marks.hit("graylist_cleared")
        return forgiven

    def refusal(self, shards: Iterable[ShardId]) -> Status:
        """The status for an append when too few of these shards are available: the most common reason."""
        counts: Counter[Status] = Counter()
        for shard in shards:
            if not self.is_available(shard):
                reason = self.reason(shard)
                if reason is not None:
                    counts[STATUS_OF[reason]] += 1
                elif shard not in self._writable:
                    counts[Status.DISABLED] += 1
                else:
                    counts[Status.UNROUTABLE] += 1
        return max(sorted(counts), key=counts.__getitem__) if counts else Status.UNROUTABLE

    def _on_probe_answer(self, probing: tuple[Reason, Timer], answer: SealChecked, now: Micros) -> None:
        if self._blocked.get(answer.shard) is probing:
            self._unblock(answer.shard)

    def on_peer_down(self, node: NodeId, shards: int, now: Micros) -> None:
        """The connection to a node of that many shards broke."""
        for index in range(shards):
            shard = shard_id(node, index)
            if self.reason(shard) in (None, Reason.SLOW, Reason.PROBING, Reason.UNROUTABLE):
                self.block(shard, Reason.UNROUTABLE, now)

    def on_peer_up(self, node: NodeId) -> None:
        """The connection to a node stands again. A shard whose disk had failed works again once its process has been started anew."""
        for shard in sorted(self._blocked):
            if node_of(shard) == node and self._blocked[shard][0] in (Reason.UNROUTABLE, Reason.DISABLED):
                self._unblock(shard)

    def on_cluster_state(self) -> None:
        """Nodes came or went."""
        self._changed()

    def on_config(self, config: ClusterConfig) -> None:
        """Shards became read-only or read-write, came or went."""
        self._writable = frozenset(config.writable_shards())
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._usable.clear()

    def _unblock(self, shard: ShardId) -> None:
        self._blocked.pop(shard)[1].cancel()
        self._changed()

    def _on_expired(self, shard: ShardId, now: Micros) -> None:
        reason = self._blocked[shard][0]
        if reason not in (Reason.SLOW, Reason.PROBING):
            del self._blocked[shard]
            self._changed()
            return
        due = now + self._settings.probe_retry_us
        probing = self._blocked[shard] = (Reason.PROBING, self._timers.at(due, partial(self._on_expired, shard)))
        answered = partial(self._on_probe_answer, probing)
        request_id = self._requests.ask_shard(shard, SealChecked, answered, deadline=due)
        self._outbox.send(node_peer(shard), CheckSeal(request_id=request_id, shard=shard, logs=[]))

    def _duration(self, reason: Reason) -> int:
        settings = self._settings
        if reason is Reason.OVERLOADED:
            return settings.overloaded_us
        if reason is Reason.NO_SPACE:
            return settings.no_space_us
        if reason is Reason.DISABLED:
            return settings.store_disabled_us
        if reason is Reason.UNROUTABLE:
            return settings.unroutable_us
        return settings.graylist_us
