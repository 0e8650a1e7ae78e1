"""The requests of one process that await an answer: whom each asks, for what, and who gets the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from logdevice_py.core.ids import InstanceId, PeerId, ShardId, node_peer
from logdevice_py.core.machine import Timer, TimerQueue
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol import messages as m
from logdevice_py.protocol.routing import handles

Answered = Callable[[Any, Micros], None]
"""(the answer, now)"""
Failed = Callable[[Status, Micros], None]
"""(PEER_CLOSED or TIMEDOUT, now)"""


@dataclass(slots=True)
class _Request:
    peer: PeerId
    kind: type[Any]
    shard: ShardId | None
    answered: Answered
    failed: Failed | None
    once: bool
    timer: Timer | None


class Requests:
    """Gives requests their ids and hands each answer to who asked for it.

    An answer counts only when it comes from the peer that was asked, is of the kind and of the shard that were asked for, and its request is
    still open: it was not answered, forgotten or lost with the connection, and its deadline has not passed. Ids are never used again by the
    process, and those of two runs of a node differ, so an answer to an earlier run is not taken for one to this.
    """

    __slots__ = ("_open", "_timers", "ids")

    def __init__(self, ids: Iterator[int], timers: TimerQueue) -> None:
        """
        Args:
            ids: ascending, different in every run of a node.
            timers: for deadlines.
        """
        self.ids: Final = ids
        """Also for what keeps account of its answers itself, such as frames and read streams."""
        self._timers: Final = timers
        self._open: dict[int, _Request] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, request_id: int) -> bool:
        """Whether an answer would be taken."""
        return request_id in self._open

    def ask(
        self,
        peer: PeerId,
        kind: type[Any],
        answered: Answered,
        *,
        shard: ShardId | None = None,
        failed: Failed | None = None,
        deadline: int | None = None,
        once: bool = True,
    ) -> int:
        """Open a request; the caller sends the message, with the id that is returned.

        Args:
            peer: who is asked.
            kind: the class of the answer.
            answered: gets the answer.
            shard: the shard that is asked.
            failed: called once, unless the request was answered or forgotten, when the connection is lost or the deadline passes.
            deadline: when to forget the request.
            once: the first answer closes the request. Otherwise it stays open until `forget`: for what is sent again with the same id, or answered by
                several messages.
        """
        assert kind in ANSWERS, kind
        request_id = next(self.ids)
        timer = None
        if deadline is not None:
            timer = self._timers.at(deadline, lambda now: self._fail(request_id, Status.TIMEDOUT, now))
        self._open[request_id] = _Request(peer, kind, shard, answered, failed, once, timer)
        return request_id

    def ask_shard(
        self,
        shard: ShardId,
        kind: type[Any],
        answered: Answered,
        *,
        failed: Failed | None = None,
        deadline: int | None = None,
        once: bool = True,
    ) -> int:
        """Open a request to a shard, as `ask`."""
        return self.ask(node_peer(shard), kind, answered, shard=shard, failed=failed, deadline=deadline, once=once)

    def forget(self, request_id: int) -> None:
        """The answer is not wanted any more. Harmless when the request is closed."""
        request = self._open.pop(request_id, None)
        if request is not None and request.timer is not None:
            request.timer.cancel()

    @handles(
        *(m.SeqState, m.Sealed, m.Digested, m.Cleaned, m.SealChecked, m.EpochRecoveryMetadata, m.Trimmed, m.KeyFound),
        *(m.DataSized, m.EpochsListed, m.Compared, m.Fetched, m.MetadataFetched, m.RebuildStored, m.ConfigurationText),
    )
    def on_answer(self, peer: PeerId, answer: Any, now: Micros) -> None:
        """Hand an answer to who asked; ignored when nobody did, or asked another."""
        request = self._open.get(answer.request_id)
        if request is None:
            return
        if (
            request.peer != peer
            or request.kind is not type(answer)
            or (request.shard is not None and answer.shard != request.shard)
        ):
            hit("answer_of_another")
            return
        if request.once:
            self.forget(answer.request_id)
        request.answered(answer, now)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """A connection broke: requests over it, or their answers, may be lost. What is asked from here on is not."""
        for request_id in [each for each, request in self._open.items() if request.peer == peer]:
            self._fail(request_id, Status.PEER_CLOSED, now)

    def _fail(self, request_id: int, status: Status, now: Micros) -> None:
        request = self._open.get(request_id)
        if request is not None:
            self.forget(request_id)
            if request.failed is not None:
                request.failed(status, now)


def ids_of_run(instance: InstanceId) -> Iterator[int]:
    """Request ids of one run of a node: no other run gives the same."""
    return count((instance & 0xFFFFFFFF) << 31 | 1)


ANSWERS: Final = frozenset(Requests.on_answer.handles)  # type: ignore[attr-defined]
"""The answers that find who asked by the id of the request."""
