from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import pytest

from ldquery.pushdown import Wanted, estimate, wanted
from ldquery.virtual_tables import TableModule
from logdevice_py.core.lsn import LSN_MAX, compose_lsn
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.declare import TableDeclaration


class Source:
    """Notes what SQLite asks for, and answers with rows of the table `stored_logs`, or none of other tables."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Wanted]] = []
        self.connection = apsw.Connection(":memory:")
        for table in TABLES.values():
            module: Any = TableModule(table, self.fetch)
            self.connection.create_module(
                table.name, module, use_bestindex_object=True, eponymous=True, eponymous_only=True, read_only=True
            )

    def fetch(self, table: TableDeclaration, wanted: Wanted) -> Sequence[Sequence[Any]]:
        self.asked.append((table.name, wanted))
        if table.name != "stored_logs":
            return []
        return [[node, 0, log, int(compose_lsn(1, 10 * log))] for node in (0, 1) for log in (1, 2, 3)]

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.cursor().execute(sql).fetchall()

    def only(self) -> Wanted:
        """What the one pass over a table asked for."""
        assert len(self.asked) == 1, self.asked
        return self.asked[0][1]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("log_id = 3", Wanted(Constraints(log_id=3))),
        ("3 = log_id AND shard = 1", Wanted(Constraints(log_id=3, shard=1))),
        ("log_id = 3.0", Wanted(Constraints(log_id=3))),
        ("node_id = 2", Wanted(node=2)),
        ("log_id = 3 OR log_id = 4", None),
        ("log_id > 3", Wanted()),
        ("log_id + 0 = 3", Wanted()),
        ("log_id = 3 AND log_id = 4", None),
    ],
)
def test_equality_of_log_shard_and_node_is_pushed_down(where: str, expected: Wanted | None) -> None:
    source = Source()
    source.run(f"SELECT * FROM log_storage_state WHERE {where}")
    if expected is not None:
        assert source.only() == expected
    elif "OR" in where:
        assert {w.constraints.log_id for _, w in source.asked} == {3, 4}
    else:
        assert all(w.nothing or w.constraints.log_id in (3, 4) for _, w in source.asked)


@pytest.mark.parametrize(
    ("where", "lo", "hi"),
    [
        ("lsn = 7", 7, 7),
        ("lsn BETWEEN 7 AND 9", 7, 9),
        ("lsn > 7 AND lsn < 9", 8, 8),
        ("lsn >= 7 AND lsn > 7 AND lsn <= 20", 8, 20),
        ("lsn >= 7", 7, LSN_MAX),
        ("lsn < 9", 0, 8),
        ("lsn BETWEEN 0 AND 9", 1, 9),
        ("lsn > -1 AND lsn < 9", 1, 8),
        (f"lsn BETWEEN 0 AND {LSN_MAX}", 1, LSN_MAX - 1),
        (f"lsn >= 7 AND lsn <= {LSN_MAX - 1}", 7, LSN_MAX - 1),
    ],
)
def test_ranges_of_lsns_are_pushed_down(where: str, lo: int, hi: int) -> None:
    source = Source()
    source.run(f"SELECT * FROM record WHERE log_id = 1 AND {where}")
    constraints = source.only().constraints
    assert (constraints.lsn_min, constraints.lsn_max) == (lo, hi)


@pytest.mark.parametrize("ends", ["BETWEEN 0 AND 9", f"BETWEEN 0 AND {LSN_MAX}", f"BETWEEN 7 AND {LSN_MAX}"])
def test_ends_that_leave_nothing_out_are_ends(ends: str) -> None:
    source = Source()
    source.run(f"SELECT * FROM record WHERE log_id = 1 AND lsn {ends}")
    assert source.only().constraints.constrained == {"log_id", "lsn"}


@pytest.mark.parametrize(
    "where", ["lsn > 9 AND lsn < 7", "lsn = 0", "lsn = NULL", "log_id = NULL", "log_id = -1", "shard = 1000"]
)
def test_what_no_row_can_satisfy_asks_nobody(where: str) -> None:
    source = Source()
    rows = source.run(f"SELECT * FROM record WHERE {where}")
    assert rows == []
    assert all(w.nothing for _, w in source.asked)


def test_rows_are_checked_again_whatever_nodes_answer() -> None:
    source = Source()
    assert source.run("SELECT node_id, log_id FROM stored_logs WHERE log_id = 2 AND node_id = 1") == [(1, 2)]


def test_a_value_that_is_no_number_is_not_pushed_down_and_finds_nothing() -> None:
    source = Source()
    assert source.run("SELECT * FROM stored_logs WHERE log_id = 'three'") == []
    assert source.only() == Wanted()


def test_a_join_gives_a_table_what_it_requires_from_the_other_side() -> None:
    source = Source()
    source.run("SELECT * FROM record r JOIN stored_logs s ON r.log_id = s.log_id AND r.lsn = s.highest_lsn")
    assert source.asked[0] == ("stored_logs", Wanted())
    asked = [w.constraints for name, w in source.asked if name == "record"]
    assert asked
    assert all(each.constrained == {"log_id", "lsn"} for each in asked)


def test_plans_without_what_a_table_requires_cost_most() -> None:
    record = TABLES["record"]
    good, _ = estimate(record, [("log_id", "="), ("lsn", "=")])
    for terms in ([], [("log_id", "=")], [("log_id", "="), ("lsn", ">")]):
        assert estimate(record, terms)[0] > 1000 * good


def test_numbers_beyond_64_bits_are_not_sent() -> None:
    assert wanted([("log_id", "=")], [1e300]) == Wanted()
