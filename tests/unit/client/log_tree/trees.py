"""A log tree for tests: commands with positions of their own, and what they came to."""

from __future__ import annotations

import msgpack
import pytest

from client.log_tree.commands import TreeCommand, encode
from client.log_tree.state import LogTreeState
from client.replica.commands import CommandRefused, StateVersion, refusal
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp


class Commands:
    """Applies commands, each at the next LSN."""

    def __init__(self) -> None:
        self.state = LogTreeState()
        self.lsn = 0

    def apply(self, command: TreeCommand) -> bytes:
        """What applying returned."""
        self.lsn += 1
        return self.state.apply(encode(command), StateVersion(Lsn(self.lsn), 0), Timestamp(0))

    def make(self, command: TreeCommand) -> range:
        """The ids that a new group got."""
        lo, hi = msgpack.unpackb(self.apply(command))
        return range(lo, hi + 1)

    def refused(self, command: TreeCommand) -> tuple[Status, str]:
        """Why; nothing may have changed."""
        before = self.state.encode()
        with pytest.raises(CommandRefused) as raised:
            self.apply(command)
        assert self.state.encode() == before
        return refusal(str(raised.value))

    @property
    def version(self) -> StateVersion:
        """Of the last command."""
        return StateVersion(Lsn(self.lsn), 0)
