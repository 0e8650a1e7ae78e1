"""Looking for a stream's own frames in the log, after their outcome was lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from client.write.frame import FramePosition
from logdevice_py.core.batch import decode_batch
from logdevice_py.core.ids import LogId, WriterId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.record_keys import split_keys
from logdevice_py.core.units import Micros
from logdevice_py.protocol.constituents import ContentMark


class FoundFrames:
    """What a released range of a log holds of one stream."""

    __slots__ = ("positions", "taken", "uncertain")

    def __init__(
        self, positions: dict[int, FramePosition], *, uncertain: bool, taken: dict[int, FramePosition] | None = None
    ) -> None:
        self.positions = positions
        """By sequence number. Of a number that was looked for: where the content is that was looked for."""
        self.uncertain = uncertain
        """A part of the range is lost, unreadable or trimmed: what is not found may have been there."""
        self.taken = taken or {}
        """By sequence number, of those that were looked for: where other content is. Somebody else sent it."""


@dataclass(frozen=True, slots=True)
class StoredFrame:
    """A frame of a write stream as the log holds it."""

    lsn: Lsn
    writer: WriterId
    count: int
    """How many records it holds."""
    payload: bytes
    batched: bool
    keyed: bool = False
    """Some of its records have keys."""

    def records(self) -> tuple[list[bytes], list[bytes | None] | None]:
        """What it holds, and the key of each; None instead of these when none has one.

        Raises:
            CorruptEntryError: it is not what its writer said.
        """
        keys, payload = split_keys(self.payload, self.count) if self.keyed else (None, self.payload)
        return decode_batch(payload, self.count) if self.batched else [payload], keys


@dataclass(frozen=True, slots=True)
class StoredFrames:
    """The frames of some writers in a range of a log, in order."""

    frames: list[StoredFrame]
    lost: bool
    """A part of the range is lost or unreadable: there may have been more. What was trimmed does not count as lost."""


class FrameSearch(Protocol):
    """A search under way."""

    def cancel(self) -> None:
        """Nobody wants the outcome any more; `done` is not called. Harmless when it was."""

    def waiting_for(self) -> str:
        """Why there is no outcome yet, for people."""


class FrameFinder(Protocol):
    """Reads a range to its end, however long that takes."""

    def find(
        self,
        log: LogId,
        writer: WriterId,
        first: Lsn,
        until: Lsn,
        contents: Mapping[int, ContentMark],
        done: Callable[[FoundFrames, Micros], None],
        now: Micros,
    ) -> FrameSearch:
        """Look for the stream's frames from first to until, inclusive; calls `done` once, later.

        Args:
            contents: of the frames whose outcome is not known, by sequence number.
        """
