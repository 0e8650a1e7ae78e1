"""Rows on their way into one log."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

_KEYED = b"keyed"


def digest(payload: bytes, key: bytes | None = None) -> bytes:
    """What stands for a record when rows are compared with it. An empty key is not the same as none."""
    if key is None:
        return hashlib.blake2b(payload, digest_size=16).digest()
    # the key's length keeps its end apart from the payload's beginning
    return hashlib.blake2b(len(key).to_bytes(4, "big") + key + payload, digest_size=16, person=_KEYED).digest()


@dataclass(slots=True)
class Rows:
    """What becomes records, in order."""

    payloads: list[bytes]
    keys: list[bytes | None] | None = None
    """One for each row; None: none has one."""

    def __len__(self) -> int:
        return len(self.payloads)

    def add(self, other: Rows) -> None:
        """Append others."""
        if self.keys is None and other.keys is not None:
            self.keys = [None] * len(self)
        if self.keys is not None:
            self.keys.extend(repeat(None, len(other)) if other.keys is None else other.keys)
        self.payloads.extend(other.payloads)

    def digests(self) -> list[bytes]:
        """What stands for each of them."""
        if self.keys is None:
            return list(map(digest, self.payloads))
        return list(map(digest, self.payloads, self.keys))

    def chosen(self, indices: Sequence[int]) -> Rows:
        """Some of them."""
        keys = None if self.keys is None else [self.keys[index] for index in indices]
        return Rows([self.payloads[index] for index in indices], keys)
