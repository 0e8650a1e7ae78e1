"""Where the records of a log reach a timestamp or a key: by the partitions' bounds first, then by searching what is left.

Timestamps grow with the LSNs of a log as far as the clocks of its sequencers agree, and keys as far as its writers see to it; where they do
not, an answer is some place at which the target is passed.

The search is a generator: it yields what is to be read and is sent what was read, so that who runs it may do other things between.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.entry import EntryFlags, EntryHeader, body_of, parse_header
from logdevice_py.core.lsn import Lsn, epoch_of
from logdevice_py.core.record_keys import body_keys
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store.interface import NO_RECORD, LogSpan, ReadResult

BLOCK_BYTES: Final = 16 << 10
BLOCK_ENTRIES: Final = 64
_STRIDE: Final = 256
_KEYED: Final = int(EntryFlags.KEYED)


@dataclass(slots=True)
class SearchResult:
    """The first LSN whose record reaches the target is in (`before`, `reached`]."""

    status: Status
    """OK. Otherwise the rest means nothing: AGAIN: what would tell is damaged, and is fetched from other shards; FAILED: the shard does not answer, or holds what nobody wrote."""
    before: Lsn
    """No record stored up to here, from the beginning of the range on, reaches it; the LSN before the range if nothing is known."""
    reached: Lsn
    """The first LSN stored whose record does; the LSN after the range if there is none."""
    timestamp: Timestamp = NO_RECORD
    """Of the record at `reached`."""


ReadBlock = tuple[Lsn, Lsn]
"""Read about `BLOCK_BYTES` and `BLOCK_ENTRIES` from the first LSN on, nothing above the second. Bodies are needed for the search of a key alone, and of
entries with keys alone."""
Search = Generator[ReadBlock, ReadResult, SearchResult]
Judge = Callable[[EntryHeader, bytes], bool | None]
"""Whether an entry reaches the target; None: it says nothing of that."""


def search_time(spans: Sequence[LogSpan], timestamp: Timestamp, first: Lsn, last: Lsn) -> Search:
    """Where in [first, last] the records reach a timestamp. `spans`: what of the range lies in which partition."""

    def judge(header: EntryHeader, image: bytes) -> bool | None:
        return None if header.is_hole else header.timestamp >= timestamp

    found = SearchResult(Status.OK, Lsn(first - 1), Lsn(last + 1))
    for span in spans:
        if span.newest < timestamp:
            # nothing in it is as new; its end is looked for only if the answer lies right behind it
            found.before = span.last
            continue
        yield from _narrow(judge, span.first, span.last, found, Guess(timestamp, span.oldest))
        if found.status is not Status.OK or found.reached <= last:
            break
    return found


def approximate_time(spans: Sequence[LogSpan], timestamp: Timestamp, first: Lsn, last: Lsn) -> SearchResult:
    """What the bounds of partitions tell: no record before `reached` is as new, and one of its partition may be."""
    found = SearchResult(Status.OK, Lsn(first - 1), Lsn(last + 1))
    for span in spans:
        if span.newest >= timestamp:
            found.reached = Lsn(max(span.first, found.before + 1))
            break
        found.before = span.last
    return found


def search_key(spans: Sequence[LogSpan], key: bytes, first: Lsn, last: Lsn) -> Search:
    """Where in [first, last] the records reach a key. Records without one are passed over."""

    def judge(header: EntryHeader, image: bytes) -> bool | None:
        if not header.flags & _KEYED:
            return None
        keys = [each for each in body_keys(body_of(image)) if each is not None]
        return max(keys) >= key if keys else None

    found = SearchResult(Status.OK, Lsn(first - 1), Lsn(last + 1))
    if spans:
        yield from _narrow(judge, spans[0].first, spans[-1].last, found, None)
    return found


class Guess:
    """Where a timestamp would be if records came evenly, which they mostly do."""

    __slots__ = ("newest", "oldest", "timestamp", "width")

    def __init__(self, timestamp: Timestamp, oldest: Timestamp) -> None:
        self.timestamp = timestamp
        self.oldest = oldest
        """Of what lies before that which is left."""
        self.newest = timestamp
        """Of what lies behind it."""
        self.width = 0
        """LSNs of a block."""

    def place(self, low: Lsn, high: Lsn) -> Lsn | None:
        """Where to look; None: nothing can be told."""
        if not self.oldest < self.timestamp < self.newest:
            return None
        expected = low + (high - low) * (self.timestamp - self.oldest) // (self.newest - self.oldest)
        return Lsn(max(low, expected - self.width // 2))


def _narrow(
    judge: Judge, low: Lsn, high: Lsn, found: SearchResult, guess: Guess | None
) -> Generator[ReadBlock, ReadResult, None]:
    """Narrow `found` by what is stored in [low, high].

    Each step reads from disk, so every other one looks where the target is guessed to be, and looks at as many entries as a block holds. The
    others halve what is left, so that the number of steps is bounded. Where nothing was found up to the end, or the next thing is in another epoch, most
    of the range is the unused rest of an epoch: the end of what is used is looked for in strides that double.
    """
    guessing = False
    stride = 0
    while low <= high:
        middle = Lsn((low + high) // 2)
        if stride:
            middle = Lsn(min(middle, low + stride))
        elif guess is not None and guessing:
            middle = guess.place(low, high) or middle
        guessing = not guessing
        telling: list[tuple[Lsn, bool, Timestamp]] = []
        at = middle
        while at <= high and not telling:
            result = yield at, high
            if result.status is not Status.OK or result.corrupt:
                found.status = Status.FAILED if result.status is not Status.OK else Status.AGAIN
                return
            try:
                telling = _telling(judge, result)
            except CorruptEntryError:
                found.status = Status.FAILED
                return
            at = Lsn(result.through + 1)
        if not telling or epoch_of(telling[0][0]) != epoch_of(middle):
            stride = 0 if stride else _STRIDE
        else:
            stride *= 2
        if not telling:
            high = Lsn(middle - 1)
            continue
        reached = next((index for index, (_, does, _) in enumerate(telling) if does), len(telling))
        if reached:
            found.before = telling[reached - 1][0]
            low = Lsn(found.before + 1)
        else:
            high = Lsn(middle - 1)
        if reached < len(telling):
            found.reached, found.timestamp = telling[reached][0], telling[reached][2]
        if guess is not None:
            guess.width = telling[-1][0] - middle
            if reached:
                guess.oldest = telling[reached - 1][2]
            if reached < len(telling):
                guess.newest = telling[reached][2]
        if 0 < reached < len(telling):
            return


def _telling(judge: Judge, result: ReadResult) -> list[tuple[Lsn, bool, Timestamp]]:
    """(LSN, whether it reaches the target, timestamp) of the entries read that tell.

    Raises:
        CorruptEntryError: an entry is none.
    """
    telling = []
    for lsn, image in result.entries:
        header = parse_header(image, alone=True)
        does = judge(header, image)
        if does is not None:
            telling.append((lsn, does, header.timestamp))
    return telling
