"""What is to be done next: which parts of an index are merged, and which files are garbage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from indexlog.manifest.commands import token_of
from indexlog.manifest.parts import Part, PartKind, RetiredPart
from indexlog.manifest.state import ManifestState


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """When parts are merged.

    Optimized files of an index get smaller from the oldest to the newest, each at least `ratio` times the next. So a modification is written once when it is
    dealt, once when it is sorted, once when it is optimized, and again for each power of two, about, that the index is larger than what is optimized at a time.
    A greater `ratio` makes fewer files, and writes more often.
    """

    slices_max: int = 30
    """With more slices than this they are sorted."""
    slice_bytes_max: int = 30_000_000
    """With more bytes in slices than this they are sorted."""
    sorted_max: int = 7
    """With more sorted files than this they are optimized."""
    ratio: float = 2.0
    """An optimized file is merged again when it is less than this many times as large as what is newer."""
    own_file_bytes: int = 4_000_000
    """With more bytes than this to be merged an index gets a file of its own; others share one."""
    task_bytes: int = 16_000_000
    """What a task merges, about: it is in memory, unpacked. Indexes of which more is to be merged are cut by document id, into a file for each task."""


STANDARD_POLICY: Final = MergePolicy()
SLICES_AT_ONCE: Final = 4000
"""That become one file, the oldest ones first: a command names each of them, and has an end."""
ALL_AT_ONCE: Final = MergePolicy(0, 0, 0, float("inf"))
"""Everything that can be merged is."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """Neighbours of one index that become one file."""

    index: str
    parts: tuple[Part, ...]
    kind: PartKind
    """Of the file."""
    is_oldest: bool
    """The first part is the oldest of the index, so deletes go."""
    has_own_file: bool = True
    """The file is of this index alone."""

    @property
    def bytes(self) -> int:
        """Of all parts."""
        return sum(part.bytes for part in self.parts)

    @property
    def timestamp(self) -> int:
        """For the name of the file: of the first slice, or of the last sorted file."""
        return (self.parts[0] if self.kind is PartKind.SORTED else self.parts[-1]).timestamp


def plan_merge(index: str, parts: list[Part], policy: MergePolicy) -> MergePlan | None:
    """What to merge next of an index, if anything.

    Args:
        parts: all live ones, oldest first.
    """
    slices = [part for part in parts if part.kind is PartKind.UNSORTED]
    if slices and (len(slices) > policy.slices_max or sum(part.bytes for part in slices) > policy.slice_bytes_max):
        return _planned(index, slices[:SLICES_AT_ONCE], PartKind.SORTED, len(parts) == len(slices), policy)
    files = parts[: len(parts) - len(slices)]
    begin = next((at for at, part in enumerate(files) if part.kind is PartKind.SORTED), len(files))
    if len({part.run for part in files[begin:]}) <= policy.sorted_max:
        return None
    size = sum(part.bytes for part in files[begin:])
    for _, older in groupby(reversed(files[:begin]), key=lambda part: part.run):
        of_run = list(older)
        more = sum(part.bytes for part in of_run)
        if more >= policy.ratio * size:
            break
        begin -= len(of_run)
        size += more
    return _planned(index, files[begin:], PartKind.OPTIMIZED, begin == 0, policy)


def _planned(index: str, parts: list[Part], kind: PartKind, is_oldest: bool, policy: MergePolicy) -> MergePlan:
    size = sum(part.bytes for part in parts)
    return MergePlan(index, tuple(parts), kind, is_oldest, size > policy.own_file_bytes)


def garbage(listed: Iterable[tuple[str, int]], state: ManifestState) -> list[tuple[str, int]]:
    """Files that nobody needs.

    Args:
        listed: what the store had at some moment, with sizes.
        state: the manifest at a later moment. Of a job that began later than the listing nothing is listed.
    """
    needed = set(state.paths())
    return [
        (path, size)
        for path, size in listed
        if path not in needed and token_of(path) < state.next_token and token_of(path) not in state.jobs
    ]


def forgettable(retired: Iterable[RetiredPart], before: int, forgotten: int) -> int:
    """The serial up to which retired parts can be forgotten: those of an earlier time than `before`, in microseconds since 1970."""
    found = forgotten
    for each in retired:
        if each.time >= before:
            break
        found = each.retired
    return found
