"""Inputs that are made of pieces: ``u16 length`` and bytes, one after the other."""

from __future__ import annotations

from collections.abc import Iterator


def cut(data: bytes) -> Iterator[bytes]:
    """The pieces; the last one may be short."""
    at = 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2], "big")
        yield data[at + 2 : at + 2 + size]
        at += 2 + size


def piece(content: bytes) -> bytes:
    """One piece."""
    return len(content).to_bytes(2, "big") + content
