from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldquery.main import main
from ldquery.session import LDQuery
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.declare import ColumnKind

CLUSTER = Path(__file__).resolve().parents[3] / "conf" / "cluster.toml"


@pytest.fixture
def session() -> Iterator[LDQuery]:
    with LDQuery(CLUSTER) as opened:
        yield opened


def refusal(session: LDQuery, sql: str) -> str:
    with pytest.raises(LogDeviceError) as refused:
        session.query(sql)
    assert refused.value.status is Status.INVALID_PARAM
    return refused.value.detail


def test_tables_of_the_cluster_file_need_no_node(session: LDQuery) -> None:
    result = session.query("SELECT node_id, location FROM nodes WHERE sequencer = 0")
    assert (result.columns, result.rows, result.failures) == (["node_id", "location"], [(3, "rack2")], [])
    groups = session.query("SELECT sum(logid_hi - logid_lo + 1) AS logs FROM log_groups")
    assert groups.rows == [(9,)]


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (a)",
        "DROP TABLE nodes",
        "DELETE FROM nodes",
        "INSERT INTO nodes (node_id) VALUES (9)",
        "UPDATE nodes SET node_id = 1",
        "ATTACH '/tmp/x' AS x",
        "PRAGMA writable_schema = 1",
        "VACUUM INTO '/tmp/x'",
        "SELECT load_extension('/tmp/x')",
        "BEGIN",
        "CREATE TEMP VIEW v AS SELECT 1",
    ],
)
def test_nothing_but_select_is_allowed(session: LDQuery, sql: str) -> None:
    refusal(session, sql)
    assert len(session.query("SELECT * FROM nodes").rows) == 5, "the session goes on"


@pytest.mark.parametrize(
    ("sql", "reason"), [("SELECT 1\0", "null character, behind 8 others"), ("SELECT '\udcff'", "no text in UTF-8")]
)
def test_what_is_no_text_is_refused_in_words(session: LDQuery, sql: str, reason: str) -> None:
    """A byte that is no UTF-8 comes from a command line as half of a pair."""
    assert reason in refusal(session, sql)


def test_errors_say_what_would_be_right(session: LDQuery) -> None:
    assert "one statement at a time" in refusal(session, "SELECT 1; SELECT 2")
    assert "there are nodes, log_groups" in refusal(session, "SELECT * FROM node")
    assert "lsn as one value or with both ends" in refusal(session, "SELECT * FROM record WHERE log_id = 1")
    assert "lsn as one value or with both ends" in refusal(session, "SELECT * FROM record WHERE log_id = 1 AND lsn > 5")
    assert "lsn BETWEEN 'e1n1' AND 'e3n17'" in refusal(session, "SELECT * FROM record")
    assert "log_idd" in refusal(session, "SELECT log_idd FROM sequencers")


def test_literals_of_lsns_are_numbers_and_columns_know_what_they_hold(session: LDQuery) -> None:
    result = session.query("SELECT 'e3n17' AS a, lsn_text('e3n17') AS b, node_id, location FROM nodes LIMIT 1")
    assert result.rows == [(int(compose_lsn(3, 17)), "e3n17", 0, "rack1")]
    assert result.kinds == [None, None, ColumnKind.INTEGER, ColumnKind.TEXT]


def test_a_statement_without_rows_has_columns_all_the_same(session: LDQuery) -> None:
    result = session.query("SELECT node_id, log_id FROM sequencers WHERE node_id = 77")
    assert (result.columns, result.rows, result.failures, result.requests) == (["node_id", "log_id"], [], [], 0)


def test_results_become_arrow_tables_and_dicts(session: LDQuery) -> None:
    result = session.query("SELECT node_id, location, NULL AS empty FROM nodes")
    table = result.to_arrow()
    assert table.column_names == ["node_id", "location", "empty"]
    assert table.column("node_id").to_pylist() == [0, 1, 2, 3, 4]
    assert result.to_dicts()[4] == {"node_id": 4, "location": "rack3", "empty": None}


