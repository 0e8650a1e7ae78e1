"""ldquery at the terminal: statements over several lines, completion, history, and a few commands that begin with a dot."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import Lexer

from client.cli.program import EXIT_OK, say
from ldquery.formats import FOR_PEOPLE, FORMATS
from ldquery.literals import tokens
from ldquery.session import LDQuery
from logdevice_py.core.status import LogDeviceError
from logdevice_py.tables.catalog import TABLES

_NAME: Final = "ldquery"
_HELP: Final = """\
SELECT ...;             a statement ends with ; and may take several lines
.tables                 the tables
.schema TABLE           its columns
.output FORMAT          table, csv, json or line
.full on|off            fetch tables however large they are
.watch SECONDS SELECT   again and again, until interrupted
.quit                   also quit, exit and Ctrl-D
\\d, \\d TABLE, \\x        as in psql: .tables, .schema TABLE, lines instead of a table and back
"""
_COMMANDS: Final = (".full", ".help", ".output", ".quit", ".schema", ".tables", ".watch")
_KEYWORDS: Final = frozenset(
    [
        "select",
        "from",
        "where",
        "and",
        "or",
        "not",
        "in",
        "is",
        "null",
        "like",
        "between",
        "order",
        "by",
        "group",
        "having",
        "limit",
        "offset",
        "as",
        "join",
        "left",
        "cross",
        "inner",
        "on",
        "using",
        "distinct",
        "union",
        "all",
        "except",
        "intersect",
        "with",
        "recursive",
        "case",
        "when",
        "then",
        "else",
        "end",
        "over",
        "partition",
        "asc",
        "desc",
        "exists",
        "cast",
        "collate",
        "values",
    ]
)
_WORDS: Final = {"exit": ".quit", "quit": ".quit", "help": ".help"}
"""What people type without a dot."""
_ARGUMENTS: Final = {".output": tuple(FORMATS), ".schema": tuple(TABLES), ".full": ("on", "off")}
_STYLES: Final = {"string": "ansigreen", "comment": "ansibrightblack", "blob": "ansigreen"}


class SqlCompleter(Completer):
    """Completes keywords, tables, and the columns of tables that the statement names."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What the word before the cursor may become."""
        line = document.text_before_cursor.lstrip()
        command, space, argument = line.partition(" ")
        if command.startswith(".") and command != ".watch":
            choices = _ARGUMENTS.get(command, ()) if space else _COMMANDS
            typed = argument if space else command
            yield from (Completion(name, -len(typed)) for name in choices if name.startswith(typed) and name != typed)
            return
        word = document.get_word_before_cursor()
        if not word:
            return
        named = {text for kind, text in tokens(document.text) if kind == "word"}
        columns = {each.name for name in named & TABLES.keys() for each in TABLES[name].columns}
        for kind, names in (("column", columns), ("table", TABLES.keys()), ("", _KEYWORDS)):
            for name in sorted(names):
                if name.startswith(word.lower()) and name != word.lower():
                    yield Completion(name, -len(word), display_meta=kind)


