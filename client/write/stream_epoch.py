"""The epoch in which a write stream sends."""

from __future__ import annotations

from logdevice_py.core.ids import NodeId
from logdevice_py.core.lsn import EPOCH_INVALID, Epoch


class StreamEpoch:
    """The epoch, the node that has its sequencer, and whether that knows the stream."""

    __slots__ = ("accepted", "node", "number", "resume_sent")

    def __init__(self) -> None:
        self.number = EPOCH_INVALID
        """The only epoch in which frames may be in flight or have an unknown outcome; 0: not known yet."""
        self.node = NodeId(-1)
        self.accepted = False
        """A frame of the stream was acknowledged in this epoch."""
        self.resume_sent = False
        """A frame is in flight that says that the stream goes on in this epoch: the first one, while none is accepted."""

    def enter(self, number: Epoch, node: NodeId) -> bool:
        """Go on in an epoch, with nothing in flight; True: it is another one than before."""
        assert number >= self.number, (number, self.number)
        is_new = number != self.number
        if is_new:
            self.number = number
            self.accepted = False
        self.resume_sent = False
        self.node = node
        return is_new
