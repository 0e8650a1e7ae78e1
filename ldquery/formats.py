"""Prints results: for people as a table or in lines, for programs as CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from client.cli.program import make_safe
from ldquery.session import QueryResult
from logdevice_py.core.lsn import format_lsn
from logdevice_py.tables.declare import ColumnKind

_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RIGHT: Final = frozenset({ColumnKind.INTEGER, ColumnKind.REAL, ColumnKind.FLAG, ColumnKind.LOG, ColumnKind.LSN})
LSN_CHOICES: Final = ("text", "integer")


def _readable(value: Any, kind: ColumnKind | None, lsn_text: bool) -> str:
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


def _width(text: str) -> int:
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def format_table(result: QueryResult, lsn_text: bool = True) -> str:
    """Columns under their names, numbers to the right."""
    names = [make_safe(name.encode()) for name in result.columns]
    cells = [[_readable(v, k, lsn_text) for v, k in zip(row, result.kinds, strict=True)] for row in result.rows]
    right = [
        kind in _RIGHT
        or (kind is None and all(isinstance(row[place], int | float) or row[place] is None for row in result.rows))
        for place, kind in enumerate(result.kinds)
    ]
    widths = [max(map(_width, column)) for column in zip(names, *cells, strict=True)]

    def line(texts: list[str]) -> str:
        padded = [
            " " * (width - _width(text)) + text if to_right else text + " " * (width - _width(text))
            for text, width, to_right in zip(texts, widths, right, strict=True)
        ]
        return "  ".join(padded).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(names), rule, *map(line, cells)]) + "\n"


def format_lines(result: QueryResult, lsn_text: bool = True) -> str:
    """A line for each cell, an empty line between rows."""
    width = max(map(len, result.columns), default=0)
    blocks = []
    for row in result.rows:
        cells = zip(result.columns, row, result.kinds, strict=True)
        blocks.append("\n".join(f"{name:>{width}} = {_readable(v, k, lsn_text)}" for name, v, k in cells))
    return "\n\n".join(blocks) + "\n" if blocks else ""


def _plain(value: Any, kind: ColumnKind | None, lsn_text: bool) -> Any:
    """A cell for programs: integers unless LSNs are wanted as text."""
    if kind is ColumnKind.LSN and lsn_text and isinstance(value, int) and value >= 0:
        return format_lsn(value)
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _named_apart(columns: Sequence[str]) -> list[str]:
    """The names, the second and later ones that are equal with a number."""
    taken = set(columns)
    found: list[str] = []
    for name in columns:
        number, unique = 1, name
        while unique in found or (number > 1 and unique in taken):
            number += 1
            unique = f"{name}_{number}"
        found.append(unique)
    return found


def format_csv(result: QueryResult, lsn_text: bool = False) -> str:
    """CSV with a header; NULL is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(result.columns)
    writer.writerows([_plain(v, k, lsn_text) for v, k in zip(row, result.kinds, strict=True)] for row in result.rows)
    return out.getvalue()


def format_json(result: QueryResult, lsn_text: bool = False) -> str:
    """An array of objects. JSON has no infinite numbers: they are null."""
    names = _named_apart(result.columns)
    objects = []
    for row in result.rows:
        cells = (_plain(value, kind, lsn_text) for value, kind in zip(row, result.kinds, strict=True))
        finite = (None if isinstance(cell, float) and not math.isfinite(cell) else cell for cell in cells)
        objects.append(json.dumps(dict(zip(names, finite, strict=True)), allow_nan=False))
    return "[" + ",\n ".join(objects) + "]\n"


FORMATS: Final[dict[str, Callable[[QueryResult, bool], str]]] = {
    "table": format_table,
    "csv": format_csv,
    "json": format_json,
    "line": format_lines,
}
FOR_PEOPLE: Final = frozenset({"table", "line"})
"""Formats in which LSNs are text by default."""
