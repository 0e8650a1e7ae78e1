"""How a debug table is declared: a dataclass for its rows whose fields say what their columns hold."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

Cell: TypeAlias = int | float | str | None
"""What stands in one column of one row; None is SQL's NULL: not known, or there is none."""
R = TypeVar("R")
STREAM_SHOWN: Final = (1 << 63) - 1
"""The bits of a stream's number that are shown: SQL has no larger integers, and nodes set one more in theirs."""


class ColumnKind(enum.Enum):
    """What the values of a column are, and so how they are printed."""

    INTEGER = "integer"
    REAL = "real"
    TEXT = "text"
    FLAG = "flag"  # 0 or 1
    LOG = "log id"
    LSN = "LSN"  # an integer; people see e3n17
    TIME = "time"  # microseconds since the Unix epoch, UTC


class TableSource(enum.Enum):
    """Who has the rows of a table."""

    CONFIGURATION = "the configuration that nodes use, or the cluster file where none answers"
    ANY_NODE = "any one node"  # all would say the same
    EVERY_NODE = "every node"
    SEQUENCER_NODES = "every node with the role sequencer"
    STORAGE_NODES = "every node with the role storage"
    NAMESPACES = "ldquery, which reads the states of all namespaces of the log tree"
    INDEX_LOGS = "ldquery, which reads the manifests of all index logs of the log tree"
    MAINTENANCES = "ldquery, which reads the log of maintenances"
    SUMMARY = "ldquery, which puts together what all nodes say"
    COMPARISON = "ldquery, which compares what all nodes with the role storage have"


OWN: Final = frozenset({TableSource.EVERY_NODE, TableSource.SEQUENCER_NODES, TableSource.STORAGE_NODES})
"""Each node has rows of its own: they begin with its `node_id`."""


@dataclass(frozen=True, slots=True)
class ColumnDeclaration:
    """One column."""

    name: str
    kind: ColumnKind
    doc: str
    words: tuple[tuple[str, str], ...] = ()
    """Every text that it can hold, with its meaning; empty when there is no fixed list."""


NODE_ID: Final = ColumnDeclaration("node_id", ColumnKind.INTEGER, "The node that says so.")


@dataclass(frozen=True, slots=True)
class TableDeclaration:
    """One table."""

    name: str
    source: TableSource
    doc: str
    row: type[Any]
    columns: tuple[ColumnDeclaration, ...]
    """In order; `node_id` comes first where each node has rows of its own."""
    required: tuple[str, ...]
    """Columns without a constraint on which the table is not read."""
    cells: Callable[[Any], tuple[Cell, ...]]
    """The cells of a row, without that `node_id`."""

    @property
    def brief(self) -> str:
        """The first sentence of its text."""
        return self.doc.partition(". ")[0].removesuffix(".") + "."

    @property
    def has_node_id(self) -> bool:
        """Whether `node_id` is the first column and tells which node answered."""
        return self.source in OWN

    @property
    def has_payloads(self) -> bool:
        """Whether it shows what applications wrote, unless it is asked without."""
        return self.column("payload") is not None

    def column(self, name: str) -> ColumnDeclaration | None:
        """The column of that name."""
        return next((column for column in self.columns if column.name == name), None)


DECLARED: Final[dict[str, TableDeclaration]] = {}
"""The tables of modules that were imported. `logdevice_py.tables.catalog` has them all."""


def column(kind: ColumnKind, doc: str, *, words: type[enum.Enum] | None = None) -> Any:
    """Declare a column as a field of a row's dataclass.

    Args:
        words: the names of its members are what the column can hold, their values say what that means.
    """
    meanings = () if words is None else tuple((member.name, str(member.value)) for member in words)
    return dataclasses.field(metadata={"kind": kind, "doc": doc, "words": meanings})


def table(name: str, source: TableSource, *, required: Iterable[str] = ()) -> Callable[[type[R]], type[R]]:
    """Declare a table by the dataclass of its rows, whose docstring says what a row is."""

    def declare(row: type[R]) -> type[R]:
        assert name not in DECLARED, name
        columns = [
            ColumnDeclaration(field.name, field.metadata["kind"], field.metadata["doc"], field.metadata["words"])
            for field in dataclasses.fields(row)  # type: ignore[arg-type]
        ]
        names = [each.name for each in columns]
        assert len(names) > 1, "attrgetter gives a tuple for two names and more"
        doc = " ".join(inspect.cleandoc(row.__doc__ or "").split())
        first = [NODE_ID] if source in OWN else []
        DECLARED[name] = TableDeclaration(
            name, source, doc, row, tuple(first + columns), tuple(required), attrgetter(*names)
        )
        return row

    return declare
