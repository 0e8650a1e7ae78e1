"""A client session inside a node sends over the node's own connections."""

from __future__ import annotations

from typing import Any

from client.links import Links
from logdevice_py.core.ids import NodeId, PeerId
from logdevice_py.core.machine import Outbox


class NodeLinks(Links):
    """`Links` of a node: its transport dials by itself, and tells of connections that break."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__()
        self._outbox = outbox

    def send(self, to: PeerId, message: Any) -> None:
        self._outbox.send(to, message)

    def connect(self, node: NodeId) -> None:
        """A message dials."""

    def withdraw(self, to: PeerId, message: Any) -> bool:
        return False  # it may have been sent

    def is_up(self, peer: PeerId) -> bool:
        return True

    def on_peer_up(self, peer: PeerId) -> None:
        """Nothing waits here."""

    def on_peer_down(self, peer: PeerId) -> bool:
        return True
