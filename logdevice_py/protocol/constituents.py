"""What an APPEND frame becomes in its entry: the flags of the constituent, and what tells two frames with one number apart."""

from __future__ import annotations

from itertools import product
from typing import Final

from logdevice_py.core.entry import ConstituentFlags
from logdevice_py.protocol.messages import AppendFlags

_KEPT: Final = (
    (int(AppendFlags.BATCH), int(ConstituentFlags.BATCH)),
    (int(AppendFlags.WRITE_STREAM), int(ConstituentFlags.WRITE_STREAM)),
    (int(AppendFlags.KEYS), int(ConstituentFlags.KEYS)),
)
KEPT_FLAGS: Final = sum(asked for asked, _ in _KEPT)
"""The AppendFlags that a constituent keeps."""
CONSTITUENT_FLAGS: Final = {
    sum(asked for (asked, _), chosen in zip(_KEPT, choice, strict=True) if chosen): sum(
        kept for (_, kept), chosen in zip(_KEPT, choice, strict=True) if chosen
    )
    for choice in product((False, True), repeat=len(_KEPT))
}
"""ConstituentFlags by ``AppendFlags & KEPT_FLAGS``."""

ContentMark = tuple[int, int, int, int]
"""What is compared of two frames of a write stream that have the same number: checksum, length and number of records of the payload, and the
ConstituentFlags, without which the same bytes may be other records."""


def content_mark(flags: int, records: int, crc: int, payload: bytes) -> ContentMark:
    """Of a frame that is sent with these AppendFlags."""
    return crc, len(payload), records, CONSTITUENT_FLAGS[flags & KEPT_FLAGS]
