"""One question of a machine to several shards at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from logdevice_py.core.ids import ShardId, node_peer
from logdevice_py.core.machine import Timer
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from storage_node.shard import Shard


class ShardRequests:
    """One request to each of several shards, with one deadline. They are over when each is answered or lost, or at the deadline."""

    __slots__ = ("_answered", "_ended", "_kind", "_shard", "_timer", "_waiting", "lost", "timed_out")

    def __init__(
        self,
        shard: Shard,
        kind: type[Any],
        answered: Callable[[Any, Micros], None],
        ended: Callable[[Micros], None],
    ) -> None:
        """
        Args:
            kind: the class of the answers.
            answered: called for each answer.
            ended: called once for each `send`, in a later turn.
        """
        self.lost = False
        """Some request was not answered."""
        self.timed_out = False
        """Some was not answered by the deadline."""
        self._shard = shard
        self._kind = kind
        self._answered = answered
        self._ended = ended
        self._waiting: dict[ShardId, int] = {}
        self._timer: Timer | None = None

    def send(self, messages: Mapping[ShardId, Callable[..., Any]], timeout: int, now: Micros) -> None:
        """Send each shard a message, made with `request_id`."""
        assert self._timer is None, "one round at a time"
        self.lost = self.timed_out = False
        for shard, make in messages.items():
            request = self._shard.requests.ask_shard(
                shard, self._kind, self._on_answer, failed=partial(self._on_lost, shard)
            )
            self._waiting[shard] = request
            self._shard.out.send(node_peer(shard), make(request_id=request))
        self._timer = self._shard.timers.at(Micros(now + (timeout if messages else 0)), self._on_timeout)

    def _on_answer(self, answer: Any, now: Micros) -> None:
        del self._waiting[answer.shard]
        self._answered(answer, now)
        self._end_if_answered(now)

    def _on_lost(self, shard: ShardId, status: Status, now: Micros) -> None:
        del self._waiting[shard]
        self.lost = True
        self._end_if_answered(now)

    def _end_if_answered(self, now: Micros) -> None:
        if not self._waiting and self._timer is not None:
            self._end(now)

    def forget_rest(self) -> None:
        """To be called with an answer that makes the others superfluous."""
        for request in self._waiting.values():
            self._shard.requests.forget(request)
        self._waiting.clear()

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self.forget_rest()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self, now: Micros) -> None:
        self.lost = self.timed_out = bool(self._waiting) or self.lost
        self._end(now)

    def _end(self, now: Micros) -> None:
        self.cancel()
        self._ended(now)
