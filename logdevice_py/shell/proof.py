"""What a connection proves of who is at the other end, and who the clients of a process, and it itself, are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.ids import NodeId, PeerId
from logdevice_py.core.principal import ANONYMOUS, Principal
from logdevice_py.core.units import Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerProof:
    """What is certain of the other end before it has said a word."""

    encrypted: bool = False
    """Nobody else reads or changes what passes, and the certificate below was checked."""
    node: NodeId | None = None
    """Its certificate is that of this node."""
    cluster_uuid: bytes = b""
    """Of the cluster whose node it is."""
    principal: Principal | None = None
    """Its certificate names a principal."""
    serial: int = 0
    """Of the certificate; 0: there is none."""
    until: Timestamp | None = None
    """When the certificate expires."""
    authority: bytes = b""
    """Which authority its certificate leads back to: a hash of that one's certificate; empty: there is none, or it is not known."""


NO_PROOF: Final = PeerProof()


def _nowhere(peer: PeerId) -> str:
    return ""


class Principals:
    """Who the connected clients of a process are, and whom nodes take this process for."""

    __slots__ = ("_by_peer", "origin", "own")

    def __init__(self) -> None:
        self.own = ""
        """As the node says that answered last; empty: none did, or it is too old to say."""
        self.origin: Callable[[PeerId], str] = _nowhere
        """Tells the address that a client comes from; empty: it is not known, or gone."""
        self._by_peer: dict[PeerId, Principal] = {}

    def of(self, peer: PeerId) -> Principal:
        """Who a client is; anonymous when it proved nothing, or is not connected any more."""
        return self._by_peer.get(peer, ANONYMOUS)

    def add(self, peer: PeerId, principal: Principal) -> None:
        """A client introduced itself."""
        self._by_peer[peer] = principal

    def remove(self, peer: PeerId) -> None:
        """A peer is gone."""
        self._by_peer.pop(peer, None)
