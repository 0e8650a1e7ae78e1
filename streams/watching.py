"""What changes about a stream, as it changes: its segments and its owner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from logdevice_py.core.status import LogDeviceError, Status
from streams.leases import Lease
from streams.upkeep.segments import StreamSegment, StreamSegmentState

if TYPE_CHECKING:
    from streams.stream import Stream


@dataclass(frozen=True, slots=True)
class SegmentChange:
    """A segment began, was completed, truncated, copied, or is gone. That records were added to it is not told."""

    number: int
    segment: StreamSegment | None
    """How it is now; None: it is gone, in copies as well."""


@dataclass(frozen=True, slots=True)
class OwnerChange:
    """Another one owns the stream; signs of life are not told."""

    owner: Lease | None
    """None: nobody does."""


StreamNews: TypeAlias = SegmentChange | OwnerChange


class SegmentWatch:
    """What was told of the segments of one stream."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[int, tuple[StreamSegmentState, bool]] = {}

    def changes(self, segments: Sequence[StreamSegment]) -> list[SegmentChange]:
        """What is new since the last call, in order of the segments; those that are gone first."""
        now = {each.number: (each.state, each.is_copied) for each in segments}
        gone = [SegmentChange(number, None) for number in self._told if number not in now]
        new = [SegmentChange(each.number, each) for each in segments if self._told.get(each.number) != now[each.number]]
        self._told = now
        return gone + new


async def watch_stream(stream: Stream, every: float, timeout: float | None) -> AsyncIterator[StreamNews]:
    """As `Stream.watch`; `every`: seconds."""
    namespace, watch = stream.namespace, SegmentWatch()
    owner: tuple[str, int] | None = None
    is_first = True
    while True:
        try:
            segments = await stream.segments(timeout=timeout)
            lease = namespace.stream_entry(stream.number).lease
        except LogDeviceError as error:
            if error.status in (Status.NOTFOUND, Status.SHUTDOWN):
                return
            if not error.retriable:
                raise
            segments = None  # nobody could say in time
        else:
            found = None if lease is None else (lease.owner, lease.token)
            if found != owner or (is_first and lease is not None):
                yield OwnerChange(lease)
            owner, is_first = found, False
        for change in () if segments is None else watch.changes(segments):
            yield change
        await namespace.wait_for_change(every)
