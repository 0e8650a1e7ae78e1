"""Options of reading an index log as a table, read and checked once. Nothing here knows Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from client.spark.access import ACCESS, NO_ACCESS, ClusterAccess
from client.spark.options import refusal
from logdevice_py.core.suggestion import nearest
from logdevice_py.core.units import parse_size

IDENTITY: Final = tuple(name for name in ACCESS if name != "keysFile")
"""Index logs do not encrypt."""
OPTIONS: Final = ("cluster", *IDENTITY, "path", "indexes", "liveTail", "tailBytesMax", "maxBytesPerPartition")
DEFAULT_PATH: Final = "/indexlog"
TAIL_BYTES_MAX: Final = 64 << 20
PARTITION_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """What is read, and how it is cut."""

    cluster: str
    """The cluster file, or its text."""
    path: str
    """Of the index log in the log tree; ``load`` may name it."""
    indexes: tuple[str, ...]
    """Codes, and patterns of them; empty: all."""
    live_tail: bool
    """With what is not dealt."""
    tail_bytes_max: int
    """More that is not dealt is refused: it is read by the planner, and sent to tasks."""
    partition_bytes: int
    """Of stored parts, about."""
    access: ClusterAccess = NO_ACCESS
    """Who the planner is to the cluster; tasks read the store alone."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> IndexOptions:
        """From a source's options.

        Raises:
            LogDeviceError: INVALID_PARAM; the text names the option.
        """
        given = {str(key).lower(): str(value).strip() for key, value in options.items()}
        known = {name.lower(): name for name in OPTIONS}
        for key in given:
            if key not in known:
                close = nearest(key, list(known))
                meant = f"; did you mean {known[close]}?" if close else ""
                raise refusal(f"there is no option {key}{meant}")
        if not given.get("cluster"):
            raise refusal("option cluster: name the cluster file")
        indexes = tuple(filter(None, (each.strip() for each in given.get("indexes", "").split(","))))
        return cls(
            given["cluster"],
            given.get("path") or DEFAULT_PATH,
            indexes,
            _flag("liveTail", given.get("livetail", "true")),
            _size("tailBytesMax", given.get("tailbytesmax"), TAIL_BYTES_MAX),
            _size("maxBytesPerPartition", given.get("maxbytesperpartition"), PARTITION_BYTES),
            ClusterAccess.of(given),
        )

    def wants(self, index: str) -> bool:
        """Whether an index is read."""
        return not self.indexes or any(fnmatchcase(index, each) for each in self.indexes)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise refusal(f"{name} is {text!r}; it must be true or false")
    return text.lower() == "true"


def _size(name: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    try:
        size = int(text) if text.isdecimal() else parse_size(text)
    except ValueError as error:
        raise refusal(f"{name}: {error}") from None
    if size <= 0:
        raise refusal(f"{name} is {text!r}; it must be a size, like 64MiB")
    return size
