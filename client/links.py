"""The client's outbox: messages to a node without connection wait here until it is up, so "never sent" is known for certain."""

from __future__ import annotations

from typing import Any

from client.effects import Connect
from logdevice_py.core.ids import NodeId, PeerId
from logdevice_py.core.machine import Outbox, Send


class Links(Outbox):
    """An `Outbox` that knows which nodes are connected.

    A message handed to `send` leaves at once when its node is connected. Otherwise it waits and the node is dialled; when the dial
    fails the waiting messages are dropped and `on_peer_down` tells their senders.
    """

    __slots__ = ("_up", "_waiting")

    def __init__(self) -> None:
        super().__init__()
        self._up: set[PeerId] = set()
        self._waiting: dict[PeerId, list[Any]] = {}

    def send(self, to: PeerId, message: Any) -> None:
        if to in self._up:
            self.effects.append(Send(to, message))
            return
        waiting = self._waiting.get(to)
        if waiting is None:
            self._waiting[to] = [message]
            self.effects.append(Connect(NodeId(to)))
        else:
            waiting.append(message)

    def connect(self, node: NodeId) -> None:
        """Dial a node that is not connected, without a message for it."""
        peer = PeerId(node)
        if peer not in self._up and peer not in self._waiting:
            self._waiting[peer] = []
            self.effects.append(Connect(node))

    def withdraw(self, to: PeerId, message: Any) -> bool:
        """Take back a message that still waits for its connection. False: it may have been sent."""
        waiting = self._waiting.get(to)
        if waiting is None:
            return False
        for index, other in enumerate(waiting):
            if other is message:
                del waiting[index]
                return True
        return False

    def is_up(self, peer: PeerId) -> bool:
        """Connected at this moment."""
        return peer in self._up

    def is_dialled(self, peer: PeerId) -> bool:
        """A connection to it is being made."""
        return peer in self._waiting

    def connected(self) -> list[PeerId]:
        """Nodes connected at this moment, in order."""
        return sorted(self._up)

    def on_peer_up(self, peer: PeerId) -> None:
        """A connection is established: what waited for it leaves in order."""
        self._up.add(peer)
        for message in self._waiting.pop(peer, ()):
            self.effects.append(Send(peer, message))

    def on_peer_down(self, peer: PeerId) -> bool:
        """A connection broke or a dial failed. True: it had been up, so messages may have arrived."""
        was_up = peer in self._up
        self._up.discard(peer)
        self._waiting.pop(peer, None)
        return was_up
