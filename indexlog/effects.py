"""What jobs and readers of an index log ask for. They are generators: they yield one of these, and are sent what came of it, or the error is thrown into
them. Production runs them on asyncio, tests one step at a time; whoever stops between two steps has been killed there."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from indexlog.manifest.commands import ManifestCommand
from indexlog.manifest.state import ManifestState
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status


@dataclass(frozen=True, slots=True)
class ProposeCommand:
    """Propose a command to the manifest; gives a `ManifestOutcome`. The view is as of it, or later."""

    command: ManifestCommand


@dataclass(frozen=True, slots=True)
class ConfirmView:
    """Gives None once the view has all that was applied anywhere before."""


@dataclass(frozen=True, slots=True)
class FindTails:
    """Gives the last LSN that can be read of each log."""

    logs: Sequence[int]


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Read a raw log from `start` on, up to `until` or until `bytes_max` are passed, whole entries; gives a `RawRange`.

    Raises (into the generator):
        TrimmedRange: the beginning of it was trimmed.
        LogDeviceError: DATALOSS: a part of it is lost.
    """

    log: int
    start: int
    until: int
    bytes_max: int
    index: str | None = None
    """Records of other indexes may be left out; None: of none."""


@dataclass(frozen=True, slots=True)
class DoWork:
    """Call a function that blocks; gives what it returns."""

    work: Callable[[], Any]


IndexEffect: TypeAlias = ProposeCommand | ConfirmView | FindTails | ReadRange | DoWork
T = TypeVar("T")
Steps: TypeAlias = Generator[IndexEffect, Any, T]
View: TypeAlias = Callable[[], ManifestState]
"""The manifest as this process knows it: as of some moment that is not before its last outcome."""


@dataclass(frozen=True, slots=True)
class ManifestOutcome:
    """What a command came to."""

    number: int = 0
    """The token of a job that began, how many runs of several were refused, otherwise the serial."""
    refused: Status | None = None
    reason: str = ""


class TrimmedRange(LogDeviceError):
    """A part of a range of a raw log was trimmed."""

    def __init__(self, log: int, first: int, last: int) -> None:
        text = f"raw log {log}: {LSN(first)} to {LSN(last)} were trimmed before they were dealt"
        super().__init__(Status.DATALOSS, text, retriable=False, maybe_applied=False)
        self.log = log
        self.last = last
        """The last LSN that was trimmed."""


@dataclass(frozen=True, slots=True)
class RawRange:
    """What is in [start, until] of a raw log."""

    until: int
    records: Sequence[tuple[int, bytes | None]]
    """LSN and payload; None: it was damaged when it was appended."""
