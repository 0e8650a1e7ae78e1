"""How copies of entries become rows: of large ones header and body lie apart, so that a scan over entries reads no body that nobody wants."""

from __future__ import annotations

from typing import Any

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from storage_node.log_store import keys
from storage_node.log_store.precedence import header_apart


def put_copy(group: Any, key: bytes, image: bytes, handle: Any, apart_bytes_min: int) -> None:
    """Put a copy; of an image of `apart_bytes_min` or more its header alone, and the image once more where bodies lie.

    The body's row is the whole image: neither writing nor reading takes images apart or puts them together, and the body names its header.
    """
    header = header_apart(image) if len(image) >= apart_bytes_min else None
    if header is None:
        group.put(key, image, handle)
    else:
        group.put(keys.body_key(key), image, handle)
        group.put(key, header, handle)


def delete_copies(group: Any, log: LogId, first: Lsn, last: Lsn, handle: Any) -> None:
    """Delete all copies of a range, with their bodies."""
    for begin, end in keys.copy_bounds(log, first, last):
        group.delete_range(begin, end, handle)
