"""What a statement comes to: rows, and what notebooks make of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Final

from client.node_tables import NodeFailure
from client.notebook_packages import data_frame, notebook_package
from ldquery.cells import CELL_MAX, readable_cell
from logdevice_py.tables.declare import ColumnKind

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_ROWS_SHOWN: Final = 50
"""In a notebook."""
_ARROW_TYPES: Final = {
    ColumnKind.INTEGER: "int64",
    ColumnKind.REAL: "float64",
    ColumnKind.TEXT: "string",
    ColumnKind.FLAG: "int64",
    ColumnKind.LOG: "int64",
    ColumnKind.LSN: "int64",
}


@dataclass(slots=True, repr=False)
class QueryResult:
    """What a statement came to."""

    columns: list[str]
    kinds: list[ColumnKind | None]
    """What the columns are, where they are columns of tables; None for what was computed."""
    rows: list[tuple[Any, ...]]
    failures: list[NodeFailure] = field(default_factory=list)
    """Nodes whose rows are missing."""
    requests: int = 0
    """How many requests went to nodes."""
    rows_fetched: int = 0
    """How many rows came from nodes or the cluster file."""
    seconds: float = 0.0
    more: bool = False
    """There are further rows than were asked for."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Rows by names of columns; of two columns of one name the last one counts."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_arrow(self) -> pa.Table:
        """As an Arrow table. Columns of tables have the types that are declared, also where nothing is in them; times are timestamps, UTC.

        Raises:
            ImportError: pyarrow is not installed.
        """
        pa = notebook_package("pyarrow", "to_arrow")

        def column(place: int, kind: ColumnKind | None) -> Any:
            cells = [row[place] for row in self.rows]
            if kind is ColumnKind.TIME:
                return pa.array(cells, pa.timestamp("us", tz="UTC"))
            return pa.array(cells, None if kind is None else _ARROW_TYPES[kind])

        return pa.table([column(place, kind) for place, kind in enumerate(self.kinds)], names=self.columns)

    def to_pandas(self) -> pd.DataFrame:
        """As a data frame; see `to_arrow`. Integers are of pandas' type `Int64`, so that an LSN stays one where others are missing.

        Raises:
            ImportError: pyarrow or pandas is not installed.
        """
        return data_frame(self.to_arrow)

    # For notebooks

    def _size(self) -> str:
        return f"{len(self.rows):,} row{'' if len(self.rows) == 1 else 's'}"

    def _missing(self) -> str:
        return "".join(f"; rows are missing: {failure}" for failure in self.failures)

    def __repr__(self) -> str:
        return f"<QueryResult: {self._size()} of {', '.join(self.columns)}{self._missing()}>"

    def _repr_html_(self) -> str:
        """The first rows as a table, for notebooks."""
        names = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        rows = "".join(f"<tr>{self._html_cells(row)}</tr>" for row in self.rows[:_ROWS_SHOWN])
        first = f", the first {_ROWS_SHOWN} of them" if len(self.rows) > _ROWS_SHOWN else ""
        table = f"<table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>"
        return f"{table}<p>{self._size()}{first}{escape(self._missing())}</p>"

    def _html_cells(self, row: tuple[Any, ...]) -> str:
        texts = (readable_cell(value, kind, lsn_text=True) for value, kind in zip(row, self.kinds, strict=True))
        return "".join(f"<td>{escape(t if len(t) <= CELL_MAX else f'{t[: CELL_MAX - 3]}...')}</td>" for t in texts)
