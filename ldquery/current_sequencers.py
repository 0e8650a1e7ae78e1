"""Which of a log's sequencers goes on: column `is_current` of table `sequencers`, which no node knows by itself.

A node whose log another one took over stays ACTIVE in its earlier epoch until an append of its own is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from client.node_tables import Row
from logdevice_py.tables.declare import Cell, TableDeclaration

_TABLE: Final = "sequencers"
_COLUMN: Final = "is_current"


def compares_nodes(table: TableDeclaration, used: Collection[str]) -> bool:
    """Whether a statement that uses these columns takes the rows of all nodes, whichever node it asks for."""
    return table.name == _TABLE and _COLUMN in used


def with_current(table: TableDeclaration, rows: Sequence[Row]) -> Sequence[Row]:
    """The rows of a table; those of `sequencers`, which are of all nodes that answered, with `is_current`."""
    if table.name != _TABLE:
        return rows
    log, state, epoch, current = (
        [column.name for column in table.columns].index(name) for name in ("log_id", "state", "epoch", _COLUMN)
    )
    newest: dict[Cell, int] = {}
    for row in rows:
        known = row[epoch]
        newest[row[log]] = max(newest.get(row[log], 0), known if isinstance(known, int) else 0)

    def flag(row: Row) -> int:
        return int(row[state] == "ACTIVE" and row[epoch] == newest[row[log]])

    return [(*row[:current], flag(row), *row[current + 1 :]) for row in rows]
