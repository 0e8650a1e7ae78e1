"""The attributes of a stream: what people write, what the namespace keeps, and what they mean."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from client.arguments import is_integer
from client.log_tree.commands import Attributes
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.suggestion import nearest
from logdevice_py.core.units import format_duration, format_size, parse_duration, parse_size
from streams.cold.store_url import store_url

_DURATION_MAX: Final = 1000 * 366 * 86_400_000_000


def _refusal(text: str) -> LogDeviceError:
    return LogDeviceError(Status.INVALID_PARAM, text)


def duration_argument(name: str, value: Any) -> int:
    """Microseconds of ``"10ms"``, a timedelta, or a number of seconds; above 0.

    Raises:
        LogDeviceError: INVALID_PARAM.
    """
    try:
        if isinstance(value, str):
            micros: int = parse_duration(value)
        elif isinstance(value, timedelta):
            micros = value // timedelta(microseconds=1)
        elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _DURATION_MAX:
            micros = round(value * 1e6)
        else:
            raise _refusal(f'{name} is {value!r}; it must be a duration like "10s", a timedelta or a number of seconds')
    except ValueError as error:
        raise _refusal(f"{name}: {error}") from None
    if not 0 < micros <= _DURATION_MAX:
        raise _refusal(f"{name} is {value!r}; it must be above 0, and a thousand years at most")
    return micros


def size_argument(name: str, value: Any) -> int:
    """Bytes of ``"64KiB"`` or a number; 1 at least.

    Raises:
        LogDeviceError: INVALID_PARAM.
    """
    try:
        size = parse_size(value) if isinstance(value, str) else value
    except ValueError as error:
        raise _refusal(f"{name}: {error}") from None
    if not is_integer(size) or not 1 <= size < 1 << 62:
        raise _refusal(f'{name} is {value!r}; it must be a size like "64KiB", or a number of bytes, 1 at least')
    return int(size)


_FOR_JANITOR: Final = ("ttl", "truncated_retention", "cold", "cold_ttl")


@dataclass(frozen=True, slots=True)
class Flush:
    """When a writer sends what it has: whichever comes first. Nothing given: as soon as the log has nothing under way, within 10 ms."""

    bytes: str | int | None = None
    """Records together reach this size."""
    every: str | float | timedelta | None = None
    """A record has waited so long; a duration like ``"10ms"``, or seconds."""

    def options(self) -> dict[str, int]:
        """As a BufferedWriter takes them.

        Raises:
            LogDeviceError: INVALID_PARAM.
        """
        found = {}
        if self.bytes is not None:
            found["size_trigger_bytes"] = size_argument("bytes of Flush", self.bytes)
        if self.every is not None:
            found["time_trigger_us"] = duration_argument("every of Flush", self.every)
        return found


@dataclass(frozen=True, slots=True)
class Roll:
    """When a stream begins another segment: whichever comes first."""

    every: str | float | timedelta | None = None
    """Its age."""
    bytes: str | int | None = None
    """Its size."""


class TransactionIds(enum.Enum):
    """Who numbers the records of a stream."""

    WRITER = "writer"  # each record gets a number from its writer, not below any before
    TIME = "time"  # the time at which the record was sequenced, in microseconds


class StreamWriters(enum.Enum):
    """Who writes a stream."""

    SHARED = "shared"  # any number of writers at a time
    EXCLUSIVE = "exclusive"  # one owner at a time, shown by its fence token


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAttributes:
    """What holds for a stream. Durations are microseconds, sizes bytes; None: no limit."""

    txid: TransactionIds = TransactionIds.TIME
    writers: StreamWriters = StreamWriters.SHARED
    ttl_us: int | None = None
    """How long a segment is kept after its completion."""
    truncated_retention_us: int | None = None
    """How long truncated records are kept before they are trimmed; None: until they are older than `ttl_us`."""
    roll_every_us: int | None = None
    roll_bytes: int | None = None
    cold: str | None = None
    """Where segments are copied to: a URL."""
    cold_ttl_us: int | None = None
    """How long cold copies are kept."""

    @classmethod
    def of(
        cls,
        *,
        txid: Any = TransactionIds.TIME,
        writers: Any = StreamWriters.SHARED,
        ttl: Any = None,
        truncated_retention: Any = None,
        roll: Any = None,
        cold: Any = None,
        cold_ttl: Any = None,
    ) -> StreamAttributes:
        """From arguments as people write them.

        Raises:
            LogDeviceError: INVALID_PARAM.
        """
        if roll is not None and not isinstance(roll, Roll):
            raise _refusal(f'roll is {roll!r}; it must be a Roll, like Roll(every="2h", bytes="256MiB")')
        if cold is not None and (not isinstance(cold, str) or "://" not in cold):
            raise _refusal(f'cold is {cold!r}; it must be a URL, like "file:///cold"')
        if cold is not None:
            store_url(cold)
        if cold_ttl is not None and cold is None:
            raise _refusal("cold_ttl is given without cold: there are no copies to be deleted")

        def duration(name: str, value: Any) -> int | None:
            return None if value is None else duration_argument(name, value)

        return cls(
            txid=_choice("txid", TransactionIds, txid),
            writers=_choice("writers", StreamWriters, writers),
            ttl_us=duration("ttl", ttl),
            truncated_retention_us=duration("truncated_retention", truncated_retention),
            roll_every_us=None if roll is None else duration("roll.every", roll.every),
            roll_bytes=None if roll is None or roll.bytes is None else size_argument("roll.bytes", roll.bytes),
            cold=cold,
            cold_ttl_us=duration("cold_ttl", cold_ttl),
        )

    def mapping(self) -> Attributes:
        """As a namespace keeps them: what is not the default."""
        found: dict[str, str | int | bool] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and value != _DEFAULTS[name]:
                found[name] = value.value if isinstance(value, enum.Enum) else value
        return found

    def own_log_attributes(self) -> dict[str, str | bool]:
        """What its log is made with, so that segments end as `roll` says, and times as transaction ids never fall."""
        found: dict[str, str | bool] = {}
        if self.txid is TransactionIds.TIME:
            found["ordered_time"] = True
        if self.roll_every_us is not None:
            found["roll_every"] = f"{self.roll_every_us}us"
        if self.roll_bytes is not None:
            found["roll_bytes"] = f"{self.roll_bytes}B"
        return found

    @classmethod
    def from_mapping(cls, attributes: Mapping[str, Any]) -> StreamAttributes:
        """From what a namespace keeps, whoever wrote it: what this version does not understand does not hold here."""
        found = dict(_DEFAULTS)
        for name, value in attributes.items():
            default = _DEFAULTS.get(name)
            if isinstance(default, enum.Enum):
                found[name] = next((each for each in type(default) if each.value == value), default)
            elif name in _DEFAULTS and (type(value) is str if name == "cold" else is_integer(value)):
                found[name] = value
        return cls(**found)

    def shown(self) -> dict[str, str]:
        """For people: those that are set, by the names of the arguments."""
        found = {"txid": self.txid.value, "writers": self.writers.value}
        durations = {
            "ttl": self.ttl_us,
            "truncated_retention": self.truncated_retention_us,
            "roll_every": self.roll_every_us,
            "cold_ttl": self.cold_ttl_us,
        }
        found |= {name: format_duration(value) for name, value in durations.items() if value is not None}
        if self.roll_bytes is not None:
            found["roll_bytes"] = format_size(self.roll_bytes)
        if self.cold is not None:
            found["cold"] = self.cold
        return found

    @property
    def for_janitor(self) -> dict[str, str]:
        """Those that are set and do nothing by themselves, as `shown`."""
        return {name: value for name, value in self.shown().items() if name in _FOR_JANITOR}


_DEFAULTS: Final[dict[str, Any]] = {
    name: getattr(StreamAttributes(), name) for name in StreamAttributes.__dataclass_fields__
}


def _choice(name: str, kind: type[enum.Enum], value: Any) -> Any:
    if isinstance(value, kind):
        return value
    known = [each.value for each in kind]
    if isinstance(value, str) and value in known:
        return kind(value)
    close = nearest(str(value), known)
    meant = f"; did you mean {close!r}?" if close else ""
    raise _refusal(f"{name} is {value!r}; it must be one of {', '.join(map(repr, known))}{meant}")
