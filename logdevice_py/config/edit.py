"""Changes of a cluster file's log tree, as edits of its text: comments and the order of things stay.

Every edit is checked by reading the new text: it must say what was wanted and nothing else. So a file that is written in a way that is not
understood here (inline tables, dotted keys) is refused, never damaged.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from logdevice_py.config.attributes import ATTRIBUTES, parse_attribute, render_attribute
from logdevice_py.config.logs import LogTree
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.table import invalid, key_path, quote, suggestion
from logdevice_py.core.declare import written_value
from logdevice_py.core.status import LogDeviceError, Status

_HEADER: Final = re.compile(r"\s*\[[^\[].*\]\s*(#.*)?")
_VERSION: Final = re.compile(r"(\s*version\s*=\s*)[0-9_]+(.*)", re.DOTALL)


def parse_assignment(text: str) -> tuple[str, Any]:
    """Field name and value of an attribute, from ``replicate=node:3``: as in the cluster file, without quotes.

    Raises:
        ValueError: there is no such attribute, or the value is none for it.
    """
    key, sign, value = text.partition("=")
    key = key.strip()
    if not sign:
        raise ValueError(f"{text!r}: write NAME=VALUE, like replicate=node:3")
    return parse_attribute(attribute(key), written_value(ATTRIBUTES[key], value.strip()))


def attribute(key: str) -> str:
    """The key itself.

    Raises:
        ValueError: no attribute of logs is called so.
    """
    if key not in ATTRIBUTES:
        raise ValueError(f"{key}: no such attribute{suggestion(key, list(ATTRIBUTES))}")
    return key


class LogTreeEdit:
    """One version of a cluster file on its way to the next one. Nothing is written: `finish` gives the text."""

    def __init__(self, text: str) -> None:
        """
        Raises:
            LogDeviceError: INVALID_CONFIG.
        """
        self.config = load_cluster(text)
        """What the file says so far."""
        self._lines = text.splitlines(keepends=True)
        tree = self.config.logs
        self._directories: dict[str, dict[str, Any]] = {path: dict(sets) for path, sets in tree.directories.items()}
        self._groups: dict[str, tuple[int, int, dict[str, Any]]] = {
            group.path: (int(group.lo), int(group.hi), dict(group.overrides)) for group in tree.groups
        }

    def create(self, path: str, ids: tuple[int, int] | None, attributes: Mapping[str, Any]) -> None:
        """Add a group of logs; without ids a directory.

        Raises:
            LogDeviceError: INVALID_PARAM: the path is taken.
        """
        if path in self._groups or path in self._directories:
            raise LogDeviceError(Status.INVALID_PARAM, f"{path}: is in the file already; logs update changes it")
        rows = dict(render_attribute(name, value) for name, value in attributes.items())
        if ids is None:
            self._directories[path] = dict(attributes)
        else:
            self._groups[path] = (*ids, dict(attributes))
            rows = {"ids": _ids(ids), **rows}
        if self._lines and not self._lines[-1].endswith("\n"):
            self._lines[-1] += "\n"
        self._lines += [
            "\n",
            f"[{key_path('logs', path)}]\n",
            *(_assignment(key, value) for key, value in rows.items()),
        ]

    def update(
        self, path: str, ids: tuple[int, int] | None, attributes: Mapping[str, Any], unset: tuple[str, ...]
    ) -> None:
        """Change what a group or directory sets itself.

        Args:
            path: which.
            ids: other ids for a group; None: they stay.
            attributes: by field name.
            unset: keys that are not set there any more, so that those of the directories above hold.

        Raises:
            LogDeviceError: NOTFOUND, INVALID_PARAM.
        """
        self._must_exist(path)
        rows = dict(render_attribute(name, value) for name, value in attributes.items())
        if path in self._groups:
            lo, hi, overrides = self._groups[path]
            if ids is not None:
                lo, hi = ids
                rows = {"ids": _ids(ids), **rows}
            self._groups[path] = lo, hi, overrides
        else:
            overrides = self._directories[path]
            if ids is not None:
                raise LogDeviceError(Status.INVALID_PARAM, f"{path}: is a directory, only groups have ids")
        overrides.update(attributes)
        begin, end = self._section(path)
        for key in unset:
            name = ATTRIBUTES[key].name
            if name not in overrides:
                raise LogDeviceError(Status.INVALID_PARAM, f"{path}: does not set {key} itself")
            del overrides[name]
            at = self._line_of(path, key, begin, end)
            del self._lines[at]
            end -= 1
        for key, value in rows.items():
            self._assign(path, key, value, begin, end)
            begin, end = self._section(path)

    def delete(self, path: str) -> None:
        """Take a group or directory out.

        Raises:
            LogDeviceError: NOTFOUND.
        """
        self._must_exist(path)
        self._groups.pop(path, None)
        self._directories.pop(path, None)
        begin, end = self._section(path)
        while (
            begin and not self._lines[begin - 1].strip() and (end == len(self._lines) or not self._lines[end].strip())
        ):
            begin -= 1
        del self._lines[begin:end]

    def finish(self) -> str:
        """The text of the next version.

        Raises:
            LogDeviceError: INVALID_CONFIG: what was wanted is no valid file, or the file is written in a way that is not edited here.
        """
        version = self.config.version + 1
        try:
            tree = LogTree.build(
                defaults=self.config.logs.defaults,
                directories=self._directories,
                groups=[(path, *group) for path, group in self._groups.items()],
            )
        except ValueError as error:
            raise invalid("logs", str(error)) from None
        text = "".join(self._with_version(version))
        found = load_cluster(text)
        if found != replace(self.config, version=version, logs=tree):
            raise _not_understood("the log tree")
        return text

    # Text

    def _must_exist(self, path: str) -> None:
        if path not in self._groups and path not in self._directories:
            known = [*self._groups, *self._directories]
            raise LogDeviceError(Status.NOTFOUND, f"{path}: no such group or directory{suggestion(path, known)}")

    def _with_version(self, version: int) -> list[str]:
        lines = list(self._lines)
        for at, line in enumerate(lines):
            if _HEADER.fullmatch(line.rstrip("\r\n")):
                break
            match = _VERSION.fullmatch(line)
            if match is not None:
                lines[at] = f"{match[1]}{version}{match[2]}"
                return lines
        raise _not_understood("its version")

    def _section(self, path: str) -> tuple[int, int]:
        """The lines of a table of the tree, without what stands above the next one."""
        begin = None
        for at, line in enumerate(self._lines):
            if _HEADER.fullmatch(line.rstrip("\r\n")) is None:
                continue
            if begin is not None:
                return begin, self._end(begin, at)
            if _parsed(line) == {"logs": {path: {}}}:
                begin = at
        if begin is None:
            raise _not_understood(path)
        return begin, self._end(begin, len(self._lines))

    def _end(self, begin: int, end: int) -> int:
        while end - 1 > begin and (not self._lines[end - 1].strip() or self._lines[end - 1].lstrip().startswith("#")):
            end -= 1
        return end

    def _line_of(self, path: str, key: str, begin: int, end: int) -> int:
        for at in range(begin + 1, end):
            if key in (_parsed(self._lines[at]) or {}):
                return at
        raise _not_understood(f"{path}: {key}")

    def _assign(self, path: str, key: str, value: Any, begin: int, end: int) -> None:
        for at in range(begin + 1, end):
            line = self._lines[at]
            if key in (_parsed(line) or {}):
                self._lines[at] = _assignment(key, value, _comment(line))
                return
        if not self._lines[end - 1].endswith("\n"):
            self._lines[end - 1] += "\n"
        self._lines.insert(end, _assignment(key, value))


def _parsed(line: str) -> dict[str, Any] | None:
    """What a line says by itself; None: nothing that is TOML."""
    try:
        return tomllib.loads(line)
    except (ValueError, RecursionError):
        return None


def _comment(line: str) -> str:
    """What stands behind the value of a line, from # on; empty when nothing does."""
    said = _parsed(line)
    for at, character in enumerate(line):
        if character == "#" and _parsed(line[:at]) == said:
            return line[at:].rstrip("\r\n")
    return ""


def _ids(ids: tuple[int, int]) -> int | str:
    return ids[0] if ids[0] == ids[1] else f"{ids[0]}..{ids[1]}"


def _assignment(key: str, value: Any, comment: str = "") -> str:
    if isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = quote(value) if isinstance(value, str) else str(value)
    return f"{key} = {text}{'  ' + comment if comment else ''}\n"


def _not_understood(what: str) -> LogDeviceError:
    return LogDeviceError(
        Status.INVALID_CONFIG,
        f'{what} is written in a way that is not edited here: give each part of the log tree a table like [logs."/team/clicks"], or edit the file '
        "by hand and raise its version",
    )
