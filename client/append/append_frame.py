"""One APPEND frame of direct appends: where it is, and what became of its tries."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from client.append.router import Router
from client.guards import AnyAppend, AppendGuard
from client.links import Links
from client.promise import Promise
from client.request_history import RequestHistory, describe_timeout, name_asked
from logdevice_py.core.ids import NodeId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.status import TRAITS, Status
from logdevice_py.core.units import Micros


class FrameState(enum.Enum):
    """Of one APPEND frame."""

    HELD = enum.auto()  # certainly not applied; is queued to be sent again
    SENT = enum.auto()  # given to a connection; no answer yet
    DONE = enum.auto()  # answered or failed


class AppendFrame:
    """One APPEND frame and who waits for it."""

    __slots__ = (
        "_history",
        "began",
        "call",
        "deadline",
        "guard",
        "message",
        "node",
        "previous_offset",
        "probed_at",
        "probes",
        "promises",
        "retry_after_us",
        "router",
        "sent_at",
        "state",
        "status",
        "unknown",
    )

    def __init__(self, message: AnyAppend, promises: Sequence[Promise], now: Micros, deadline: int) -> None:
        self.call = message.request_id
        """Grows with the calls; each try has a request id of its own."""
        self.message = message
        self.promises = promises
        self.deadline = deadline
        self.state = FrameState.HELD
        self.node = NodeId(-1)
        self.probed_at = 0
        self.probes = 0
        self.router: Router | None = None
        self.status = Status.TIMEDOUT
        """The last refusal."""
        self.retry_after_us = 0
        """THROTTLED: what the sequencer said."""
        self.previous_offset = 0
        self.guard: AppendGuard | None = None
        self.unknown = False
        """An earlier try may be stored, and this frame is repeated all the same: the sequencer knows it by its id."""
        self.began = now
        self.sent_at = now
        """When it was last given to a connection."""
        self._history: RequestHistory | None = None

    def sent(self, node: NodeId, now: Micros) -> None:
        """It was given to a connection."""
        self.state = FrameState.SENT
        self.node = node
        self.probed_at = self.sent_at = now
        self.probes = 0

    def refused(self, status: Status, redirect: NodeId = NodeId(-1)) -> None:
        """The node to which it was sent did not take it, or could not be reached; or nobody may be asked (NOSEQUENCER)."""
        self.status = status
        history = self._history
        if history is None:
            history = self._history = RequestHistory()
        if status is Status.REDIRECTED:
            history.redirected(self.node, redirect)
        else:
            history.refused(
                "" if status is Status.NOSEQUENCER and self.state is FrameState.HELD else f"N{self.node}", status
            )

    def explain(self, status: Status, now: Micros, epoch: Epoch, links: Links, told: str) -> str:
        """Why it fails with a status, having no answer.

        Args:
            epoch: the highest of the log that was heard of; 0: none.
            links: of the client.
            told: what the node said that it waits for.
        """
        history = self._history or RequestHistory()
        held = self.state is FrameState.HELD
        waits_for = "the next try" if held else name_asked(self.node, now - self.sent_at, links)
        story = describe_timeout(now - self.began, history.explain(waits_for, epoch, told))
        return story if history.tells_of(status) else f"{TRAITS[status].meaning}; {story}"
