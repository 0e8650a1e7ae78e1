"""Arguments of the public interface: what is accepted, and an error that says so for everything else.

Every function raises LogDeviceError(INVALID_PARAM) with a text that names the argument, what was given and what would be right.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from client.settings import WriterSettings
from client.write.batching import COMPRESSIONS
from logdevice_py.core.declare import parse_setting, render_value
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, LSN_MAX
from logdevice_py.core.record_keys import KEY_BYTES_MAX
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.suggestion import nearest
from logdevice_py.core.units import Timestamp

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_MAX = 10 * 366 * 86400
_HOW_TO_GET_AN_LSN = 'LSN.OLDEST, LSN.parse("e3n17"), await client.tail_lsn(log), or await client.find_time(log, when) for a point in time'


def _refusal(text: str) -> LogDeviceError:
    return LogDeviceError(Status.INVALID_PARAM, text)


def _kind(value: Any) -> str:
    return type(value).__name__


def is_integer(value: Any) -> bool:
    """An int; True and False are not meant as numbers by anybody."""
    return isinstance(value, int) and not isinstance(value, bool)


def log_argument(log: Any) -> int | str:
    """A log: its id or its path. Whether there is such a log is not looked at."""
    if isinstance(log, str):
        return log
    if not is_integer(log):
        raise _refusal(f"a log is named by its id (an int) or its path (a str), not by {log!r}, a {_kind(log)}")
    if not 0 < log < 1 << 62:
        raise _refusal(f"{log} is no id of a log: ids are 1 to 2^62 - 1")
    return LogId(log)


def lsn_argument(name: str, value: Any) -> int:
    """An LSN, 0 to `LSN.MAX`."""
    if not is_integer(value):
        raise _refusal(f"{name} is {value!r}, a {_kind(value)}; it must be an LSN: {_HOW_TO_GET_AN_LSN}")
    if not 0 <= value <= LSN_MAX:
        raise _refusal(f"{name} is {int(value)}; LSNs are 0 to {int(LSN_MAX)} ({LSN.MAX}): {_HOW_TO_GET_AN_LSN}")
    return int(value)


def timeout_argument(seconds: Any) -> int | None:
    """Seconds as microseconds; None: the caller leaves it to the settings."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise _refusal(f"timeout is {seconds!r}, a {_kind(seconds)}; it must be a number of seconds, or None")
    if math.isnan(seconds) or not 0 < seconds <= _SECONDS_MAX:
        raise _refusal(f"timeout is {seconds}; it must be a number of seconds above 0, {_SECONDS_MAX} at most")
    return max(1, round(seconds * 1e6))


def flag_argument(name: str, value: Any) -> bool:
    """A choice. Only True and False name one: of what else is true or not, half would surprise."""
    if not isinstance(value, bool):
        raise _refusal(f"{name} is {value!r}, a {_kind(value)}; it must be True or False")
    return value


def atomic_argument(atomic: Any, expect: Any) -> bool:
    """Whether records are an atomic batch. Only of one can the predecessor be told: others may be spread over entries."""
    if not flag_argument("atomic", atomic) and expect is not None:
        raise _refusal("expect of many records goes with atomic=True: without it they need not follow each other")
    return bool(atomic)


def count_argument(name: str, value: Any) -> int:
    """A number of things, 1 at least."""
    if not is_integer(value) or value < 1:
        raise _refusal(f"{name} is {value!r}; it must be an integer, 1 at least")
    return int(value)


