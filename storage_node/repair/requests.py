"""The requests that a machine sends to several shards at once, and which of them are answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from logdevice_py.core.ids import PeerId, ShardId, node_peer
from logdevice_py.core.machine import Timer
from logdevice_py.core.units import Micros
from storage_node.shard import Shard


class ShardRequests:
    """One request to each of several shards, with one deadline. They are over when each is answered or lost, or at the deadline."""

    __slots__ = ("_ended", "_ids", "_shard", "_timer", "_waiting", "lost", "timed_out")

    def __init__(self, shard: Shard, ids: Iterator[int], ended: Callable[[Micros], None]) -> None:
        """
        Args:
            ended: called once for each `send`, in a later turn.
        """
        self.lost = False
        """Some request was not answered."""
        self.timed_out = False
        """Some was not answered by the deadline."""
        self._shard = shard
        self._ids = ids
        self._ended = ended
        self._waiting: dict[int, ShardId] = {}
        self._timer: Timer | None = None

    def send(self, messages: Mapping[ShardId, Callable[..., Any]], timeout: int, now: Micros) -> None:
        """Send each shard a message, made with `request_id`."""
        assert self._timer is None, "one round at a time"
        self.lost = self.timed_out = False
        for shard, make in messages.items():
            request = next(self._ids)
            self._waiting[request] = shard
            self._shard.out.send(node_peer(shard), make(request_id=request))
        self._timer = self._shard.timers.at(Micros(now + (timeout if messages else 0)), self._on_timeout)

    def take(self, request: int) -> ShardId | None:
        """The shard that answers a request; None: nobody waits for this answer."""
        return self._waiting.pop(request, None)

    def end_if_answered(self, now: Micros) -> None:
        """To be called when an answer was taken in."""
        if not self._waiting:
            self.end(now)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """Its answers are lost."""
        lost = [request for request, shard in self._waiting.items() if node_peer(shard) == peer]
        for request in lost:
            del self._waiting[request]
        if lost:
            self.lost = True
            self.end_if_answered(now)

    def end(self, now: Micros) -> None:
        """Wait for no more answers."""
        if self._timer is not None:
            self.cancel()
            self._ended(now)

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self, now: Micros) -> None:
        self.lost = self.timed_out = bool(self._waiting) or self.lost
        self.end(now)
