"""The configuration that an epoch store keeps: the text in force, as of a cluster file, and the versions before it with who changed it, when and why."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import msgpack

from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import Timestamp

VERSIONS_MAX: Final = 20
"""How many versions are kept, the one in force among them."""
ENCODED_MAX: Final = 512 << 10
"""Bytes that all of it takes in its cell; ZooKeeper takes 1 MiB."""
TEXT_MAX: Final = 1 << 20
"""Characters of a text."""
SAID_MAX: Final = 500
"""Characters of who changed it, and of why."""
_FORMAT: Final = 1
_LEVEL: Final = 3
"""Of compression: versions resemble each other, so more of it gains little."""
_TEXTS_MAX: Final = 4 * TEXT_MAX
"""Bytes of all texts together: what a few bytes could grow to when they are read."""
_VERSION_MAX: Final = 2**63 - 1
_VERSION_LINE: Final = re.compile(r"^version[ \t]*=[ \t]*\d+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ConfigurationVersion:
    """One version of a configuration."""

    version: int
    when: Timestamp
    who: str
    why: str
    text: str
    """As of a cluster file, with its version in it."""


@dataclass(frozen=True, slots=True)
class StoredConfiguration:
    """What the cell holds."""

    versions: tuple[ConfigurationVersion, ...]
    """The oldest first; the last one is in force. There is one at least."""

    @property
    def current(self) -> ConfigurationVersion:
        """The version in force."""
        return self.versions[-1]

    @property
    def version(self) -> int:
        """Of the one in force."""
        return self.current.version

    def find(self, version: int) -> ConfigurationVersion | None:
        """A version that is kept."""
        return next((each for each in self.versions if each.version == version), None)

    def encode(self) -> bytes:
        """The payload of the cell."""
        rows = [[each.version, each.when, each.who, each.why] for each in self.versions]
        texts = zlib.compress(msgpack.packb([each.text for each in self.versions]), _LEVEL)
        encoded: bytes = msgpack.packb([_FORMAT, rows, texts])
        return encoded

    @classmethod
    def decode(cls, encoded: bytes) -> StoredConfiguration:
        """From the payload of its cell; CorruptEntryError when it is none."""
        fields = _unpack(encoded, ENCODED_MAX)
        if len(fields) < 3 or fields[0] != _FORMAT or type(fields[1]) is not list or type(fields[2]) is not bytes:
            raise CorruptEntryError("this is no configuration, or one of a later version")
        texts = _unpack(inflated(fields[2], _TEXTS_MAX), _TEXTS_MAX)
        if not 1 <= len(texts) <= VERSIONS_MAX or len(fields[1]) != len(texts):
            raise CorruptEntryError("its versions are not readable")
        versions = tuple(_version(row, text) for row, text in zip(fields[1], texts, strict=True))
        if any(later.version <= earlier.version for earlier, later in pairwise(versions)):
            raise CorruptEntryError("its versions do not ascend")
        return cls(versions)


def inflated(packed: bytes, size_max: int) -> bytes:
    """What was compressed by zlib; CorruptEntryError when it is something else, cut off, or larger than `size_max` bytes."""
    inflate = zlib.decompressobj()
    try:
        found = inflate.decompress(packed, size_max)
    except zlib.error as error:
        raise CorruptEntryError(f"not readable: {error}") from None
    if not inflate.eof:
        raise CorruptEntryError("cut off, or too large")
    return found


def followed_by(stored: StoredConfiguration | None, change: ConfigurationVersion) -> StoredConfiguration | None:
    """What is stored after a change; versions that have no room go, the oldest first. None: the text alone is too large."""
    versions = (*(() if stored is None else stored.versions), change)[-VERSIONS_MAX:]
    if len(change.text) > TEXT_MAX:
        return None
    while versions:
        found = StoredConfiguration(versions)
        if sum(len(each.text.encode()) + 8 for each in versions) <= _TEXTS_MAX and len(found.encode()) <= ENCODED_MAX:
            return found
        versions = versions[1:]
    return None


@dataclass(frozen=True, slots=True)
class ToNextConfiguration:
    """Store the next version, unless somebody else changed the configuration since.

    Refusals: STALE: a later version than `base` is stored; TOOBIG.
    """

    base: int
    """The version that the text was made from: the greatest of those that are stored and in force."""
    change: ConfigurationVersion
    """Of version `base` + 1."""

    def __post_init__(self) -> None:
        assert self.change.version == self.base + 1, (self.base, self.change.version)

    def __call__(self, stored: StoredConfiguration | None) -> StoredConfiguration | Status:
        if stored is not None and stored.version > self.base:
            return Status.STALE
        return followed_by(stored, self.change) or Status.TOOBIG


def with_version(text: str, version: int) -> str:
    """The text with another version in it; whoever uses it checks by reading that it says nothing else: `version` may be written otherwise, or stand in a text
    of several lines."""
    return _VERSION_LINE.sub(f"version = {version}", text, count=1)


def _version(row: Any, text: Any) -> ConfigurationVersion:
    kinds = [type(each) for each in row[:4]] if type(row) is list else []
    if kinds != [int, int, str, str] or type(text) is not str or len(text) > TEXT_MAX:
        raise CorruptEntryError("one of its versions is not readable")
    version, when, who, why = row[:4]
    if not 1 <= version <= _VERSION_MAX or abs(when) > _VERSION_MAX:
        raise CorruptEntryError("one of its versions is out of range")
    return ConfigurationVersion(version, Timestamp(when), who, why, text)


def _unpack(encoded: bytes, size_max: int) -> list[Any]:
    if len(encoded) > size_max:
        raise CorruptEntryError(f"{len(encoded)} bytes are over the limit of {size_max}")
    try:
        fields = msgpack.unpackb(encoded, max_array_len=64, max_map_len=0, max_ext_len=0)
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        raise CorruptEntryError(f"not readable: {error}") from None
    if type(fields) is not list:
        raise CorruptEntryError("not readable: no array")
    return fields