def time_argument(when: Any) -> Timestamp:
    """Microseconds since the Unix epoch of a point in time: of an aware datetime, or such a number itself."""
    if isinstance(when, datetime):
        if when.tzinfo is None or when.utcoffset() is None:
            raise _refusal(f"{when} has no time zone, so it names no point in time: give an aware datetime")
        return Timestamp((when - _UNIX_EPOCH) // timedelta(microseconds=1))
    if not is_integer(when):
        raise _refusal(
            f"{when!r} is a {_kind(when)}; give an aware datetime, or microseconds since the Unix epoch as an int"
        )
    return Timestamp(when)


def payload_argument(payload: Any, name: str = "a record") -> bytes:
    """The bytes of a record. What may change under our hands is copied."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    if isinstance(payload, str):
        raise _refusal(f"{name} must be bytes, and this is a str: encode it, like text.encode()")
    raise _refusal(f"{name} is bytes, bytearray or memoryview, not {_kind(payload)}")


def key_argument(key: Any, name: str = "a key") -> bytes:
    """The key of a record."""
    if isinstance(key, str):
        raise _refusal(f"{name} must be bytes, and this is a str: encode it, like text.encode()")
    if not isinstance(key, bytes | bytearray | memoryview):
        raise _refusal(f"{name} is bytes, bytearray or memoryview, not {_kind(key)}")
    if len(key) > KEY_BYTES_MAX:
        raise _refusal(f"{name} of {len(key)} bytes is too long; {KEY_BYTES_MAX} at most")
    return bytes(key)


def keys_argument(keys: Any, records: int) -> list[bytes | None] | None:
    """Keys of records, one each, None for one without."""
    if keys is None:
        return None
    if isinstance(keys, bytes | bytearray | memoryview | str) or not isinstance(keys, Iterable):
        raise _refusal(f"keys is {_kind(keys)}; it must be a list of keys, one for each record, None for one without")
    taken = [None if key is None else key_argument(key, f"key {index}") for index, key in enumerate(keys)]
    if len(taken) != records:
        raise _refusal(f"there are {len(taken)} keys for {records} records; give one for each, None for one without")
    return taken


def payloads_argument(payloads: Any) -> Sequence[bytes]:
    """Records: any iterable but one of the types of a single record."""
    if isinstance(payloads, bytes | bytearray | memoryview | str):
        raise _refusal(f"append_many takes many records, like a list of bytes; for one {_kind(payloads)} use append")
    if not isinstance(payloads, Iterable):
        raise _refusal(f"append_many takes records, like a list of bytes, not {_kind(payloads)}")
    return [payload_argument(payload, f"record {index}") for index, payload in enumerate(payloads)]


def check_reader_options(options: Collection[str], known: Collection[str]) -> None:
    """That a reader has all of these options."""
    for option in options:
        if option not in known:
            raise _no_option("a reader", option, known)


def _no_option(what: str, option: str, known: Collection[str]) -> LogDeviceError:
    close = nearest(option, known)
    meant = f"did you mean {close}? " if close else ""
    return _refusal(f"{what} has no option {option!r}; {meant}there are {', '.join(sorted(known))}")


def writer_options(section: dict[str, Any], options: dict[str, Any]) -> WriterSettings:
    """The settings of a BufferedWriter: the cluster file's (checked before), and the options of a call above them."""
    fields = WriterSettings.__dataclass_fields__
    chosen = {name: parse_setting(fields[name], value) for name, value in section.items()}
    for option, value in options.items():
        name = next(
            (name for name in (option, f"{option}_us", f"{option}_bytes", f"{option}_bytes_max") if name in fields),
            None,
        )
        if name is None:
            raise _no_option("a writer", option, fields)
        try:
            chosen[name] = (
                parse_setting(fields[name], value) if isinstance(value, str) else _number(fields[name], value)
            )
        except ValueError as error:
            raise _refusal(str(error)) from None
    if chosen.get("compression", "none") not in COMPRESSIONS:
        raise _compression(chosen["compression"])
    return WriterSettings(**chosen)


def _compression(value: Any) -> LogDeviceError:
    return _refusal(f"compression is {value!r}; it must be one of {', '.join(map(repr, sorted(COMPRESSIONS)))}")


def _number(field: Any, value: Any) -> Any:
    """An option given as a number, in the unit of its setting."""
    unit = field.metadata["unit"]
    if field.name == "compression":
        raise _compression(value)
    if not is_integer(value):
        written = {"us": ', or a string like "10ms"', "bytes": ', or a string like "64MiB"'}.get(unit, "")
        raise ValueError(f"{field.name} is {value!r}; it must be an integer{written}")
    lo, hi = field.metadata["lo"], field.metadata["hi"]
    if (lo is not None and value < lo) or (hi is not None and value > hi):
        bounds = [
            *([] if lo is None else [f"{render_value(unit, lo)} at least"]),
            *([] if hi is None else [f"{render_value(unit, hi)} at most"]),
        ]
        raise ValueError(f"{field.name} is {value}; it must be {', '.join(bounds)}")
    return value
