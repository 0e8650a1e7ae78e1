"""Which raw log a modification goes to."""

from __future__ import annotations

from collections.abc import Sequence

from google_crc32c import value as crc32c

from logdevice_py.placement.hashing import mix64


def raw_log_of(index: str, docid: str, logs: Sequence[int]) -> int:
    """One of the raw logs of a generation: for a document always the same, whoever asks. A change of this function would need a new generation."""
    return logs[mix64(crc32c(f"{index}\0{docid}".encode())) % len(logs)]
