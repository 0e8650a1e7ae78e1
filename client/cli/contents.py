"""What records hold, whatever their log and positions are: tells whether one log is a copy of another."""

from __future__ import annotations

import hashlib

from client.read.batch import RecordBatch


class ContentDigest:
    """The SHA-256 of keys and payloads in order: before each of them its length, which tells it from its neighbours."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, batch: RecordBatch) -> None:
        """Take the records of a batch; where they are corrupt, the fact."""
        parts: list[bytes] = []
        for key, payload in zip(batch.keys, batch.payloads, strict=True):
            if key is not None:
                parts += (b"k%d:" % len(key), key)
            parts += (b"corrupt;",) if payload is None else (b"p%d:" % len(payload), payload)
        self._hash.update(b"".join(parts))

    def digest(self) -> str:
        """In hexadecimal."""
        return self._hash.hexdigest()
