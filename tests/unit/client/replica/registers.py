"""A state machine for tests: registers that are set when they hold what is expected."""

from __future__ import annotations

import msgpack

from client.replica.applied_state import StateKind
from client.replica.commands import CommandRefused, StateVersion
from logdevice_py.core.units import Timestamp

ANY = "*"


class Registers:
    """Registers by name. Each keeps how often it was set, so that a command that is applied twice shows."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.counts: dict[str, int] = {}

    def apply(self, command: bytes, at: StateVersion, time: Timestamp) -> bytes:
        """Set a register; the result is how often it was set."""
        name, expected, value = parse(command)
        found = self.values.get(name, "")
        if expected not in (ANY, found):
            raise CommandRefused(f"{name} is {found!r}, not {expected!r}")
        self.values[name] = value
        self.counts[name] = self.counts.get(name, 0) + 1
        return str(self.counts[name]).encode()

    def encode(self) -> bytes:
        """In the order of names."""
        encoded: bytes = msgpack.packb([[name, self.values[name], self.counts[name]] for name in sorted(self.values)])
        return encoded


def parse(command: bytes) -> tuple[str, str, str]:
    """Name, expected value and new value."""
    try:
        name, expected, value = command.decode().split(" ")
    except ValueError:
        raise CommandRefused("three words expected") from None
    return name, expected, value


def set_command(name: str, value: str, expected: str = ANY) -> bytes:
    """Set a register, if it holds what is expected."""
    return f"{name} {expected} {value}".encode()


def decode(data: bytes) -> Registers:
    """From `Registers.encode`; ValueError for anything else."""
    made = Registers()
    try:
        for name, value, count in msgpack.unpackb(data):
            made.values[name], made.counts[name] = value, count
    except (TypeError, msgpack.UnpackException):
        raise ValueError("registers expected") from None
    return made


REGISTERS = StateKind("registers", Registers, decode)
