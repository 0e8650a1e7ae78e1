"""Extensions of entry headers: what an entry says beside what every entry says.

Extensions follow each other: ``u8 kind, u8 length, the bytes``. Kinds are never reused. Who does not know a kind passes over it when it is below
`MUST_BE_KNOWN`, and does not read the body otherwise: a later version may store bodies that look like others.

==== ============================================================================================
kind
==== ============================================================================================
1    tail state: ``u64 greatest transaction id, u64 fence token, u8 TailFlags``, behind this entry
2    conditional append: ``u64 its id, u64 LSN, u32 batch offset`` of the record that it expected before it
3    `EpochCounts`: what its epoch has up to and with this entry
4    `EpochSummary`, of bridges: what the epoch holds
==== ============================================================================================

The principal of a write stream gets a kind of its own. A batch that a client encrypted names its key itself: `logdevice_py.core.sealed_batch`.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.epoch_summary import EpochCounts, EpochSummary
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.status import CorruptEntryError

MUST_BE_KNOWN: Final = 128
NUMBER_MAX: Final = 2**63 - 1
"""The greatest transaction id, fence token and id of a conditional append."""
_TAIL_STATE: Final = 1
_CONDITION: Final = 2
_COUNTS: Final = 3
_SUMMARY: Final = 4
_HEAD: Final = struct.Struct(">BB")
_TAIL_FIELDS: Final = struct.Struct(">QQB")
_CONDITION_FIELDS: Final = struct.Struct(">QQI")


class TailFlags(enum.IntFlag):
    """Flags of a tail state. Values are on disk: never reused."""

    NONE = 0
    ENDED = 1  # nothing follows
    LOST = 2  # entries behind the last readable one were lost: token and id are lower bounds


_ENDED: Final = int(TailFlags.ENDED)
_LOST: Final = int(TailFlags.LOST)


@dataclass(frozen=True, slots=True)
class TailState:
    """What the end of a guarded log asks of the appends that follow."""

    transaction: int = 0
    """The greatest transaction id; 0: none."""
    fence: int = 0
    """The fence token; 0: the log has no fence."""
    flags: int = 0

    @property
    def ended(self) -> bool:
        """Nothing follows."""
        return bool(self.flags & _ENDED)

    @property
    def lost(self) -> bool:
        """What was behind the last readable entry is not known."""
        return bool(self.flags & _LOST)


NO_TAIL_STATE: Final = TailState()
"""Of a log without records, and of one that nobody guarded yet."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What a conditional append was acknowledged for."""

    id: int
    """By which a repetition is known."""
    lsn: Lsn = LSN_INVALID
    """Of the record before it; 0: there was none."""
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Extensions:
    """What the extensions of an entry say."""

    tail: TailState | None = None
    condition: Condition | None = None
    counts: EpochCounts | None = None
    summary: EpochSummary | None = None
    readable: bool = True
    """The body may be read: nothing is unknown that must be known."""


NO_EXTENSIONS: Final = Extensions()


def encode_extensions(tail: TailState, condition: Condition | None = None) -> bytes:
    """The extensions of an entry of a guarded log."""
    encoded = _HEAD.pack(_TAIL_STATE, _TAIL_FIELDS.size) + _TAIL_FIELDS.pack(tail.transaction, tail.fence, tail.flags)
    if condition is None:
        return encoded
    fields = _CONDITION_FIELDS.pack(condition.id, condition.lsn, condition.offset)
    return encoded + _HEAD.pack(_CONDITION, _CONDITION_FIELDS.size) + fields


def encode_counts(counts: EpochCounts) -> bytes:
    """The extension of an entry of a counted epoch."""
    encoded = counts.encode()
    return _HEAD.pack(_COUNTS, len(encoded)) + encoded


def encode_summary(summary: EpochSummary) -> bytes:
    """The extension of a bridge."""
    encoded = summary.encode()
    return _HEAD.pack(_SUMMARY, len(encoded)) + encoded


def parse_extensions(encoded: bytes) -> Extensions:
    """What the extensions of a sound header say. A kind may grow at its end.

    Raises:
        CorruptEntryError: they are cut off.
    """
    if not encoded:
        return NO_EXTENSIONS
    tail = condition = counts = summary = None
    readable, at = True, 0
    try:
        while at < len(encoded):
            kind, length = _HEAD.unpack_from(encoded, at)
            at += _HEAD.size
            content = encoded[at : at + length]
            if len(content) != length:
                raise CorruptEntryError(f"extension {kind} has {len(content)} of {length} bytes")
            at += length
            if kind == _TAIL_STATE:
                tail = TailState(*_TAIL_FIELDS.unpack_from(content))
            elif kind == _CONDITION:
                number, lsn, offset = _CONDITION_FIELDS.unpack_from(content)
                condition = Condition(number, Lsn(lsn), offset)
            elif kind == _COUNTS:
                counts = EpochCounts.decode(content)
            elif kind == _SUMMARY:
                summary = EpochSummary.decode(content)
            elif kind >= MUST_BE_KNOWN:
                readable = False
    except struct.error:
        raise CorruptEntryError("an extension is shorter than what it holds") from None
    return Extensions(tail, condition, counts, summary, readable)
