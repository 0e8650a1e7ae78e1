"""The log tree: directories that give attributes, and groups of logs that take them.

A group is a range of log ids that share all attributes. An attribute that a group does not set is that of its directory, else of the
directory above, else of the defaults of the cluster file, else its declared default.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from logdevice_py.config.attributes import Durability, LogAttributes
from logdevice_py.core.ids import USER_LOG_ID_MAX, LogId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.suggestion import nearest

__all__ = ["Durability", "LogAttributes", "LogGroup", "LogTree", "check_path"]

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_NUMBER = re.compile(r"[0-9]{1,20}")
_WILDCARDS = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
MATCHES_MAX = 1000
"""How many logs a pattern may mean."""


def _pattern(text: str) -> Callable[[str], object]:
    """Whether a whole path fits."""
    parts = re.split(r"(\*\*|\*|\?)", text)
    return re.compile("".join(_WILDCARDS.get(part) or re.escape(part) for part in parts)).fullmatch


_RANGE = re.compile(r"\s*([0-9]{1,20})\s*(?:\.\.\s*([0-9]{1,20})\s*)?")


def parse_ids(text: str) -> tuple[int, int] | None:
    """The first and the last id as written in ``1..8``, or in a single number; None: it is neither."""
    match = _RANGE.fullmatch(text)
    return None if match is None else (int(match[1]), int(match[2] or match[1]))


def check_path(path: str) -> None:
    """ValueError unless `path` may stand in a log tree."""
    if not path.startswith("/") or path == "/":
        raise ValueError("a path in the log tree begins with / and has a name after it, like /team/clicks")
    for name in path[1:].split("/"):
        if not name:
            raise ValueError("an empty name in the path: write single slashes and none at the end")
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"the name {name!r} may hold letters, digits, _, . and - only")
        if name.isdigit():
            raise ValueError(f"the name {name!r} is a number: those are kept for the logs within a group")


def _parents(path: str) -> Iterator[str]:
    """The directories above `path`, the largest first."""
    end = path.find("/", 1)
    while end != -1:
        yield path[:end]
        end = path.find("/", end + 1)


@dataclass(frozen=True, slots=True)
class LogGroup:
    """The logs `lo` to `hi` (inclusive). `overrides` is what the group sets itself, `attributes` what holds for it."""

    path: str
    lo: LogId
    hi: LogId
    overrides: Mapping[str, Any]
    attributes: LogAttributes

    def __len__(self) -> int:
        return self.hi - self.lo + 1

    def ids(self) -> range:
        """All log ids of the group, ascending."""
        return range(self.lo, self.hi + 1)

    def name(self, log: LogId) -> str:
        """How a person names one of its logs."""
        return self.path if self.lo == self.hi else f"{self.path}/{log - self.lo + 1}"

    def only_log(self) -> LogId:
        """The log of a group of one.

        Raises:
            LogDeviceError: INVALID_PARAM: it has several; the text says how to name one.
        """
        if self.lo != self.hi:
            raise LogDeviceError(
                Status.INVALID_PARAM,
                f"{self.path} is a group of {len(self)} logs ({self.lo}..{self.hi}): name one by its id, or by its place from 1, "
                f"like {self.path}/1 for log {self.lo}",
            )
        return self.lo

    def log_at(self, place: int) -> LogId:
        """The log at a place in the group, counted from 1.

        Raises:
            LogDeviceError: NOTFOUND: there is none.
        """
        if not 1 <= place <= len(self):
            raise LogDeviceError(Status.NOTFOUND, f"{self.path} has the logs {self.path}/1 to {self.path}/{len(self)}")
        return LogId(self.lo + place - 1)


@dataclass(frozen=True)
class LogTree:
    """All directories and groups of a cluster. Immutable; make it with `build`."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the root, by field name of `LogAttributes`."""
    directories: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What directories set, by path; one that sets nothing need not be listed."""
    groups: tuple[LogGroup, ...] = ()
    """In order of their ids."""
    _starts: list[int] = field(init=False, repr=False, compare=False)
    _by_path: dict[str, LogGroup] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_starts", [group.lo for group in self.groups])
        object.__setattr__(self, "_by_path", {group.path: group for group in self.groups})

    @classmethod
    def build(
        cls,
        *,
        defaults: Mapping[str, Any] | None = None,
        directories: Mapping[str, Mapping[str, Any]] | None = None,
        groups: Iterable[tuple[str, int, int, Mapping[str, Any]]] = (),
    ) -> LogTree:
        """A tree from what is set where.

        Args:
            defaults: attributes of the root, values as in `LogAttributes`.
            directories: attributes by path.
            groups: path, lowest id, highest id, attributes.

        Raises:
            ValueError: a path is malformed or has two meanings, ids are out of range or taken, or a group has no replication property.
        """
        defaults, directories = dict(defaults or {}), {path: dict(sets) for path, sets in (directories or {}).items()}
        specs = sorted(groups, key=lambda spec: (spec[1], spec[2], spec[0]))
        paths = {spec[0] for spec in specs}
        if len(paths) != len(specs):
            twice = next(spec[0] for spec in specs if sum(other[0] == spec[0] for other in specs) > 1)
            raise ValueError(f"{twice}: the group is there twice")
        for path in [*directories, *paths]:
            try:
                check_path(path)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
            if path in paths and path in directories:
                raise ValueError(f"{path}: is a group and a directory")
            for parent in _parents(path):
                if parent in paths:
                    raise ValueError(f"{path}: lies in {parent}, which is a group of logs and no directory")
        built: list[LogGroup] = []
        for path, lo, hi, overrides in specs:
            if not 1 <= lo <= hi <= USER_LOG_ID_MAX:
                raise ValueError(f"{path}: ids {lo}..{hi} are not within 1..{USER_LOG_ID_MAX}, in ascending order")
            if built and lo <= built[-1].hi:
                clash = built[-1]
                both = f"{lo}..{min(hi, clash.hi)}" if min(hi, clash.hi) > lo else str(lo)
                raise ValueError(f"{path} and {clash.path} both have the log ids {both}: a log is in one group only")
            merged = dict(defaults)
            for parent in _parents(path):
                merged.update(directories.get(parent, {}))
            merged.update(overrides)
            if "replication" not in merged:
                raise ValueError(
                    f'{path}: no replicate: set it here, in a directory above or in [defaults], like "node:3"'
                )
            attributes = LogAttributes(path=path, **merged)
            if attributes.max_payload_bytes > attributes.window_bytes:
                raise ValueError(f"{path}: max_payload_bytes is above window_bytes: such a payload could never be sent")
            built.append(LogGroup(path, LogId(lo), LogId(hi), dict(overrides), attributes))
        return cls(defaults, directories, tuple(built))

    def group(self, log: LogId) -> LogGroup | None:
        """The group of a data log; None when there is no such log."""
        index = bisect_right(self._starts, log) - 1
        if index < 0:
            return None
        group = self.groups[index]
        return group if log <= group.hi else None

    def get(self, log: LogId) -> LogAttributes | None:
        """The attributes of a data log; None when there is no such log."""
        group = self.group(log)
        return None if group is None else group.attributes

    def group_at(self, path: str) -> LogGroup | None:
        """The group with this path."""
        return self._by_path.get(path)

    def ids(self) -> Iterator[LogId]:
        """Every log id, ascending."""
        for group in self.groups:
            yield from map(LogId, group.ids())

    def __len__(self) -> int:
        """How many logs there are."""
        return sum(map(len, self.groups))

    def find(self, name: str | int) -> LogId:
        """The log that a person names: by id (``17``), by the path of a group of one log (``/team/audit``), or by the path of a group and the
        log's place in it counted from 1 (``/team/clicks/3`` is the third log of the group, whatever its id).

        Raises:
            LogDeviceError: NOTFOUND when there is no such log; INVALID_PARAM when the name is no name or fits many logs. The text says
                how to name one.
        """
        if isinstance(name, int) or _NUMBER.fullmatch(name) is not None:
            log = LogId(int(name))
            if self.group(log) is None:
                raise LogDeviceError(Status.NOTFOUND, f"there is no log {log}")
            return log
        if not name.startswith("/"):
            raise LogDeviceError(Status.INVALID_PARAM, f"{name!r} is neither a log id nor a path, which begins with /")
        if is_pattern(name):
            raise LogDeviceError(Status.INVALID_PARAM, f"{name} is a pattern; one log is named by its id or its path")
        group = self._by_path.get(name)
        if group is not None:
            return group.only_log()
        directory, _, place = name.rpartition("/")
        group = self._by_path.get(directory)
        if group is not None and _NUMBER.fullmatch(place) is not None:
            return group.log_at(int(place))
        raise LogDeviceError(Status.NOTFOUND, f"there is no log group {name}{self._hint(name)}")

    def matching(self, pattern: str) -> list[LogId]:
        """The logs that a person names with a pattern, ascending: ``*`` and ``?`` stand for anything within a part of a path, ``**`` also for
        several parts. A pattern that fits a group means all of its logs; a name without ``*`` and ``?`` is what `find` finds.

        Raises:
            LogDeviceError: NOTFOUND when it fits none, INVALID_PARAM when it fits more than `MATCHES_MAX`; or as `find`.
        """
        if not is_pattern(pattern):
            return [self.find(pattern)]
        found = matching(pattern, self.groups)
        if not found:
            raise LogDeviceError(Status.NOTFOUND, f"there is no log that {pattern} fits")
        return found

    def _hint(self, name: str) -> str:
        below = [path for path in self._by_path if path.startswith(name.rstrip("/") + "/")]
        if below:
            return f"; that is a directory, with {', '.join(sorted(below)[:5])}"
        close = nearest(name, self._by_path)
        return f"; did you mean {close}?" if close else ""

    def name(self, log: LogId) -> str:
        """How a person names the log: ``/team/audit``, ``/team/clicks/3``, or the bare id when it is in no group."""
        group = self.group(log)
        return str(log) if group is None else group.name(log)


def is_pattern(name: int | str) -> bool:
    """Whether a name may mean many logs: no path has ``*`` or ``?``."""
    return isinstance(name, str) and ("*" in name or "?" in name)


def matching(pattern: str, groups: Iterable[LogGroup]) -> list[LogId]:
    """The logs of some groups that fit a pattern, in that order.

    Raises:
        LogDeviceError: INVALID_PARAM when it fits more than `MATCHES_MAX`.
    """
    fits, directory = _pattern(pattern), _pattern(pattern.rpartition("/")[0])
    found: list[LogId] = []
    for group in groups:
        if fits(group.path):
            logs: Iterable[LogId] = map(LogId, group.ids())
        elif len(group) > 1 and directory(group.path):
            logs = (log for log in map(LogId, group.ids()) if fits(f"{group.path}/{log - group.lo + 1}"))
        else:
            continue
        found += islice(logs, MATCHES_MAX + 1)
        if len(found) > MATCHES_MAX:
            raise LogDeviceError(Status.INVALID_PARAM, f"{pattern} fits more than {MATCHES_MAX} logs")
    return found
