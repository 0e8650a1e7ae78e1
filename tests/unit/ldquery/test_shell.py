from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from client.node_tables import NodeFailure
from ldquery.completion import SqlCompleter, SqlHighlighter
from ldquery.interpreter import COMMAND_NAMES, Interpreter, Presentation, ShellError
from ldquery.result import QueryResult
from ldquery.shell import QueryShell
from ldquery.statements import DOT_COMMANDS, Piece, hint, is_complete, pieces
from logdevice_py.core.ids import NodeId
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.declare import ColumnKind


class ScriptedSession:
    """A session that answers every statement alike."""

    def __init__(self, error: LogDeviceError | None = None) -> None:
        self.full = False
        self.asked: list[str] = []
        self.given: list[dict[str, Any]] = []
        self._error = error

    def query(self, sql: str, parameters: Mapping[str, Any]) -> QueryResult:
        self.asked.append(sql)
        self.given.append(dict(parameters))
        if self._error is not None:
            raise self._error
        failure = NodeFailure(NodeId(3), "sequencers", Status.TIMEDOUT, "no answer within 5.0 s")
        return QueryResult(["lsn"], [ColumnKind.LSN], [(int(compose_lsn(3, 17)),)], [failure], requests=2)


def shell(session: Any) -> QueryShell:
    return QueryShell(Interpreter(session, Presentation(), at_terminal=True))


def piped(session: Any, form: str = "table") -> Interpreter:
    return Interpreter(session, Presentation(form))


def completions(text: str) -> set[str]:
    return {each.text for each in SqlCompleter().get_completions(Document(text), CompleteEvent())}


def test_rows_and_missing_nodes_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    session = ScriptedSession()
    shell(session).handle("SELECT lsn FROM sequencers;")
    out, err = capsys.readouterr()
    assert "e3n17" in out
    assert "N3: sequencers: TIMEDOUT" in err
    assert session.asked == ["SELECT lsn FROM sequencers"]


