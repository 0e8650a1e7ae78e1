"""Reading TOML tables so that every error names its key, what was found, what is allowed, and the key that was probably meant."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.suggestion import suggestion

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_TYPES = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    list: "an array",
    dict: "a table",
}


def invalid(where: str, what: str) -> LogDeviceError:
    """The error of a cluster file: where, then what is wrong and what would be right."""
    return LogDeviceError(Status.INVALID_CONFIG, f"{where}: {what}")


def quote(text: str) -> str:
    """A TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def key_path(parent: str, key: str) -> str:
    """The dotted path of a key, quoted where TOML wants it."""
    name = key if _BARE.fullmatch(key) else quote(key)
    return f"{parent}.{name}" if parent else name


def describe(raw: Any) -> str:
    """What was found, for an error: short, whatever it is."""
    if isinstance(raw, Mapping):
        return "a table"
    if isinstance(raw, bool):
        return "true" if raw else "false"
    return f"{raw!r:.60}"


class Table:
    """One table of the file."""

    __slots__ = ("_raw", "path")

    def __init__(self, path: str, raw: Any) -> None:
        if not isinstance(raw, dict):
            raise invalid(path, f"found {describe(raw)}, this is a table: write [{path}]")
        self.path = path
        self._raw: dict[str, Any] = raw

    def keys(self) -> list[str]:
        """All keys, in the order of the file."""
        return list(self._raw)

    def raw(self, key: str) -> Any:
        """A value as TOML gave it; None when it is missing."""
        return self._raw.get(key)

    def only(self, allowed: Collection[str]) -> None:
        """Refuse keys that nobody knows."""
        for key in self._raw:
            if key not in allowed:
                raise invalid(key_path(self.path, key), f"no such key{suggestion(key, allowed)}")

    def error(self, key: str, what: str) -> LogDeviceError:
        """An error about the value of `key`."""
        return invalid(key_path(self.path, key), what)

    def table(self, key: str) -> Table:
        """A sub-table; an empty one when it is missing."""
        return Table(key_path(self.path, key), self._raw.get(key, {}))

    def _typed(self, key: str, kind: type[Any], example: str, default: Any) -> Any:
        raw = self._raw.get(key, default)
        if raw is None and key not in self._raw:
            raise self.error(key, f"missing; write it like {key} = {example}")
        if key in self._raw and type(raw) is not kind:
            raise self.error(key, f"found {describe(raw)}, write {_TYPES[kind]} like {example}")
        return raw

    def text(self, key: str, example: str, default: str | None = None) -> str:
        """A string that is not empty."""
        value: str = self._typed(key, str, example, default)
        if key in self._raw and not value:
            raise self.error(key, f"is empty; write it like {example}")
        return value

    def integer(self, key: str, lo: int, hi: int, default: int | None = None) -> int:
        """An integer within bounds."""
        value: int = self._typed(key, int, str(max(lo, 1)), default)
        if not lo <= value <= hi:
            raise self.error(key, f"found {value}, allowed are {lo} to {hi}")
        return value

    def number(self, key: str, lo: float, hi: float, default: float) -> float:
        """A number within bounds; integers count."""
        raw = self._raw.get(key, default)
        if type(raw) not in (int, float):
            raise self.error(key, f"found {describe(raw)}, write a number like 1.0")
        if not lo <= raw <= hi:
            raise self.error(key, f"found {raw}, allowed are {lo} to {hi}")
        return float(raw)

    def array(self, key: str, example: str, default: list[Any] | None = None) -> list[Any]:
        """An array of anything."""
        value: list[Any] = self._typed(key, list, example, default)
        return value