def test_a_statement_that_does_not_end_can_be_interrupted(session: LDQuery) -> None:
    count = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {}) SELECT count(*) FROM n"
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    watchdog = threading.Timer(20, session._connection.interrupt)

    def interrupted_soon() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        session.query(count.format(1 << 60))

    watchdog.start()
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted_soon()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        watchdog.cancel()
    assert time.monotonic() - began < 10
    assert session.query(count.format(3)).rows == [(3,)]


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT epch FROM sequencers", "did you mean epoch?; sequencers has node_id, "),
        ("SELECT s.epch FROM sequencers AS s", "did you mean epoch?; sequencers has node_id, "),
        ("SELECT 1 FROM sequencer", "did you mean sequencers?; there are "),
    ],
)
def test_a_name_that_does_not_exist_is_answered_with_those_that_do(session: LDQuery, sql: str, told: str) -> None:
    with pytest.raises(LogDeviceError, match=re.escape(told)):
        session.query(sql)


def test_parameters_stand_for_values(session: LDQuery) -> None:
    sql = "SELECT node_id FROM nodes WHERE node_id = :node AND location = @where AND $node > 0"
    assert session.query(sql, {"node": 3, "where": "rack2", "unused": 1}).rows == [(3,)]
    assert session.query("SELECT :lsn = 'e3n17'", {"lsn": "e3n17"}).rows == [(1,)], "a text of that form is the LSN"
    assert session.query(
        'SELECT :a, :b, :c, \':d\', "a:d" FROM (SELECT 5 AS "a:d") -- :e', {"a": None, "b": b"\xff", "c": 0.5}
    ).rows == [(None, b"\xff", 0.5, ":d", 5)]


@pytest.mark.parametrize(
    ("sql", "parameters", "reason"),
    [
        ("SELECT :log", {}, "parameter log has no value: give -p log=VALUE"),
        ("SELECT ?", {}, "parameters have names"),
        ("SELECT :n", {"n": 1 << 63}, "64 bits"),
        ("SELECT :n", {"n": [1]}, "SQL has no list"),
        ("SELECT :n", {"n": "e9999999999n1"}, "e9999999999n1"),
        ("SELECT :n", {"n": "\udcff"}, "no text in UTF-8"),
    ],
)
def test_parameters_that_are_none_are_refused(
    session: LDQuery, sql: str, parameters: dict[str, object], reason: str
) -> None:
    with pytest.raises(LogDeviceError, match=re.escape(reason)) as refused:
        session.query(sql, parameters)  # type: ignore[arg-type]
    assert refused.value.status is Status.INVALID_PARAM


def test_a_session_that_was_closed_says_so() -> None:
    closed = LDQuery(CLUSTER)
    closed.close()
    with pytest.raises(LogDeviceError, match="the session was closed"):
        closed.query("SELECT 1")


def test_a_session_shows_which_cluster_it_asks() -> None:
    opened = LDQuery(CLUSTER)
    name = opened.config.name
    assert repr(opened) == f"<LDQuery of cluster {name} ({CLUSTER}): open>"
    opened.close()
    assert repr(opened) == f"<LDQuery of cluster {name} ({CLUSTER}): closed>"
    with LDQuery(opened.config) as other:
        assert repr(other) == f"<LDQuery of cluster {name}: open>"


@pytest.mark.parametrize(
    "sql", ["SELECT node_id::text FROM nodes", "SELECT node_id FROM nodes WHERE '3' :: integer = 3"]
)
def test_casts_of_postgresql_are_told_by_those_of_sqlite(session: LDQuery, sql: str) -> None:
    assert "write CAST(log_id AS TEXT)" in refusal(session, sql)
    assert session.query("SELECT '::' AS a, CAST(node_id AS TEXT) FROM nodes LIMIT 1").rows == [("::", "0")]


def test_functions_of_postgresql_are_told_by_those_of_sqlite_and_what_is_told_works(session: LDQuery) -> None:
    told = refusal(session, "SELECT NOW() FROM nodes")
    assert "write datetime('now') for a text, unixepoch() * 1000000" in told
    assert "write datetime(tail_time / 1000000, 'unixepoch')" in refusal(session, "SELECT to_timestamp(1)")
    assert refusal(session, "SELECT unheard(1)") == "no such function: unheard"
    (row,) = session.query(
        "SELECT datetime('now'), unixepoch() * 1000000 - tail_time, datetime(tail_time / 1000000, 'unixepoch') "
        "FROM (SELECT 1700000000000000 AS tail_time)"
    ).rows
    assert (len(row[0]), row[1] > 0, row[2]) == (19, True, "2023-11-14 22:13:20")


@pytest.mark.parametrize("words", [["-f", "x.sql"], ["--file", "x.sql"], ["--file"]])
def test_who_names_a_file_of_statements_is_told_how(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["-c", str(CLUSTER), *words])
    assert ended.value.code == 2
    assert "ldquery < FILE" in capsys.readouterr().err