class SqlHighlighter(Lexer):
    """Colours of a statement."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """The coloured pieces of each line."""
        lines: list[StyleAndTextTuples] = [[]]
        for kind, text in tokens(document.text):
            style = _STYLES.get(kind, "")
            if kind == "word" and text.lower() in _KEYWORDS:
                style = "ansiblue"
            elif kind == "word" and text in TABLES:
                style = "ansicyan"
            first, *others = text.split("\n")
            lines[-1].append((style, first))
            lines += [[(style, other)] for other in others]
        return lambda number: lines[number] if number < len(lines) else []


def is_complete(text: str) -> bool:
    """Whether Enter ends the input: a command, nothing at all, or a statement up to its ; outside of literals."""
    if not text.strip() or text.lstrip().startswith((".", "\\")) or text.strip().lower() in _WORDS:
        return True
    ends = [piece for kind, piece in tokens(text) if kind != "comment" and piece.strip()]
    return bool(ends) and ends[-1] == ";"


def _history(path: Path) -> History:
    """What was typed before; of this time only where no file can be kept."""
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


class QueryShell:
    """Asks for statements until the end of input."""

    def __init__(self, session: LDQuery, form: str, lsn: str | None) -> None:
        self._session = session
        self._form = form
        self._lsn = lsn
        self._commands: dict[str, Callable[[str], None]] = {
            ".help": lambda _: self._put(_HELP),
            ".tables": self._tables,
            ".schema": self._schema,
            ".output": self._output,
            ".full": self._full,
            ".watch": self._watch,
            "\\d": lambda rest: self._schema(rest) if rest else self._tables(rest),
            "\\x": self._toggle_lines,
        }

    def run(self) -> int:
        """Until .quit or the end of input; the exit status."""
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if is_complete(buffer.text):
                buffer.validate_and_handle()
            else:
                buffer.insert_text("\n")

        prompt: PromptSession[str] = PromptSession(
            history=_history(Path.home() / ".ldquery_history"),
            completer=SqlCompleter(),
            lexer=SqlHighlighter(),
            multiline=True,
            key_bindings=keys,
            prompt_continuation="   ...> ",
        )
        print(f"{len(self._session.config.nodes)} nodes of {self._session.config.name}. .help for help.")
        while True:
            try:
                text = prompt.prompt(f"{_NAME}> ").strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return EXIT_OK
            text = _WORDS.get(text.lower().rstrip("; "), text)
            if text in (".quit", ".exit", "\\q"):
                return EXIT_OK
            if text:
                self.handle(text)

    def handle(self, text: str) -> None:
        """Run one command or statement; errors are told and end nothing."""
        try:
            if text.startswith((".", "\\")):
                name, _, rest = text.partition(" ")
                command = self._commands.get(name)
                if command is None:
                    say(_NAME, f"{name}: no such command; .help lists them")
                else:
                    command(rest.strip().rstrip(";"))
            else:
                self._query(text)
        except LogDeviceError as error:
            say(_NAME, str(error))
        except ValueError as error:
            say(_NAME, str(error))
        except KeyboardInterrupt:
            print()

    def _query(self, sql: str) -> None:
        result = self._session.query(sql)
        lsn_text = self._form in FOR_PEOPLE if self._lsn is None else self._lsn == "text"
        self._put(FORMATS[self._form](result, lsn_text))
        for failure in result.failures:
            say(_NAME, f"rows are missing: {failure}", alarm=True)
        if self._form in FOR_PEOPLE:
            rows = "1 row" if len(result.rows) == 1 else f"{len(result.rows)} rows"
            print(f"({rows}; {result.requests} requests, {result.rows_fetched} rows fetched, {result.seconds:.3f} s)")

    def _put(self, text: str, *, chop: bool = True) -> None:
        """Print, through a pager what is longer than the terminal; `chop`: lines that are wider are scrolled, not wrapped."""
        size = shutil.get_terminal_size()
        wide = [max(1, -(-len(line) // size.columns)) for line in text.splitlines()]
        long = len(wide) >= size.lines or any(rows > 1 for rows in wide) if chop else sum(wide) >= size.lines
        pager = shutil.which("less")
        if long and pager is not None and sys.stdout.isatty():
            subprocess.run([pager, "-SFX" if chop else "-FX"], input=text.encode(), check=False)
        else:
            sys.stdout.write(text)

    def _tables(self, _: str) -> None:
        width = max(map(len, TABLES))
        self._put("".join(f"{name:<{width}}  {table.doc}\n" for name, table in TABLES.items()), chop=False)

    def _schema(self, name: str) -> None:
        table = TABLES.get(name)
        if table is None:
            raise ValueError(f"{name or '.schema'}: give a table; .tables lists them")
        width = max(len(each.name) for each in table.columns)
        lines = [f"{each.name:<{width}}  {each.kind.value:<7}  {each.doc}\n" for each in table.columns]
        needs = f" Constrain {' and '.join(table.required)}." if table.required else ""
        self._put("".join([f"{table.doc} From {table.source.value}.{needs}\n", *lines]), chop=False)

    def _output(self, form: str) -> None:
        if form not in FORMATS:
            raise ValueError(f".output: one of {', '.join(FORMATS)}")
        self._form = form

    def _toggle_lines(self, _: str) -> None:
        self._form = "table" if self._form == "line" else "line"
        print(f"output: {self._form}")

    def _full(self, switch: str) -> None:
        if switch not in ("on", "off"):
            raise ValueError(".full: on or off")
        self._session.full = switch == "on"

    def _watch(self, rest: str) -> None:
        period, _, sql = rest.partition(" ")
        try:
            seconds = float(period)
        except ValueError:
            raise ValueError(".watch: give seconds and a statement") from None
        if not 0.1 <= seconds <= 86400 or not sql.strip():
            raise ValueError(".watch: give seconds, 0.1 at least, and a statement")
        while True:
            print(f"\x1b[2J\x1b[H{time.strftime('%H:%M:%S')}  {sql}")
            self._query(sql)
            time.sleep(seconds)
