"""Log lines about peers that misbehave, so few of each kind that a hostile peer cannot fill the disk."""

from __future__ import annotations

import logging
from typing import Final

from logdevice_py.core.units import SECOND, Micros

LINES_MAX = 20
"""Lines of one kind in an interval."""
INTERVAL = 10 * SECOND
FIELDS: Final = "fields"
"""Attribute of a log record: what a line is about, by name, for logs that programs read."""


class Diagnostics:
    """Warns, and counts instead of warning when one kind comes too often."""

    __slots__ = ("_begun", "_lines", "_log", "_unsaid")

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._begun: dict[str, Micros] = {}
        self._lines: dict[str, int] = {}
        self._unsaid: dict[str, int] = {}

    def warn(self, kind: str, text: str, now: Micros, **about: str | int) -> None:
        """One line.

        Args:
            kind: one of a few fixed texts: lines of the same kind count together.
            about: the shard, the log or what else the text names.
        """
        begun = self._begun.get(kind)
        if begun is None or now - begun >= INTERVAL:
            self._begun[kind] = now
            self._lines[kind] = 0
            self.flush(kind)
        if self._lines[kind] < LINES_MAX:
            self._lines[kind] += 1
            self._log.warning("%s", text, extra={FIELDS: {"kind": kind, **about}})
        else:
            self._unsaid[kind] = self._unsaid.get(kind, 0) + 1

    def flush(self, kind: str) -> None:
        """Say how many lines of a kind were left out."""
        unsaid = self._unsaid.pop(kind, 0)
        if unsaid:
            self._log.warning("%d further times: %s", unsaid, kind, extra={FIELDS: {"kind": kind}})

    def flush_all(self) -> None:
        """The same for all kinds, at the end."""
        for kind in list(self._unsaid):
            self.flush(kind)
