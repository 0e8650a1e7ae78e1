"""Subscriptions for tests: operations in commands of their own, and what they came to."""

from __future__ import annotations

from client.guards import Position
from client.replica.commands import StateVersion
from logdevice_py.core.lsn import LSN, Lsn
from logdevice_py.core.units import Timestamp
from streams.subscriptions.commands import (
    AddStreams,
    Commit,
    Expel,
    HandOver,
    Join,
    Leave,
    Operation,
    OperationAnswer,
    RemoveStreams,
    encode,
)
from streams.subscriptions.state import GroupStream, SubscriptionsState

GROUP = "billing"


def at(lsn: int, offset: int = 0) -> Position:
    """A position."""
    return Position(LSN(lsn), offset)


def nonce(number: int) -> bytes:
    """What tells a member from another one of its name."""
    return number.to_bytes(8, "big")


class Operations:
    """Applies operations, each at the next LSN."""

    def __init__(self) -> None:
        self.state = SubscriptionsState()
        self.lsn = 0

    def do(self, *operations: Operation) -> list[OperationAnswer]:
        """What a command of these operations came to."""
        self.lsn += 1
        result = self.state.apply(encode(operations), self.version, Timestamp(self.lsn * 1000))
        return [OperationAnswer(each) for each in result]

    def one(self, operation: Operation) -> OperationAnswer:
        """What a single operation came to; if it was refused, nothing may have changed."""
        before = self.state.encode()
        [answer] = self.do(operation)
        if answer is not OperationAnswer.OK:
            assert self.state.encode() == before
        return answer

    @property
    def version(self) -> StateVersion:
        """Of the last command."""
        return StateVersion(Lsn(self.lsn), 0)

    def commit(self, stream: str, lsn: int, token: int = 0, reset: bool = False) -> OperationAnswer:
        """Commit a position."""
        return self.one(Commit(GROUP, stream, at(lsn), None, token, reset))

    def add(self, *streams: str) -> OperationAnswer:
        """Give streams to the group."""
        return self.one(AddStreams(GROUP, [(stream, 1 + int(stream[1:])) for stream in streams]))

    def remove(self, *streams: str) -> OperationAnswer:
        """Take streams from the group."""
        return self.one(RemoveStreams(GROUP, streams))

    def join(self, member: str, number: int = 1) -> OperationAnswer:
        """A member joins."""
        return self.one(Join(GROUP, member, nonce(number), 1_000_000, 500_000))

    def leave(self, member: str) -> OperationAnswer:
        """It leaves."""
        return self.one(Leave(GROUP, member, self.state.subscriptions[GROUP].members[member].nonce))

    def expel(self, member: str) -> OperationAnswer:
        """It is expelled."""
        found = self.state.subscriptions[GROUP].members[member]
        return self.one(Expel(GROUP, member, found.nonce, found.beat))

    def stream(self, name: str) -> GroupStream:
        """A stream of the group."""
        return self.state.subscriptions[GROUP].streams[name]

    def finish(self) -> None:
        """All owners hand over what others are to get."""
        for name, shared in sorted(self.state.subscriptions[GROUP].streams.items()):
            if shared.heir is not None:
                assert self.one(HandOver(GROUP, name, shared.token)) is OperationAnswer.OK

    def owners(self) -> dict[str, str | None]:
        """By stream."""
        return {name: shared.owner for name, shared in self.state.subscriptions[GROUP].streams.items()}
