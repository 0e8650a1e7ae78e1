"""What is written exactly once, and the ids of its write streams.

Every try of a task must find the stream, on whatever machine and after whatever restart, so the id follows from names: the id of the query, which
Spark draws at random and keeps in the checkpoint, or the `jobId`. Ids stand in records, and whoever knows the id of a stream that is still to come can write
there first. So the names themselves are secret as far as logs go: an id is 8 bytes that follow from the name, micro-batch and partition, then the two numbers. From
the ids of some tasks nobody can tell those of others, unless the name can be guessed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.ids import WriterId

_TAG_BYTES: Final = 8
_KEY_BYTES: Final = 32
_COUNT_MAX: Final = 1 << 32
_FORMER_PARTITIONS_MAX: Final = 1 << 20
"""The ids of earlier versions are believed up to this partition: anybody can make them."""


@dataclass(frozen=True, slots=True)
class WriteName:
    """What one task appends to any log, whoever tries it: the rows of a partition in a micro-batch of a query, or in a job."""

    key: bytes
    """Follows from the query or job, and stands nowhere."""
    former: bytes
    """How all ids of the query or job began in earlier versions."""
    batch: int
    """Of a query: its micro-batches come one after the other. Of a job: 0."""
    partition: int

    @classmethod
    def of_query(cls, query: str, batch: int, partition: int) -> WriteName:
        """A task of a streaming query."""
        return cls._of(f"query {query}", batch, partition)

    @classmethod
    def of_job(cls, job: str, partition: int) -> WriteName:
        """A task of a batch write."""
        return cls._of(f"job {job}", 0, partition)

    @classmethod
    def _of(cls, text: str, batch: int, partition: int) -> WriteName:
        return cls(_digest(text, _KEY_BYTES), _digest(text, _TAG_BYTES), batch, partition)

    @property
    def writer(self) -> WriterId:
        """Of its write stream in every log."""
        return WriterId(self._tag(self._numbers) + self._numbers)

    @property
    def _numbers(self) -> bytes:
        assert 0 <= self.batch < _COUNT_MAX, self.batch
        assert 0 <= self.partition < _COUNT_MAX, self.partition
        return self.batch.to_bytes(4, "big") + self.partition.to_bytes(4, "big")

    def _tag(self, numbers: bytes) -> bytes:
        return hashlib.blake2b(numbers, key=self.key, digest_size=_TAG_BYTES).digest()

    def is_own(self, writer: WriterId) -> bool:
        """Whether it is the write stream of this task, as this version or an earlier one names it."""
        return writer in (self.writer, self.former + self._numbers)

    def is_sibling(self, writer: WriterId) -> bool:
        """Whether a write stream is of the same query or job."""
        return self._numbers_of(writer) is not None

    def partition_of(self, writer: WriterId) -> int | None:
        """The partition whose write stream it is, of the same micro-batch or job; None: it is of no such partition."""
        numbers = self._numbers_of(writer)
        return None if numbers is None or numbers[0] != self.batch else numbers[1]

    def is_of_earlier_batch(self, writer: WriterId) -> bool:
        """Whether a write stream is of a micro-batch of the same query before this one: it was complete before this one began."""
        numbers = self._numbers_of(writer)
        return numbers is not None and numbers[0] < self.batch

    def _numbers_of(self, writer: WriterId) -> tuple[int, int] | None:
        """Micro-batch and partition; None: it is not of this query or job."""
        tag, numbers = writer[:_TAG_BYTES], writer[_TAG_BYTES:]
        batch, partition = int.from_bytes(numbers[:4], "big"), int.from_bytes(numbers[4:], "big")
        if tag == self.former:
            return (batch, partition) if partition < _FORMER_PARTITIONS_MAX else None
        return (batch, partition) if tag == self._tag(numbers) else None


def _digest(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=size).digest()
