"""Asks nodes that keep requests waiting what these wait for, and remembers what they said: errors of requests that run out of time tell it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from client.links import Links
from client.trail import format_wait
from logdevice_py.core.ids import LogId, NodeId, PeerId
from logdevice_py.core.lsn import EPOCH_INVALID
from logdevice_py.core.marks import hit
from logdevice_py.core.units import MILLISECOND, Micros
from logdevice_py.protocol.messages import GetSeqState, SeqState, SeqStateFlags, SeqStateWait

_APART_US: Final = 250 * MILLISECOND
_REMEMBERED_MAX: Final = 1000
_EXPLAIN: Final = int(SeqStateFlags.EXPLAIN)
_About = tuple[LogId, NodeId]


class Inquiries:
    """Those of one client. They change nothing, and nobody depends on the answers."""

    __slots__ = ("_asked", "_ids", "_links", "_said", "_under_way")

    def __init__(self, links: Links, ids: Iterator[int]) -> None:
        self._links = links
        self._ids = ids
        self._asked: dict[_About, Micros] = {}
        self._under_way: dict[int, _About] = {}
        self._said: dict[_About, tuple[Micros, str]] = {}

    def ask(self, log: LogId, node: NodeId, now: Micros) -> None:
        """Ask a node what the log waits for there; not too often, and only over a connection that stands."""
        about = log, node
        if not self._links.is_up(PeerId(node)) or now < self._asked.get(about, -_APART_US) + _APART_US:
            return
        hit("client_inquiry")
        _make_room(self._asked)
        _make_room(self._under_way)
        self._asked[about] = now
        request_id = next(self._ids)
        self._under_way[request_id] = about
        self._links.send(
            PeerId(node), GetSeqState(request_id=request_id, log=log, flags=_EXPLAIN, min_epoch=EPOCH_INVALID)
        )

    def on_seq_state(self, peer: PeerId, answer: SeqState, now: Micros) -> bool:
        """An answer; False when it is not for an inquiry."""
        about = self._under_way.pop(answer.request_id, None)
        if about is None:
            return False
        if about[1] == NodeId(peer):
            _make_room(self._said)
            self._said[about] = now, "; ".join(map(_describe, answer.waits))
        return True

    def told(self, log: LogId, node: NodeId, since: Micros, now: Micros) -> str:
        """What the node said of the log since then, in words; empty when it said nothing."""
        at, text = self._said.get((log, node), (since - 1, ""))
        if at < since or not text:
            return ""
        return f"{format_wait(now - at)} ago N{node} said: {text}"


def _describe(wait: SeqStateWait) -> str:
    text = f"{wait.kind} waits for {wait.cause}"
    if wait.shards:
        text += f" of {wait.shards}"
    if wait.waited_us:
        text += f" for {format_wait(wait.waited_us)}"
    if wait.waiting > 1:
        text += f" ({wait.waiting} of them)"
    return f"{text} ({wait.detail})" if wait.detail else text


def _make_room(remembered: dict[int, _About] | dict[_About, Micros] | dict[_About, tuple[Micros, str]]) -> None:
    while len(remembered) >= _REMEMBERED_MAX:
        del remembered[next(iter(remembered))]  # type: ignore[arg-type]
