"""What a node has to say to the operator about the event log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class EventLogNotice:
    """Effect: a line for the node's log."""

    kind: ClassVar[str] = "event log"

    text: str
    alarm: bool
    """A warning."""
