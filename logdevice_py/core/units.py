"""Durations and sizes as people write them in TOML and on command lines, and time as machines carry it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NewType

Micros = NewType("Micros", int)
"""A point or span of the monotonic clock in microseconds. Machines get `now: Micros` with every event."""
Timestamp = NewType("Timestamp", int)
"""Microseconds since the Unix epoch, UTC."""

MILLISECOND: Final = 1_000
SECOND: Final = 1_000_000

_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DURATIONS: Final = {"us": 1, "ms": 1_000, "s": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND, "d": 86400 * SECOND}
_ALSO: Final = {"m": _DURATIONS["min"]}
"""What people write, too."""
_SIZES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


def utc_datetime(timestamp: int) -> datetime:
    """A timestamp as a datetime in UTC; exact, as floats are not involved."""
    return _UNIX_EPOCH + timedelta(microseconds=timestamp)


def _parse(text: str, units: dict[str, int], what: str, example: str, also: dict[str, int] | None = None) -> int:
    match = _QUANTITY.fullmatch(text)
    known = units | (also or {})
    if match is None or match[2] not in known:
        raise ValueError(f"{text!r} is no {what}: write it like {example}; units are {', '.join(units)}")
    if len(match[1]) > 19:
        raise ValueError(f"{text!r} is larger than anything that fits 64 bits")
    return round(float(match[1]) * known[match[2]]) if "." in match[1] else int(match[1]) * known[match[2]]


def parse_duration(text: str) -> Micros:
    """``10ms``, ``1.5s``, ``2h`` in microseconds; ValueError says what would be right."""
    return Micros(_parse(text, _DURATIONS, "duration", "10ms", _ALSO))


def parse_size(text: str) -> int:
    """``64MiB`` in bytes; ValueError says what would be right."""
    return _parse(text, _SIZES, "size", "64MiB")


def format_duration(micros: int) -> str:
    """The shortest exact form: ``10ms``; `parse_duration` reads it back."""
    return _format(micros, _DURATIONS)


def format_size(size: int) -> str:
    """The shortest exact form: ``64MiB``; `parse_size` reads it back."""
    return _format(size, _SIZES)


def _format(value: int, units: dict[str, int]) -> str:
    for unit, factor in reversed(units.items()):
        if value and value % factor == 0:
            return f"{value // factor}{unit}"
    return f"{value}{next(iter(units))}"
