from __future__ import annotations

import os
from typing import Any

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from client.node_tables import NodeFailure
from ldquery.session import QueryResult
from ldquery.shell import QueryShell, SqlCompleter, SqlHighlighter, is_complete
from logdevice_py.core.ids import NodeId
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.declare import ColumnKind


class ScriptedSession:
    """A session that answers every statement alike."""

    def __init__(self, error: LogDeviceError | None = None) -> None:
        self.full = False
        self.asked: list[str] = []
        self._error = error

    def query(self, sql: str) -> QueryResult:
        self.asked.append(sql)
        if self._error is not None:
            raise self._error
        failure = NodeFailure(NodeId(3), "sequencers", Status.TIMEDOUT, "no answer within 5.0 s")
        return QueryResult(["lsn"], [ColumnKind.LSN], [(int(compose_lsn(3, 17)),)], [failure], requests=2)


def shell(session: Any) -> QueryShell:
    return QueryShell(session, "table", None)


def completions(text: str) -> set[str]:
    return {each.text for each in SqlCompleter().get_completions(Document(text), CompleteEvent())}


def test_rows_and_missing_nodes_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    session = ScriptedSession()
    shell(session).handle("SELECT lsn FROM sequencers;")
    out, err = capsys.readouterr()
    assert "e3n17" in out
    assert "N3: sequencers: TIMEDOUT" in err
    assert session.asked == ["SELECT lsn FROM sequencers;"]


def test_the_format_changes_what_statements_print(capsys: pytest.CaptureFixture[str]) -> None:
    running = shell(ScriptedSession())
    running.handle(".output csv")
    running.handle("SELECT 1;")
    assert capsys.readouterr().out == f"lsn\n{int(compose_lsn(3, 17))}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (".nope", "no such command"),
        (".output xml", "one of table"),
        (".schema nope", "give a table"),
        (".full maybe", "on or off"),
        (".watch often SELECT 1", "give seconds"),
        (".watch 1", "give seconds"),
        ("SELECT 1;", "INVALID_PARAM: near"),
    ],
)
def test_errors_are_told_and_end_nothing(text: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    session = ScriptedSession(LogDeviceError(Status.INVALID_PARAM, 'near "x": syntax error'))
    running = shell(session)
    running.handle(text)
    assert told in capsys.readouterr().err
    running.handle(".full on")
    assert session.full


def test_schema_says_what_columns_mean_and_what_a_table_needs(capsys: pytest.CaptureFixture[str]) -> None:
    shell(ScriptedSession()).handle(".schema record")
    out = capsys.readouterr().out
    assert "Constrain log_id and lsn." in out
    assert "copyset" in out


def test_a_statement_is_watched_until_that_is_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("ldquery.shell.time.sleep", sleep)
    session = ScriptedSession()
    shell(session).handle(".watch 0.5 SELECT 1;")
    assert (session.asked, slept) == (["SELECT 1"] * 3, [0.5] * 3)
    assert capsys.readouterr().out.count("e3n17") == 3


@pytest.mark.parametrize(
    ("columns", "lines", "command", "pages"),
    [
        (200, 50, "SELECT 1;", []),
        (10, 50, "SELECT 1;", []),
        (2, 50, "SELECT 1;", ["-SFX"]),
        (200, 3, "SELECT 1;", ["-SFX"]),
        (80, 50, ".schema graylist", []),
        (80, 5, ".schema graylist", ["-FX"]),
    ],
)
def test_what_is_longer_than_the_terminal_goes_through_a_pager(
    columns: int, lines: int, command: str, pages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paged: list[str] = []
    monkeypatch.setattr("ldquery.shell.shutil.get_terminal_size", lambda: os.terminal_size((columns, lines)))
    monkeypatch.setattr("ldquery.shell.shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.setattr("ldquery.shell.subprocess.run", lambda words, **_: paged.append(words[1]))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    shell(ScriptedSession()).handle(command)
    assert paged == pages


def test_words_are_completed_to_tables_and_to_columns_of_those_that_are_named() -> None:
    assert "sequencers" in completions("SELECT * FROM sequ")
    assert "last_released" in completions("SELECT * FROM sequencers WHERE last_")
    assert "last_released" not in completions("SELECT * FROM nodes WHERE last_")
    assert completions("") == set()


def test_highlighting_keeps_the_text_of_every_line() -> None:
    text = "SELECT 'a\nb', \"c\" -- d\nFROM nodes;"
    lines = SqlHighlighter().lex_document(Document(text))
    assert ["".join(piece[1] for piece in lines(number)) for number in range(3)] == text.split("\n")
    assert lines(99) == []


def test_commands_and_their_arguments_are_completed() -> None:
    assert completions(".sc") == {".schema"}
    assert completions(".output c") == {"csv"}
    assert "sequencers" in completions(".schema seq")


def test_psql_commands_list_tables_and_columns_and_switch_to_lines(capsys: pytest.CaptureFixture[str]) -> None:
    running = shell(ScriptedSession())
    running.handle("\\d")
    assert "sequencers" in capsys.readouterr().out
    running.handle("\\d record")
    assert "Constrain log_id and lsn." in capsys.readouterr().out
    running.handle("\\x")
    running.handle("SELECT 1;")
    assert "lsn = e3n17" in capsys.readouterr().out
    running.handle("\\x")
    assert capsys.readouterr().out == "output: table\n"


@pytest.mark.parametrize("text", ["exit", "quit", "help", "\\d", "\\x"])
def test_words_without_a_semicolon_end_the_input(text: str) -> None:
    assert is_complete(text)
