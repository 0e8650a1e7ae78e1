from __future__ import annotations

import dataclasses
import sqlite3
from contextlib import closing

import pytest

from logdevice_py.core.lsn import LSN_MAX, compose_lsn
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import PUSHED, Constraints
from logdevice_py.tables.declare import ColumnKind, TableSource


@pytest.mark.parametrize("name", TABLES)
def test_a_table_says_what_it_and_its_columns_are(name: str) -> None:
    table = TABLES[name]
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    assert table.doc.endswith(".")
    assert all(column.doc.endswith(".") for column in table.columns)
    shared = (
        TableSource.CONFIGURATION,
        TableSource.ANY_NODE,
        TableSource.NAMESPACES,
        TableSource.INDEX_LOGS,
        TableSource.MAINTENANCES,
        TableSource.SUMMARY,
        TableSource.COMPARISON,
    )
    assert table.has_node_id == (table.source not in shared)
    assert set(table.required) <= set(names)
    kinds = {"log_id": ColumnKind.LOG, "lsn": ColumnKind.LSN, "shard": ColumnKind.INTEGER}
    pushed = {column.name: column.kind for column in table.columns if column.name in PUSHED}
    assert pushed == {name: kinds[name] for name in pushed}, "its constraints go to the nodes as such"


@pytest.mark.parametrize("name", TABLES)
def test_cells_stand_in_the_order_of_columns(name: str) -> None:
    table = TABLES[name]
    fields = [field.name for field in dataclasses.fields(table.row)]
    row = table.row(**{field: position for position, field in enumerate(fields)})
    assert list(table.cells(row)) == list(range(len(fields)))
    assert [column.name for column in table.columns][-len(fields) :] == fields


@pytest.mark.parametrize(
    "constraints",
    [
        Constraints(),
        Constraints(log_id=3),
        Constraints(log_id=3, shard=0, lsn_min=compose_lsn(1, 2), lsn_max=compose_lsn(1, 9)),
        Constraints(lsn_min=compose_lsn(1, 2)),
        Constraints(log_id=3, bare=True),
    ],
)
def test_constraints_come_through_a_request_as_they_are(constraints: Constraints) -> None:
    assert Constraints.parse(constraints.parameters()) == constraints


def test_one_lsn_is_a_range_of_one() -> None:
    constraints = Constraints.parse({"lsn": "e3n17"})
    assert constraints.lsn_min == constraints.lsn_max == compose_lsn(3, 17)
    assert constraints.constrained == {"lsn"}
    assert Constraints.parse({"lsn_min": "1"}).constrained == set(), "an open range may be all of the log"
    assert Constraints.parse({"lsn_min": "1"}).lsn_max == LSN_MAX


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log_id", "0"),
        ("log_id", "-1"),
        ("log_id", "١"),
        ("log_id", "9" * 30),
        ("shard", "128"),
        ("lsn", "e1"),
        ("lsn_max", "9" * 30),
        ("node", "1"),
    ],
)
def test_what_is_no_constraint_is_refused_by_its_name(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        Constraints.parse({name: text})


@pytest.mark.parametrize("name", TABLES)
def test_names_need_no_quotes_in_sql(name: str) -> None:
    table = TABLES[name]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f'CREATE TABLE "{name}" ({", ".join(f""" "{each.name}" """ for each in table.columns)})')
        for each in table.columns:
            connection.execute(
                f"SELECT {each.name}, max({each.name}) FROM {name} AS t WHERE t.{each.name} = 1 GROUP BY 1"
            )
