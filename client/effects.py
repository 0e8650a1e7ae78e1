"""What the client's machines ask of the shell besides `Send`."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.ids import NodeId


@dataclass(slots=True)
class Connect:
    """Dial a node. The outcome is `on_peer_up`, or `on_peer_down` when it cannot be reached."""

    node: NodeId
