"""Cells of results as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from client.cli.program import make_safe
from logdevice_py.core.lsn import format_lsn
from logdevice_py.tables.declare import ColumnKind

CELL_MAX: Final = 100
"""Characters of a cell that tables show: payloads may be megabytes wide. Programs and the format `vertical` get all of it."""
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def readable_cell(value: Any, kind: ColumnKind | None, lsn_text: bool) -> str:
    """A cell for people: LSNs like e3n17, times in local time."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return make_safe(value)
    if isinstance(value, int):
        if kind is ColumnKind.LSN and lsn_text and value >= 0:
            return format_lsn(value)
        if kind is ColumnKind.TIME:
            return _local_time(value)
    return make_safe(str(value).encode("utf-8", "backslashreplace"))


def _local_time(value: int) -> str:
    try:
        when = (_UNIX_EPOCH + timedelta(microseconds=value)).astimezone()
    except (OverflowError, OSError):
        return str(value)
    return when.strftime("%Y-%m-%d %H:%M:%S.%f")
