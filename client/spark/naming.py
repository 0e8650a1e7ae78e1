"""What is written exactly once, and the names of its write streams."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.ids import WriterId

_KIND_BYTES: Final = 8
_COUNT_MAX: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class WriteName:
    """What one task appends to any log, whoever tries it: the rows of a partition in a micro-batch of a query, or in a job."""

    work: bytes
    """Of the query or job."""
    batch: int
    """Of a query: its micro-batches come one after the other. Of a job: 0."""
    partition: int

    @classmethod
    def of_query(cls, query: str, batch: int, partition: int) -> WriteName:
        """A task of a streaming query."""
        return cls(_digest(f"query {query}"), batch, partition)

    @classmethod
    def of_job(cls, job: str, partition: int) -> WriteName:
        """A task of a batch write."""
        return cls(_digest(f"job {job}"), 0, partition)

    @property
    def writer(self) -> WriterId:
        """Of its write stream in every log."""
        assert 0 <= self.batch < _COUNT_MAX, self.batch
        assert 0 <= self.partition < _COUNT_MAX, self.partition
        return WriterId(self.work + self.batch.to_bytes(4, "big") + self.partition.to_bytes(4, "big"))

    def is_sibling(self, writer: WriterId) -> bool:
        """Whether a write stream is of the same query or job."""
        return writer[:_KIND_BYTES] == self.work

    def partition_of(self, writer: WriterId) -> int | None:
        """The partition whose write stream it is, of the same micro-batch or job; None: it is of no such partition."""
        at = _KIND_BYTES + 4
        return int.from_bytes(writer[at:], "big") if writer[:at] == self.writer[:at] else None

    def is_of_earlier_batch(self, writer: WriterId) -> bool:
        """Whether a sibling is of a micro-batch before this one: it was complete before this one began."""
        return int.from_bytes(writer[_KIND_BYTES : _KIND_BYTES + 4], "big") < self.batch


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_KIND_BYTES).digest()
