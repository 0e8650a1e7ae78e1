from __future__ import annotations

import json

from ldquery.formats import format_csv, format_json, format_lines, format_table
from ldquery.session import QueryResult
from ldquery.shell import is_complete
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.tables.declare import ColumnKind

LSN_3_17 = int(compose_lsn(3, 17))
RESULT = QueryResult(
    columns=["log_id", "lsn", "text", "computed"],
    kinds=[ColumnKind.LOG, ColumnKind.LSN, ColumnKind.TEXT, None],
    rows=[(7, LSN_3_17, "a\x1b[2Jb", LSN_3_17), (12, None, None, None)],
)


def test_people_see_lsns_as_text_and_nothing_that_drives_the_terminal() -> None:
    assert format_table(RESULT).splitlines() == [
        "log_id    lsn  text          computed",
        "------  -----  ---------  -----------",
        f"     7  e3n17  a\\x1b[2Jb  {LSN_3_17}",
        "    12",
    ]
    assert "  lsn = e3n17\n" in format_lines(RESULT)


def test_programs_get_integers_unless_they_want_text() -> None:
    assert json.loads(format_json(RESULT))[0]["lsn"] == LSN_3_17
    assert json.loads(format_json(RESULT, True))[0]["lsn"] == "e3n17"
    assert format_csv(RESULT, True).splitlines()[0] == "log_id,lsn,text,computed"
    assert format_csv(RESULT).splitlines()[2] == "12,,,"


def test_a_result_without_rows_has_a_header_and_is_an_empty_array() -> None:
    empty = QueryResult(["a", "b"], [None, None], [])
    assert format_table(empty) == "a  b\n-  -\n"
    assert json.loads(format_json(empty)) == []
    assert format_lines(empty) == ""


def test_input_ends_with_a_semicolon_outside_of_literals() -> None:
    assert is_complete("SELECT 1;")
    assert is_complete("SELECT 1; -- done")
    assert is_complete(".tables")
    assert not is_complete("SELECT 1")
    assert not is_complete("SELECT ';")
    assert not is_complete("SELECT ';'")
    assert not is_complete("SELECT 1 -- ;")


def test_json_has_every_column_and_numbers_that_json_has() -> None:
    result = QueryResult(["a", "a", "a_2", "b"], [None] * 4, [(1, 2, 3, float("inf"))])
    assert json.loads(format_json(result)) == [{"a": 1, "a_3": 2, "a_2": 3, "b": None}]
