"""What readers of a log have in common, wherever its records come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from client.public_names import PublicNames
from client.read.batch import RecordBatch
from client.read.items import Item
from client.read.proof import Proof
from logdevice_py.core.lsn import LSN

_ITERATED_AT_ONCE: Final = 1000


class ItemReader(PublicNames, ABC):
    """Hands out records and gaps in order: by batches, or one by one to who iterates; and proves what it has handed out."""

    def __init__(self) -> None:
        self._items: Iterator[Item] = iter(())
        """Of the batch that is iterated over."""

    @abstractmethod
    async def read(self, max_records: int = 10_000) -> RecordBatch:
        """A batch; an empty one at the end."""

    @abstractmethod
    async def close(self) -> None:
        """Stop reading. Harmless when called again."""

    @abstractmethod
    def proof(self) -> Proof:
        """What was read so far. While iterating it may be ahead by up to the thousand records that are fetched at once."""

    @property
    def next_lsn(self) -> LSN:
        """Where to start another reader so that it goes on behind what this one has fetched."""
        return LSN(self.proof().last + 1)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        while True:
            for item in self._items:
                return item
            batch = await self.read(_ITERATED_AT_ONCE)
            if not batch:
                raise StopAsyncIteration
            self._items = iter(batch)
