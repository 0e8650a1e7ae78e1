"""The writers of a client that are open: hands all of them what changes around them, and each the answers to its frames."""

from __future__ import annotations

from typing import Any

from client.turn_end import TurnEnd
from client.write.frame import StreamFrame
from client.write.write_stream import WriteStream
from client.write.write_streams import WriteStreams
from logdevice_py.core.ids import NodeId, PeerId
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import Micros


class OpenWriters:
    """In the order in which they were opened."""

    __slots__ = ("_turn_end", "frames", "open")

    def __init__(self, turn_end: TurnEnd) -> None:
        self._turn_end = turn_end
        self.open: list[WriteStreams] = []
        self.frames: dict[int, tuple[WriteStream, StreamFrame, Any]] = {}
        """Every frame of a stream that awaits its answer, by request id: whose it is, and the message that was sent."""

    def add(self, writer: WriteStreams) -> None:
        """From here on a writer takes part."""
        self.open.append(writer)
        self._turn_end.wanted = True

    def remove(self, writer: WriteStreams) -> None:
        """The writer is closed. Harmless when called again."""
        if writer in self.open:
            self.open.remove(writer)

    def on_config(self, now: Micros) -> None:
        """There is another cluster file."""
        for writer in self.open:
            writer.on_config(now)

    def on_peer_down(self, peer: PeerId, was_up: bool, now: Micros) -> None:
        """A connection broke or a dial failed."""
        for writer in self.open:
            writer.on_peer_down(peer, was_up, now)

    def on_node_dead(self, node: NodeId, now: Micros) -> None:
        """The cluster declares a node dead."""
        for writer in self.open:
            writer.on_node_dead(node, now)

    def refuse(self, error: LogDeviceError) -> None:
        """No node serves this client: records without an outcome fail with this error."""
        for writer in self.open:
            writer.refuse(error)

    def close(self) -> None:
        """Close them all."""
        for writer in self.open:
            writer.close()
