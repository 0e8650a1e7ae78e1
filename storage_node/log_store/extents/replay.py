"""Which blocks of a chain count: a prefix, in unbroken order. Pure over what can be read; changes nothing.

Rules:
  1. *prefix*: blocks are numbered through all runs. They count up to the first that is not there whole; nothing behind it does.
  2. *taken*: what a later run took of the runs before it stands in the headers of its extents. More of these runs does not count, and less is damage: it
     was synced before the header was written.
  3. *evidence*: a block that another one, a table or a header calls synced and that cannot be read is damage, never a torn end.
  4. *same boot*: where the operating system went on and no sync failed, only the last block may be incomplete: what lacks in front of
     another one is damage.
  5. *unsynced bodies*: a block that nothing calls synced counts only with all of its bodies. Of others a damaged body is the damage of that copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from logdevice_py.core.marks import hit
from storage_node.log_store.extents.block_format import (
    BLOCK_MAGIC,
    DATA_START,
    HEAD_SIZE,
    BadBlockError,
    BlockHead,
    Changes,
    ExtentHeader,
    bodies_match,
    decode_control,
    decode_head,
    seed_of,
)
from storage_node.log_store.extents.disk import SECTOR

_PIECE: Final = 1 << 20
Read = Callable[[int, int], bytes]
"""(offset, length) -> what is there; DiskError where it cannot be read."""


class ReplayDamageError(Exception):
    """Something that was durable cannot be read."""


@dataclass(slots=True)
class ReplayedBlock:
    """A block that counts."""

    extent: int
    offset: int
    head: BlockHead
    changes: Changes


@dataclass(slots=True)
class ExtentSource:
    """An extent to read."""

    header: ExtentHeader
    read: Read
    known: tuple[int, int] | None = None
    """First and last of its blocks that tables know all of; None: all is to be read."""
    start: int = DATA_START
    """Where to begin to read."""
    seed: int = field(init=False)

    def __post_init__(self) -> None:
        self.seed = seed_of(self.header.salt)


@dataclass(slots=True)
class Replay:
    """What counts."""

    blocks: list[ReplayedBlock]
    run: int
    """The greatest of any extent; 0: there is none."""
    last_run: int
    """Of the last block that counts."""
    last: int
    """The last block that counts."""
    torn: bool
    """Something behind it does not count."""
    ends: dict[int, int]
    """Per extent that was read: where its last block that counts ends."""


def replay(extents: Sequence[ExtentSource], *, applied: int, same_boot: bool) -> Replay:
    """Read a chain.

    Args:
        extents: by ascending number.
        applied: blocks up to this one are known from tables. They were synced.
        same_boot: the operating system is that of the last run, and no sync failed.

    Raises:
        ReplayDamageError: what was durable, and is not known from tables, cannot be read.
        DiskError: the disk does not read: what lies there is not known, and is not taken for torn.
    """
    return _Replayer(extents, applied, same_boot).run()


class _Replayer:
    def __init__(self, extents: Sequence[ExtentSource], applied: int, same_boot: bool) -> None:
        self._extents = extents
        self._applied = applied
        self._same_boot = same_boot
        self._blocks: list[ReplayedBlock] = []
        self._ends: dict[int, int] = {}
        self._expected = 0
        """Number of the next block; 0: not known yet."""
        self._last_run = 0
        self._torn = False
        self._called_synced = 0
        """The last block that those call synced which do not count: they were written when it was."""

    def run(self) -> Replay:
        extents = self._extents
        runs = sorted({each.header.run for each in extents})
        for run in runs:
            of_run = [each for each in extents if each.header.run == run]
            later = [each.header for each in extents if each.header.run > run]
            limit = min((header.taken_block for header in later), default=None)
            self._replay_run(of_run, limit)
            if limit is not None and limit > self._applied and self._expected <= limit:
                raise ReplayDamageError(
                    f"blocks {max(self._expected, self._applied + 1)} to {limit} of run {run} or before were durable and cannot be read"
                )
        last = self._expected - 1 if self._expected else 0
        if last < self._applied:
            raise ReplayDamageError(
                f"tables hold what blocks up to {self._applied} changed, and the last block that is there is {last}"
            )
        if not self._last_run and extents:
            self._last_run = extents[-1].header.taken_run
        return Replay(self._blocks, runs[-1] if runs else 0, self._last_run, last, self._torn, self._ends)

    def _replay_run(self, extents: Sequence[ExtentSource], limit: int | None) -> None:
        """Take the blocks of one run up to its limit; without one it is the last, whose end has to be judged."""
        taken_from = len(self._blocks)
        for at, extent in enumerate(extents):
            if extent.known is not None:
                self._take_known(extent.header, *extent.known)
            offset = self._read_extent(extent, limit)
            if limit is not None and self._expected > limit:
                return
            if self._is_followed(extents[at + 1 :]):
                continue
            if limit is None:
                self._judge_end(extent, offset, extents[at + 1 :])
                break
        if limit is None:
            self._drop_unsynced(taken_from)

    def _take_known(self, header: ExtentHeader, first: int, last: int) -> None:
        if self._expected and first > self._expected and not self._may_jump(header.number, first):
            raise ReplayDamageError(f"blocks {self._expected} to {first - 1} of run {header.run} cannot be read")
        if last >= self._expected:
            self._expected = last + 1
            self._last_run = header.run

    def _read_extent(self, extent: ExtentSource, limit: int | None) -> int:
        """Take what follows in an extent; returns where there is nothing to take any more."""
        header, offset = extent.header, extent.start
        while True:
            found = self._block_at(extent, offset)
            if found is None or found.head.run != header.run:
                return offset
            number = found.head.number
            if not self._expected:
                if number > max(self._applied, header.taken_block) + 1:
                    raise ReplayDamageError(
                        f"the chain begins with block {number}, and tables hold blocks up to {self._applied}"
                    )
                self._expected = number
            if limit is not None and number > limit:
                return offset
            if number != self._expected and not (offset == DATA_START and self._may_jump(header.number, number)):
                return offset
            self._blocks.append(found)
            self._expected = number + 1
            self._last_run = header.run
            offset += found.head.size
            self._ends[header.number] = offset

    def _may_jump(self, extent: int, number: int) -> bool:
        """Whether blocks before the first of an extent may be gone: extents before it were removed, and tables hold what they had."""
        before = [each.header.number for each in self._extents if each.header.number < extent]
        removed = not before or before[-1] + 1 < extent
        return removed and self._expected < number <= self._applied + 1

    def _block_at(self, extent: ExtentSource, offset: int) -> ReplayedBlock | None:
        """The block whose head and control part are whole; None where there is none."""
        try:
            head = decode_head(extent.read(offset, HEAD_SIZE), extent.seed)
            if head is None:
                return None
            control = extent.read(offset + HEAD_SIZE, head.control_length)
            return ReplayedBlock(extent.header.number, offset, head, decode_control(head, control, extent.seed))
        except BadBlockError:
            return None

    def _is_followed(self, extents: Sequence[ExtentSource]) -> bool:
        """Whether the next extent that holds something goes on where the last one ended."""
        for extent in extents:
            if extent.known is not None:
                return True
            found = self._block_at(extent, DATA_START)
            if found is not None and found.head.run == extent.header.run:
                number = found.head.number
                return number == self._expected or self._may_jump(extent.header.number, number)
        return False

    # ---- the end of the last run

    def _judge_end(self, extent: ExtentSource, offset: int, later: Sequence[ExtentSource]) -> None:
        """Whether what follows the last whole block says that something is missing there."""
        missing = self._expected or max(self._applied, extent.header.taken_block) + 1
        heads = list(self._heads_behind(extent, offset))
        for each in later:
            heads += self._heads_behind(each, DATA_START)
        heads = [head for head in heads if head.run == extent.header.run and head.number >= missing]
        self._torn = bool(heads)
        self._called_synced = max([head.synced for head in heads], default=0)
        for head in heads:
            if head.synced >= missing or (self._same_boot and head.number > missing):
                raise ReplayDamageError(
                    f"block {missing} was written before block {head.number}, which is there, "
                    f"{'and was durable' if head.synced >= missing else 'by a process that died alone'}, and cannot be read"
                )

    def _heads_behind(self, extent: ExtentSource, offset: int) -> Iterator[BlockHead]:
        """Every head in the rest of an extent, wherever it lies."""
        at = offset
        while True:
            piece = extent.read(at, _PIECE)
            if not piece:
                return
            found = piece.find(BLOCK_MAGIC)
            while found >= 0:
                if found % SECTOR == 0:
                    head = decode_head(piece[found : found + HEAD_SIZE], extent.seed)
                    if head is not None:
                        yield head
                found = piece.find(BLOCK_MAGIC, found + 1)
            at += len(piece)

    def _drop_unsynced(self, taken_from: int) -> None:
        """Of the blocks that nothing calls synced, only those up to the first that lacks bodies count."""
        blocks = self._blocks
        if not blocks:
            return
        durable = max(self._applied, self._called_synced, max(block.head.synced for block in blocks))
        sources = {extent.header.number: extent for extent in self._extents}
        for at in range(taken_from, len(blocks)):
            block = blocks[at]
            if block.head.number <= durable or self._has_bodies(sources[block.extent], block):
                continue
            if self._same_boot and at + 1 < len(blocks):
                continue  # the process wrote it whole: of the copies that do not match, reads will tell
            hit("extents_torn_bodies")
            for dropped in reversed(blocks[at:]):
                self._ends[dropped.extent] = dropped.offset
            del blocks[at:]
            self._expected = block.head.number
            self._last_run = blocks[-1].head.run if blocks else self._extents[-1].header.taken_run
            self._torn = True
            return

    @staticmethod
    def _has_bodies(extent: ExtentSource, block: ReplayedBlock) -> bool:
        data = extent.read(block.offset + block.head.bodies_at, block.head.bodies_length)
        return bodies_match(block.head, data, extent.seed)
