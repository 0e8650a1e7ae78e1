"""Images that were written a moment ago are in memory, within limits."""

from __future__ import annotations

import tracemalloc

from storage_node.log_store.extents.reading import Images
from storage_node.log_store.extents.rows import CopyRow

BLOCKS = 60_000


def test_small_images_take_no_more_memory_than_large_ones() -> None:
    images = Images()
    tracemalloc.start()
    try:
        for block in range(BLOCKS):
            images.note(block, 1, block * 100, [block.to_bytes(100)])
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 16 << 20
    last = CopyRow(BLOCKS - 1, 1_000_000, 1, (BLOCKS - 1) * 100, 100, None)
    assert images.fetch(last) == (BLOCKS - 1).to_bytes(100)
    assert images.fetch(last._replace(block=0, offset=0)) is None
