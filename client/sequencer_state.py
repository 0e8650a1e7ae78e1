"""Where a log is sequenced and how far it is."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.ids import NodeId
from logdevice_py.core.lsn import LSN


@dataclass(frozen=True, slots=True)
class SequencerState:
    """What a log's sequencer said of itself; it may have changed since."""

    node: NodeId
    """The node that sequences the log."""
    epoch: int
    last_released: LSN
    """Everything up to here can be read."""
    next_lsn: LSN
    """What the next entry gets."""
