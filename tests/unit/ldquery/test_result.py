"""Results in notebooks."""

from __future__ import annotations

import datetime

import pandas as pd

from client.node_tables import NodeFailure
from ldquery.result import QueryResult
from logdevice_py.core.ids import NodeId
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.tables.declare import ColumnKind

LSN = int(compose_lsn(4_000_000, 17))
FAILURE = NodeFailure(NodeId(3), "sequencers", Status.TIMEDOUT, "no answer within 5.0 s")


def a_result() -> QueryResult:
    return QueryResult(
        ["node_id", "lsn", "since", "name", "load", "n"],
        [ColumnKind.INTEGER, ColumnKind.LSN, ColumnKind.TIME, ColumnKind.TEXT, ColumnKind.REAL, None],
        [(0, LSN, 1_700_000_000_123_456, "<b>", 0.5, 1), (1, None, None, None, None, 2)],
        [FAILURE],
    )


def test_integers_of_a_data_frame_stay_integers_where_some_are_missing() -> None:
    frame = a_result().to_pandas()
    assert list(frame.columns) == ["node_id", "lsn", "since", "name", "load", "n"]
    assert frame["lsn"].dtype == "Int64"
    assert int(frame["lsn"][0]) == LSN
    assert float(LSN) != LSN, "no float holds it"
    assert pd.isna(frame["lsn"][1])
    assert frame["since"][0] == datetime.datetime(2023, 11, 14, 22, 13, 20, 123456, datetime.UTC)
    assert pd.isna(frame["since"][1])
    assert list(frame["n"]) == [1, 2]


def test_columns_of_an_arrow_table_have_their_types_also_when_nothing_is_in_them() -> None:
    filled = a_result()
    empty = QueryResult(filled.columns[:5], filled.kinds[:5], [])
    assert empty.to_arrow().schema == filled.to_arrow().schema.remove(5)
    assert QueryResult([], [], []).to_arrow().num_columns == 0


def test_a_result_says_how_much_it_holds_and_what_is_missing() -> None:
    assert (
        repr(a_result()) == f"<QueryResult: 2 rows of node_id, lsn, since, name, load, n; rows are missing: {FAILURE}>"
    )
    assert repr(QueryResult(["n"], [None], [(1,)])) == "<QueryResult: 1 row of n>"


def test_a_notebook_shows_a_table() -> None:
    text = a_result()._repr_html_()
    assert "<th>lsn</th>" in text
    assert "<td>e4000000n17</td>" in text
    assert "<td>&lt;b&gt;</td>" in text
    assert "<p>2 rows; rows are missing: N3: sequencers: TIMEDOUT" in text


def test_a_notebook_shows_neither_all_of_many_rows_nor_all_of_a_wide_cell() -> None:
    text = QueryResult(["n"], [None], [("x" * 1000,)] * 51)._repr_html_()
    assert text.count("<td>") == 50
    assert f"<td>{'x' * 97}...</td>" in text
    assert "<p>51 rows, the first 50 of them</p>" in text
