"""SQLite's virtual tables, whose rows come from nodes while a statement runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import apsw

from client.node_tables import Row
from ldquery.current_sequencers import compares_nodes
from ldquery.pushdown import Term, Wanted, estimate, pushable, wanted
from logdevice_py.tables.declare import ColumnKind, TableDeclaration

SQL_TYPES: Final = {
    ColumnKind.INTEGER: "INTEGER",
    ColumnKind.REAL: "REAL",
    ColumnKind.TEXT: "TEXT",
    ColumnKind.FLAG: "FLAG INTEGER",
    ColumnKind.LOG: "LOG INTEGER",
    ColumnKind.LSN: "LSN INTEGER",
    ColumnKind.TIME: "TIME INTEGER",
}
"""Declared types; a column of a result keeps that of the table's column that it is, which is how it is known what to print."""
Fetch = Callable[[TableDeclaration, Wanted], Sequence[Row]]


class TableModule:
    """One table as SQLite asks for it by name."""

    def __init__(self, table: TableDeclaration, fetch: Fetch) -> None:
        self._table = table
        self._fetch = fetch

    def Connect(self, connection: apsw.Connection, *_: Any) -> tuple[str, VirtualTable]:
        """Its schema, and the table."""
        columns = ", ".join(f'"{column.name}" {SQL_TYPES[column.kind]}' for column in self._table.columns)
        return f"CREATE TABLE ignored ({columns})", VirtualTable(self._table, self._fetch)

    Create = Connect


class VirtualTable:
    """One table within one statement or several."""

    def __init__(self, table: TableDeclaration, fetch: Fetch) -> None:
        self.table = table
        self.fetch = fetch

    def BestIndexObject(self, index: apsw.IndexInfo) -> bool:
        """Choose what goes to the nodes: every usable constraint that they understand."""
        names = [column.name for column in self.table.columns]
        compared = compares_nodes(self.table, {names[number] for number in index.colUsed if number < len(names)})
        terms: list[Term] = []
        for position in range(index.nConstraint):
            if not index.get_aConstraint_usable(position):
                continue
            term = pushable(self.table, index.get_aConstraint_iColumn(position), index.get_aConstraint_op(position))
            if term is not None and not (compared and term[0] == "node_id"):
                terms.append(term)
                index.set_aConstraintUsage_argvIndex(position, len(terms))
        bare = "payload" in names and names.index("payload") not in index.colUsed
        index.idxStr = json.dumps([bare, terms])
        index.estimatedCost, index.estimatedRows = estimate(self.table, terms)
        return True

    def Open(self) -> TableCursor:
        """A pass over the rows."""
        return TableCursor(self)

    def Disconnect(self) -> None:
        """SQLite is done with it."""

    Destroy = Disconnect


class TableCursor:
    """One pass over the rows of a table."""

    def __init__(self, owner: VirtualTable) -> None:
        self._owner = owner
        self._rows: Sequence[Row] = ()
        self._at = 0

    def Filter(self, number: int, name: str, values: tuple[Any, ...]) -> None:
        """Get the rows."""
        bare, pushed = json.loads(name)
        terms: list[Term] = [(column, sign) for column, sign in pushed]
        self._rows = self._owner.fetch(self._owner.table, wanted(terms, values, bare=bare))
        self._at = 0

    def Eof(self) -> bool:
        """Whether there is no further row."""
        return self._at >= len(self._rows)

    def Next(self) -> None:
        """To the next row."""
        self._at += 1

    def Rowid(self) -> int:
        """Its number in this pass."""
        return self._at

    def Column(self, number: int) -> Any:
        """A cell; -1 is the row's number."""
        return self._at if number < 0 else self._rows[self._at][number]

    def Close(self) -> None:
        """SQLite is done with it."""
        self._rows = ()