def test_the_format_changes_what_statements_print(capsys: pytest.CaptureFixture[str]) -> None:
    running = shell(ScriptedSession())
    running.handle(".format csv")
    running.handle("SELECT 1;")
    assert capsys.readouterr().out == f"lsn\n{int(compose_lsn(3, 17))}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (".nope", "no such command"),
        (".format xml", "one of table"),
        (".param 7", "no parameter"),
        (".output /nowhere/at/all", "/nowhere/at/all: No such file"),
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

    monkeypatch.setattr("ldquery.interpreter.time.sleep", sleep)
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
    monkeypatch.setattr("ldquery.interpreter.shutil.get_terminal_size", lambda: os.terminal_size((columns, lines)))
    monkeypatch.setattr("ldquery.interpreter.shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.setattr("ldquery.interpreter.subprocess.run", lambda words, **_: paged.append(words[1]))
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
    assert completions(".format c") == {"csv"}
    assert completions("SELECT 1\n.format c") == {"csv"}
    assert completions("\\d sequ") == {"sequencers"}
    assert "sequencers" in completions(".schema seq")


def test_psql_commands_list_tables_and_columns_and_switch_to_lines(capsys: pytest.CaptureFixture[str]) -> None:
    running = shell(ScriptedSession())
    running.handle("\\d")
    assert "sequencers" in capsys.readouterr().out
    running.handle("\\d record")
    assert "Constrain log_id and lsn." in capsys.readouterr().out
    running.handle("\\x")
    running.handle("SELECT 1;")
    assert "lsn | e3n17" in capsys.readouterr().out
    running.handle("\\x")
    assert capsys.readouterr().out == "format: table\n"


@pytest.mark.parametrize("text", ["exit", "quit", "help", "\\d", "\\x"])
def test_words_without_a_semicolon_end_the_input(text: str) -> None:
    assert is_complete(text)


def test_columns_after_an_alias_are_those_of_its_table() -> None:
    before, after = "SELECT s.last_rel", " FROM sequencers AS s JOIN nodes n USING (node_id)"
    found = {
        each.text for each in SqlCompleter().get_completions(Document(before + after, len(before)), CompleteEvent())
    }
    assert found == {"last_released"}
    columns = {column.name for column in TABLES["nodes"].columns}
    assert completions("SELECT * FROM sequencers s, nodes n WHERE n.") == columns
    assert completions("SELECT * FROM nodes WHERE nodes.") == columns
    assert completions("SELECT * FROM nodes n WHERE x.") == set()
    assert "seqs" in completions("SELECT * FROM sequencers AS seqs WHERE seq")


def test_tables_are_offered_where_one_must_follow_and_nothing_within_texts() -> None:
    assert completions("SELECT * FROM ") == set(TABLES)
    assert completions("SELECT * FROM nodes JOIN ") == set(TABLES)
    assert completions("SELECT * FROM nodes WHERE ") == set()
    assert completions("SELECT 'sequ") == set()
    assert completions("SELECT 1 -- sequ") == set()


def test_only_the_statement_at_the_cursor_counts() -> None:
    assert "last_released" not in completions("SELECT * FROM sequencers; SELECT last_")


def test_names_of_files_are_completed(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").touch()
    assert completions(f".output {tmp_path}/ro") == {"ws.csv"}


def test_pieces_are_statements_and_commands_with_their_lines() -> None:
    text = "SELECT 1; -- ; 'no\n/* ; */ SELECT ';',\n 2 ;.tables\n\\d nodes\nquit\nselect 3 -- the end;\n"
    assert list(pieces(text)) == [
        Piece("SELECT 1", 1),
        Piece("SELECT ';',\n 2", 2),
        Piece(".tables", 3),
        Piece("\\d nodes", 4),
        Piece(".quit", 5),
        Piece("select 3 -- the end;", 6),
    ]
    assert list(pieces(" ;; -- nothing\n")) == []


def test_statements_of_a_pipe_run_in_order_until_one_fails(capsys: pytest.CaptureFixture[str]) -> None:
    session = ScriptedSession()
    assert piped(session, "csv").run("SELECT 1;\nSELECT 2") == 4, "a node did not answer"
    assert session.asked == ["SELECT 1", "SELECT 2"]
    assert capsys.readouterr().out == f"lsn\n{int(compose_lsn(3, 17))}\n" * 2
    with pytest.raises(ShellError, match=r"line 2: \.nope: no such command"):
        piped(session).run("SELECT 3;\n.nope\nSELECT 4;")
    assert session.asked[2:] == ["SELECT 3"]
    with pytest.raises(LogDeviceError, match="INVALID_PARAM: statement of line 3: what is it"):
        piped(ScriptedSession(LogDeviceError(Status.INVALID_PARAM, "what is it"))).run(".full on\n\nSELECT 1;")


def test_a_command_within_a_statement_is_done_before_it() -> None:
    text = "SELECT 1\n  \\x ; \n-- no\n.format csv\n, '\n\\q' /*\n.quit */\n.node_id\nexit\n; SELECT 2\n\\d"
    assert list(pieces(text)) == [
        Piece("\\x", 2),
        Piece(".format csv", 4),
        Piece("SELECT 1\n\n-- no\n\n, '\n\\q' /*\n.quit */\n.node_id\nexit", 1),
        Piece("\\d", 11),
        Piece("SELECT 2", 10, interrupted=True),
    ]
    assert list(pieces("SELECT 1\n.format csv;")) == [Piece(".format csv", 2), Piece("SELECT 1", 1, interrupted=True)]


@pytest.mark.parametrize("line", ["\\q", "  \\q", "\\nope", ".quit", ".exit", ".format csv", "\\d nodes;"])
def test_a_command_on_a_line_of_its_own_ends_the_input_within_a_statement_too(line: str) -> None:
    assert is_complete(f"SELECT 1\n{line}")
    assert not is_complete(f"SELECT 'one\n{line}")
    assert not is_complete(f"SELECT 1 /* why\n{line}")
    assert is_complete(f"SELECT 1 -- why\n{line}")


def test_a_column_on_a_line_of_its_own_is_no_command() -> None:
    assert not is_complete("SELECT nodes\n.node_id")
    assert not is_complete("SELECT nodes\n.output_bytes")
    assert not is_complete("SELECT 1\nexit")


def test_who_types_a_command_where_it_is_none_is_told_how_to_leave() -> None:
    assert "\\q leaves" in (hint("SELECT 1\nexit") or "")
    assert "Ctrl-C" in (hint("SELECT 'one\n\\q") or "")
    assert hint("SELECT 1\nFROM nodes") is None
    assert hint("SELECT 'one\ntwo") is None
    assert hint("SELECT") is None


def test_a_pipe_may_end_within_a_statement() -> None:
    session = ScriptedSession()
    assert piped(session).run("SELECT 1\n\\q\n;") == 0
    assert piped(session).run("SELECT 1\n.format csv\n;SELECT 2\n.format json\n") == 4
    assert session.asked == ["SELECT 1", "SELECT 2"]


def typed(text: str, session: Any, monkeypatch: pytest.MonkeyPatch, home: Path) -> int:
    """The shell at a terminal where somebody types this."""
    monkeypatch.setenv("HOME", str(home))
    session.config = SimpleNamespace(name="typed", nodes=[0])
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text(text.replace("\n", "\r"))
        return shell(session).run()


def test_a_statement_goes_on_behind_a_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = ScriptedSession()
    typed("SELECT 1\n.format csv\n\\nope\n+ 1;\nSELECT 2\n\\q\n", session, monkeypatch, tmp_path)
    assert session.asked == ["SELECT 1\n+ 1"]
    out, err = capsys.readouterr()
    assert f"lsn\n{int(compose_lsn(3, 17))}\n" in out
    assert "\\nope: no such command" in err


def test_ctrl_c_drops_a_statement_that_a_command_stood_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = ScriptedSession()
    typed("SELECT 1\n\\x\n\x03SELECT 2;\nexit\n", session, monkeypatch, tmp_path)
    assert session.asked == ["SELECT 2"]


def test_every_command_with_a_dot_can_stand_in_a_statement() -> None:
    assert {name for name in COMMAND_NAMES if name.startswith(".")} == {*DOT_COMMANDS}


@pytest.mark.parametrize("line", ["\\dt", "\\d+", "\\d+ record", "\\dt record"])
def test_habits_of_psql_show_tables_and_columns(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    shell(ScriptedSession()).handle(line)
    assert ("copyset" if "record" in line else "sequencers") in capsys.readouterr().out


def test_a_question_mark_helps(capsys: pytest.CaptureFixture[str]) -> None:
    shell(ScriptedSession()).handle("\\?")
    assert ".schema TABLE" in capsys.readouterr().out


@pytest.mark.parametrize(("line", "meant"), [(".fromat csv", ".format"), (".tabels", ".tables"), ("\\dtt", "\\dt")])
def test_a_command_that_does_not_exist_is_told_with_the_nearest(
    line: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shell(ScriptedSession()).handle(line)
    assert f"no such command; did you mean {meant}? .help" in capsys.readouterr().err


def test_a_format_that_does_not_exist_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    shell(ScriptedSession()).handle(".format jsn")
    assert capsys.readouterr().err.endswith("; did you mean json?\n")


def test_a_pipe_may_say_that_it_ends() -> None:
    session = ScriptedSession()
    assert piped(session).run("SELECT 1; .quit\nSELECT 2;") == 4
    assert session.asked == ["SELECT 1"]


def test_results_go_into_a_file_until_that_is_taken_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("what was there before")
    running = shell(ScriptedSession())
    for text in (".format csv", f".output {file}", "SELECT 1;", "SELECT 1;"):
        running.handle(text)
    assert file.read_text() == f"lsn\n{int(compose_lsn(3, 17))}\n" * 2
    assert capsys.readouterr().out.count(f"(1 row in {file}; ") == 2
    running.handle(".output")
    running.handle("SELECT 1;")
    assert capsys.readouterr().out.startswith("lsn\n")


def test_parameters_are_given_to_every_statement(capsys: pytest.CaptureFixture[str]) -> None:
    session = ScriptedSession()
    running = shell(session)
    running.handle(".param log=7")
    running.handle(".param name='a b'")
    running.handle("SELECT :log; SELECT :name;")
    assert session.given == [{"log": 7, "name": "a b"}] * 2
    capsys.readouterr()
    running.handle(".param")
    assert capsys.readouterr().out == "log = 7\nname = 'a b'\n"


def test_texts_of_tables_fit_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    shell(ScriptedSession()).handle(".tables")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(TABLES)
    assert [line for line in lines if len(line) > 100 or not line.endswith(".")] == []
