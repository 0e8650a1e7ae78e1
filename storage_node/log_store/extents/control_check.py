"""Control parts that the next opening would have to read are compared with their checksums now and then. While the store is open, memory has what they say:
where one is damaged the head is closed, and tables are made of what memory has. Then nobody needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from storage_node.log_store.extents.block_format import (
    DATA_START,
    HEAD_SIZE,
    BadBlockError,
    decode_control,
    decode_head,
    seed_of,
)
from storage_node.log_store.extents.chain import Chain, ChainExtent
from storage_node.log_store.extents.disk import DiskError
from storage_node.log_store.extents.held_extents import HeldExtent, HeldExtents
from storage_node.log_store.settings import LogStoreSettings


class ControlCheck:
    """Of one store. Calls of the store's thread, but for what is returned to be done in another one."""

    def __init__(
        self, settings: LogStoreSettings, chain: Chain, extents: HeldExtents, commit: Callable[[], Status]
    ) -> None:
        self.found = 0
        """How often something was damaged."""
        self._chain = chain
        self._extents = extents
        self._commit = commit
        self._every = max(1, settings.file_check_interval_us // settings.upkeep_interval_us)
        self._round = 0
        self._waiting: list[HeldExtent] = []

    def begin_round(self) -> None:
        """To be called with each round of upkeep."""
        self._round += 1
        if self._round % self._every == 0:
            self._waiting = [held for held in self._extents.held.values() if self._is_needed(held)]

    def _is_needed(self, held: HeldExtent) -> bool:
        return not held.moved and (not held.indexed or held.extent.last > self._extents.long_lived.applied)

    def next_work(self) -> Callable[[], Callable[[], None]] | None:
        """The next extent to look at."""
        while self._waiting:
            held = self._waiting.pop()
            if self._is_needed(held):
                extent = held.extent
                # what is being written now is looked at the next time
                return partial(self._look, extent, extent.end, min(extent.last, self._chain.synced))
        return None

    def _look(self, extent: ChainExtent, end: int, last: int) -> Callable[[], None]:
        """In another thread."""
        offset, seed = DATA_START, seed_of(extent.salt)
        try:
            while offset < end:
                head = decode_head(extent.file.read(offset, HEAD_SIZE), seed)
                if head is None:
                    raise BadBlockError(f"{extent.file.name} has no block at {offset}")
                if head.number > last:
                    break
                decode_control(head, extent.file.read(offset + HEAD_SIZE, head.control_length), seed)
                offset += head.size
        except (BadBlockError, DiskError):
            return partial(self._replace, extent)
        return _nothing

    def _replace(self, extent: ChainExtent) -> None:
        held = self._extents.held.get(extent.number)
        if held is None or not self._is_needed(held):
            return
        hit("extents_control_damaged")
        self.found += 1
        self._waiting.clear()
        if extent is self._chain.head:
            self._chain.close_head()
            self._commit()
        self._extents.since_checkpoint = 1 << 62


def _nothing() -> None: ...
