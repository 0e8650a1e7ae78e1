"""Asks nodes that keep requests waiting what these wait for, and remembers what they said: errors of requests that run out of time tell it."""

from __future__ import annotations

from functools import partial
from typing import Final

from client.links import Links
from client.request_history import format_wait
from logdevice_py.core.ids import LogId, NodeId, PeerId
from logdevice_py.core.lsn import EPOCH_INVALID
from logdevice_py.core.marks import hit
from logdevice_py.core.units import MILLISECOND, Micros
from logdevice_py.protocol.messages import GetSeqState, SeqState, SeqStateFlags, SeqStateWait
from logdevice_py.protocol.requests import Requests

_APART_US: Final = 250 * MILLISECOND
_REMEMBERED_MAX: Final = 1000
_EXPLAIN: Final = int(SeqStateFlags.EXPLAIN)
_About = tuple[LogId, NodeId]


class Inquiries:
    """A client's inquiries: asks nodes what requests wait for, to be told in errors. They change nothing, and nobody depends on the answers."""

    __slots__ = ("_asked", "_links", "_requests", "_said")

    def __init__(self, links: Links, requests: Requests) -> None:
        self._links = links
        self._requests = requests
        self._asked: dict[_About, tuple[Micros, int]] = {}
        """When, and the request: it stays the same until it is answered, so a late answer counts."""
        self._said: dict[_About, tuple[Micros, str]] = {}

    def ask(self, log: LogId, node: NodeId, now: Micros) -> None:
        """Ask a node what the log waits for there; not too often, and only over a connection that stands."""
        about = log, node
        asked_at, request_id = self._asked.get(about, (-_APART_US, 0))
        if not self._links.is_up(PeerId(node)) or now < asked_at + _APART_US:
            return
        hit("client_inquiry")
        if request_id not in self._requests:
            request_id = self._requests.ask(PeerId(node), SeqState, partial(self._on_seq_state, about))
        self._asked[about] = now, request_id
        if len(self._asked) > _REMEMBERED_MAX:
            _, oldest = self._asked.pop(next(iter(self._asked)))
            self._requests.forget(oldest)
        self._links.send(
            PeerId(node), GetSeqState(request_id=request_id, log=log, flags=_EXPLAIN, min_epoch=EPOCH_INVALID)
        )

    def _on_seq_state(self, about: _About, answer: SeqState, now: Micros) -> None:
        self._said[about] = now, "; ".join(map(_describe, answer.waits))
        if len(self._said) > _REMEMBERED_MAX:
            del self._said[next(iter(self._said))]

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
