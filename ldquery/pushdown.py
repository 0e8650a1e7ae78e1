"""What SQLite says of a table's constraints, and what goes to the nodes of it.

SQLite checks every row against every constraint again, so that what is not pushed down, or only in part, costs rows and never truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import apsw

from logdevice_py.core.ids import SHARD_INDEX_MAX, LogId
from logdevice_py.core.lsn import LSN_MAX, LSN_OLDEST, Lsn
from logdevice_py.tables.constraints import EVERYTHING, Constraints
from logdevice_py.tables.declare import TableDeclaration, TableSource

_SIGNS: Final = {
    apsw.SQLITE_INDEX_CONSTRAINT_EQ: "=",
    apsw.SQLITE_INDEX_CONSTRAINT_GT: ">",
    apsw.SQLITE_INDEX_CONSTRAINT_GE: ">=",
    apsw.SQLITE_INDEX_CONSTRAINT_LT: "<",
    apsw.SQLITE_INDEX_CONSTRAINT_LE: "<=",
}
_INT64: Final = 2**63
Term = tuple[str, str]
"""A column and a sign; its value comes when the table is read."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows of a table are to be got."""

    constraints: Constraints = EVERYTHING
    node: int | None = None
    """The one node whose rows are wanted."""
    nothing: bool = False
    """No row can be right."""


def pushable(table: TableDeclaration, column: int, operator: int) -> Term | None:
    """The term that a constraint of SQLite is for the nodes; None when it is nothing to them."""
    sign = _SIGNS.get(operator)
    if sign is None or not 0 <= column < len(table.columns):
        return None
    name = table.columns[column].name
    if name == "lsn" or (sign == "=" and (name in ("log_id", "shard") or (name == "node_id" and table.has_node_id))):
        return name, sign
    return None


def estimate(table: TableDeclaration, terms: Sequence[Term]) -> tuple[float, int]:
    """Cost and number of rows, as SQLite wants them to order joins by. Plans without what a table requires come last."""
    names = {name for name, _ in terms}
    lsn = {sign for name, sign in terms if name == "lsn"}
    if "lsn" in table.required and "=" not in lsn and not (lsn & {">", ">="} and lsn & {"<", "<="}):
        names.discard("lsn")
    if set(table.required) - names:
        return 1e15, 1_000_000_000
    rows = 100 if table.source is TableSource.CONFIGURATION else 10_000
    for name, factor in (("log_id", 1000), ("lsn", 100), ("node_id", 10), ("shard", 2)):
        if name in names:
            rows //= factor
    rows = max(1, rows)
    asks = 1.0 if table.source is TableSource.CONFIGURATION else 10_000.0
    return asks + rows, rows


def wanted(terms: Iterable[Term], values: Sequence[Any], *, bare: bool = False) -> Wanted:
    """What is to be got, once SQLite has the values. `bare`: payloads are not."""
    found = Wanted(Constraints(bare=True)) if bare else Wanted()
    for (name, sign), value in zip(terms, values, strict=True):
        if value is None:
            return replace(found, nothing=True)  # nothing compares with NULL
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or not -_INT64 <= value < _INT64:
            continue
        found = _with_term(found, name, sign, value)
    return replace(found, nothing=found.nothing or found.constraints.nothing)


def _with_term(found: Wanted, name: str, sign: str, value: int) -> Wanted:
    constraints = found.constraints
    if name == "node_id":
        return replace(found, node=value, nothing=found.nothing or found.node not in (None, value))
    if name == "log_id":
        other = constraints.log_id not in (None, value)
        return replace(
            found,
            constraints=replace(constraints, log_id=LogId(value)),
            nothing=found.nothing or other or value <= 0,
        )
    if name == "shard":
        other = constraints.shard not in (None, value)
        return replace(
            found,
            constraints=replace(constraints, shard=value),
            nothing=found.nothing or other or not 0 <= value <= SHARD_INDEX_MAX,
        )
    lo, hi = constraints.lsn_min, constraints.lsn_max
    # Nothing lies at 0 or at the largest LSN, which stand for open ends: an end that is given beyond what lies anywhere is one all the same.
    if sign in ("=", ">", ">="):
        lo = Lsn(max(lo, value + (sign == ">"), LSN_OLDEST))
    if sign in ("=", "<", "<="):
        hi = Lsn(min(hi, value - (sign == "<"), LSN_MAX - 1))
    return replace(found, constraints=replace(constraints, lsn_min=lo, lsn_max=hi), nothing=found.nothing or lo > hi)
