"""Log sequence numbers.

An LSN is ``epoch << 32 | ESN``. Epochs stay below 2^31, so every LSN fits a signed 64-bit integer (SQLite, Arrow, Spark).
ESNs start at 1; ``eNn0`` names the position before the first entry of epoch N.

Machines use the bare NewTypes `Lsn`, `Epoch` and `Esn` (plain ints, no cost); `LSN` is the int subclass that applications see.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final, NewType

Lsn = NewType("Lsn", int)
"""A position in a log: ``epoch << 32 | esn``."""
Epoch = NewType("Epoch", int)
"""One activation of a log's sequencer: 1 to 2^31 - 2. 0 means "none"."""
Esn = NewType("Esn", int)
"""A position within an epoch: 1 to 2^32 - 1. 0 means "before the first"."""

EPOCH_INVALID: Final = Epoch(0)
EPOCH_MIN: Final = Epoch(1)
EPOCH_MAX: Final = Epoch(2**31 - 1)
"""Never given to a sequencer: activation answers TOOBIG."""
ESN_INVALID: Final = Esn(0)
ESN_MIN: Final = Esn(1)
ESN_MAX: Final = Esn(2**32 - 1)
LSN_INVALID: Final = Lsn(0)
LSN_OLDEST: Final = Lsn(1)
"""Smaller than every position that holds an entry; reading from here starts at the oldest."""
LSN_MAX: Final = Lsn((EPOCH_MAX << 32) | ESN_MAX)
"""Greater than every position that can hold an entry; its epoch is never used."""


def compose_lsn(epoch: int, esn: int) -> Lsn:
    """The LSN of an epoch and an ESN."""
    return Lsn(epoch << 32 | esn)


def epoch_of(lsn: int) -> Epoch:
    """The epoch of an LSN."""
    return Epoch(lsn >> 32)


def esn_of(lsn: int) -> Esn:
    """The ESN of an LSN."""
    return Esn(lsn & 0xFFFFFFFF)


def format_lsn(lsn: int) -> str:
    """``e3n17``, as people and tools write it."""
    return f"e{lsn >> 32}n{lsn & 0xFFFFFFFF}"


_TEXT = re.compile(r"e(\d{1,10})n(\d{1,10})")


class LSN(int):
    """A position in a log, as applications see it: an int that prints as ``e3n17`` and knows its epoch and ESN."""

    OLDEST: ClassVar[LSN]
    MAX: ClassVar[LSN]

    @property
    def epoch(self) -> int:
        """Which activation of the sequencer gave it."""
        return self >> 32

    @property
    def esn(self) -> int:
        """Its number within the epoch, from 1."""
        return self & 0xFFFFFFFF

    def __str__(self) -> str:
        return format_lsn(self)

    __repr__ = __str__

    @classmethod
    def parse(cls, text: str) -> LSN:
        """From ``e3n17`` or a decimal integer.

        Raises:
            ValueError: the text is neither, or lies outside the range of LSNs.
        """
        match = _TEXT.fullmatch(text.strip())
        if match is not None:
            epoch, esn = int(match[1]), int(match[2])
            if epoch > EPOCH_MAX or esn > ESN_MAX:
                raise ValueError(f"{text!r} is out of range: epochs end at {EPOCH_MAX}, ESNs at {ESN_MAX}")
            return cls(epoch << 32 | esn)
        if not re.fullmatch(r"\d+", text.strip()):
            raise ValueError(f"{text!r} is no LSN: write it like e3n17, or as an integer")
        value = int(text)
        if value > LSN_MAX:
            raise ValueError(f"{text!r} is out of range: the largest LSN is {int(LSN_MAX)}")
        return cls(value)


LSN.OLDEST = LSN(LSN_OLDEST)
LSN.MAX = LSN(LSN_MAX)
