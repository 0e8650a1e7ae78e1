from __future__ import annotations

import json

from ldquery.formats import (
    CELL_MAX,
    FORMATS,
    format_csv,
    format_json,
    format_markdown,
    format_table,
    format_tsv,
    format_vertical,
)
from ldquery.result import QueryResult
from ldquery.statements import is_complete
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
    assert "\nlsn      | e3n17\n" in format_vertical(RESULT)


def test_programs_get_integers_unless_they_want_text() -> None:
    assert json.loads(format_json(RESULT))[0]["lsn"] == LSN_3_17
    assert json.loads(format_json(RESULT, True))[0]["lsn"] == "e3n17"
    assert format_csv(RESULT, True).splitlines()[0] == "log_id,lsn,text,computed"
    assert format_csv(RESULT).splitlines()[2] == "12,,,"


def test_a_result_without_rows_has_a_header_and_is_an_empty_array() -> None:
    empty = QueryResult(["a", "b"], [None, None], [])
    assert format_table(empty) == "a  b\n-  -\n"
    assert json.loads(format_json(empty)) == []
    assert format_vertical(empty) == ""
    assert format_tsv(empty) == "a\tb\n"
    assert format_markdown(empty).splitlines()[0] == "| a | b |"


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


def test_wide_cells_are_cut_where_people_compare_rows_and_nowhere_else() -> None:
    payload = "x" * 5000
    result = QueryResult(["payload"], [ColumnKind.TEXT], [(payload,)])
    for name, form in FORMATS.items():
        shown = form(result, False)
        if name in ("table", "markdown"):
            assert "x" * (CELL_MAX - 3) + "..." in shown
            assert payload[:CELL_MAX] not in shown
        else:
            assert payload in shown, name


def test_numbers_stand_to_the_right_and_blanks_of_texts_are_kept() -> None:
    result = QueryResult(["n", "text"], [None, ColumnKind.TEXT], [(5, "  a"), (12, "123"), (None, "\u6f22")])
    assert format_table(result).splitlines() == [" n  text", "--  ----", " 5    a", "12  123", "    \u6f22"]
    assert format_markdown(result).splitlines()[1] == "|---:|:-----|"


def test_bars_of_cells_are_no_columns_in_markdown() -> None:
    result = QueryResult(["a"], [ColumnKind.TEXT], [("x|y",)])
    assert "x\\|y" in format_markdown(result)


def test_tsv_has_a_line_a_row_whatever_the_cells_hold() -> None:
    result = QueryResult(["a", "b"], [ColumnKind.TEXT, ColumnKind.LSN], [("x\ty\nz\\\r", LSN_3_17), (None, 1)])
    assert format_tsv(result) == f"a\tb\nx\\ty\\nz\\\\\\r\t{LSN_3_17}\n\t1\n"


def test_rows_are_numbered_vertically() -> None:
    assert format_vertical(RESULT).count(" row ]") == 2
