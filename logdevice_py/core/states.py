"""States of machines, each with those that may follow it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

S = TypeVar("S", bound="MachineState")


class MachineState(enum.Enum):
    """A state of a machine."""

    followed_by: tuple[MachineState, ...]
    """What may come next: kept here, as a look-up by a member of an enum costs as much as all else that a change of state does."""


def transitions(table: Mapping[S, tuple[S, ...]]) -> Mapping[S, tuple[S, ...]]:
    """Let each state be followed by those that the table says."""
    for state, following in table.items():
        state.followed_by = following
    return table
