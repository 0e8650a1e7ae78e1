"""What a batch changes of a shard's metadata, row by row; the same for all stores."""

from __future__ import annotations

from collections.abc import Iterator

from storage_node.log_store import keys
from storage_node.log_store.contents import encode_drain, encode_whole_for
from storage_node.log_store.interface import WriteBatch


def metadata_rows(batch: WriteBatch) -> Iterator[tuple[bytes, bytes | None]]:
    """Keys, each with its new value; None: the row is deleted. What comes later holds."""
    for log, epoch, epoch_kind in batch.epoch_deletes:
        yield keys.epoch_metadata_key(log, epoch, epoch_kind), None
    for log, kind, value in batch.log_metadata:
        yield keys.log_metadata_key(log, kind), value
    for log, epoch, epoch_kind, value in batch.epoch_metadata:
        yield keys.epoch_metadata_key(log, epoch, epoch_kind), value
    if batch.marks_loss:
        yield keys.UNMARKED_KEY, None
    if batch.metadata_whole_for is not None:
        yield keys.WHOLE_FOR_KEY, encode_whole_for(batch.metadata_whole_for)
    if batch.drain is not None:
        yield keys.DRAIN_KEY, encode_drain(batch.drain)
