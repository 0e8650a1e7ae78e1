"""What the recoveries of one node share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from logdevice_py.config.location import Location
from logdevice_py.core.ids import Generation, LogId, NodeId, ShardId
from logdevice_py.core.machine import Outbox, Rng, TimerQueue
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.placement.failure_domains import Authority
from sequencer.effects import EpochStoreRequest
from sequencer.recovery.coalescing import RequestCoalescer
from sequencer.recovery.metrics import RecoveryMetrics
from sequencer.recovery.settings import RecoverySettings


class RecoveryCluster(Protocol):
    """What recovery asks about shards. A wrong `is_alive` costs time, never data."""

    def location(self, shard: ShardId) -> Location | None:
        """Of a shard; None when it is not in the cluster file."""

    def in_cluster(self, shard: ShardId) -> bool:
        """The shard is in the cluster file and may be read."""

    def has_left(self, shard: ShardId, since: int) -> bool:
        """The shard, which was in version `since` of the cluster file, is in it no more. False while this node has an older version."""

    def is_writable(self, shard: ShardId) -> bool:
        """The shard takes new entries: it is read-write in the cluster file."""

    def authority(self, log: LogId, shard: ShardId, generation: Generation) -> Authority:
        """What the cluster knows of what this generation of the shard held of the log; FULLY_AUTHORITATIVE when nothing else is known."""

    def is_alive(self, node: NodeId) -> bool:
        """The node is not known to be dead."""


@dataclass(slots=True)
class RecoveryContext:
    """The surroundings of every recovery of one node."""

    node: NodeId
    outbox: Outbox
    timers: TimerQueue
    rng: Rng
    settings: RecoverySettings
    metrics: RecoveryMetrics
    cluster: RecoveryCluster
    requests: RequestCoalescer
    wall: Callable[[], Timestamp]
    """Of the node."""
    next_token: Callable[[], int]
    """Tokens of `EpochStoreRequest`s, unique within the node."""
    epoch_store_handlers: dict[int, Callable[[Any, Micros], None]] = field(default_factory=dict)
    """Who awaits which outcome of the epoch store."""

    def ask_epoch_store(self, operation: Any, handler: Callable[[Any, Micros], None]) -> int:
        """Put out an operation; `handler` gets its result unless `forget_epoch_store` is called with the token before."""
        token = self.next_token()
        self.epoch_store_handlers[token] = handler
        self.outbox.emit(EpochStoreRequest(token, operation))
        return token

    def forget_epoch_store(self, token: int) -> None:
        """The outcome does not matter any more."""
        self.epoch_store_handlers.pop(token, None)
