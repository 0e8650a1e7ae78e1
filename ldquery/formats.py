"""Prints results: for people as a table, as Markdown or vertically, for programs as CSV, TSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from client.cli.program import make_safe
from ldquery.cells import CELL_MAX, readable_cell
from ldquery.result import QueryResult
from logdevice_py.core.lsn import format_lsn
from logdevice_py.tables.declare import ColumnKind

_RIGHT: Final = frozenset({ColumnKind.INTEGER, ColumnKind.REAL, ColumnKind.FLAG, ColumnKind.LOG, ColumnKind.LSN})
_TSV_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
LSN_CHOICES: Final = ("text", "integer")


def _aligned(result: QueryResult) -> list[str]:
    """Numbers to the right, also where they were computed; texts to the left."""
    columns = range(len(result.columns))
    numbers = [all(isinstance(row[place], int | float | None) for row in result.rows) for place in columns]
    return [
        "right" if kind in _RIGHT or (kind is None and number) else "left"
        for kind, number in zip(result.kinds, numbers, strict=True)
    ]


def _render(style: str, result: QueryResult, cells: list[list[str]], *, cut: int | None = None) -> str:
    """Cells under or beside their names, as cli_helpers draws them; wider ones than `cut` end with three dots."""
    from cli_helpers.tabular_output import TabularOutputFormatter  # here: programs that print JSON need not wait for it

    names = [make_safe(name.encode()) for name in result.columns]
    lines = TabularOutputFormatter(style).format_output(
        cells,
        names,
        colalign=_aligned(result) if cells else None,
        disable_numparse=True,
        preserve_whitespace=True,
        max_field_width=cut,
        skip_multiline_string=False,
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _readable_cells(result: QueryResult, lsn_text: bool) -> list[list[str]]:
    return [[readable_cell(v, k, lsn_text) for v, k in zip(row, result.kinds, strict=True)] for row in result.rows]


def format_table(result: QueryResult, lsn_text: bool = True) -> str:
    """Columns under their names, numbers to the right."""
    return _render("simple", result, _readable_cells(result, lsn_text), cut=CELL_MAX)


def format_vertical(result: QueryResult, lsn_text: bool = True) -> str:
    """A line for each cell, whole, and one with a number above each row."""
    return _render("vertical", result, _readable_cells(result, lsn_text))


def format_markdown(result: QueryResult, lsn_text: bool = True) -> str:
    """A table of Markdown."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in _readable_cells(result, lsn_text)]
    return _render("pipe", result, cells, cut=CELL_MAX)


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


def format_tsv(result: QueryResult, lsn_text: bool = False) -> str:
    r"""Cells with tabs between them under a header; tab, newline and backslash in a cell are \t, \n, \r and \\. NULL is an empty cell."""
    lines = [[str(name) for name in result.columns]]
    for row in result.rows:
        cells = (_plain(value, kind, lsn_text) for value, kind in zip(row, result.kinds, strict=True))
        lines.append(["" if cell is None else str(cell) for cell in cells])
    return "".join("\t".join(cell.translate(_TSV_ESCAPES) for cell in line) + "\n" for line in lines)


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
    "tsv": format_tsv,
    "vertical": format_vertical,
    "markdown": format_markdown,
}
FOR_PEOPLE: Final = frozenset({"table", "vertical", "markdown"})
"""Formats in which LSNs are text by default."""
