"""Runs statements and commands, typed or from a pipe, and prints what they come to."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from client.cli.program import EXIT_OK, EXIT_UNANSWERED, put, say, standard_output
from ldquery.formats import FOR_PEOPLE, FORMATS
from ldquery.literals import parse_parameter
from ldquery.result import QueryResult
from ldquery.session import LDQuery
from ldquery.statements import pieces
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.suggestion import nearest
from logdevice_py.tables.catalog import TABLES

NAME: Final = "ldquery"
_HELP: Final = f"""\
SELECT ...;             a statement ends with ; and may take several lines, commands among them; Ctrl-C drops it
.tables                 the tables
.schema TABLE           what a table holds, and its columns
.format FORMAT          {", ".join(FORMATS)}; also .mode
.output FILE            results go into a file; without FILE back to the terminal
.param NAME=VALUE       what :NAME stands for in statements; without NAME=VALUE all of them
.full on|off            fetch tables however large they are
.watch SECONDS SELECT   again and again, until interrupted
.quit                   also quit, exit and Ctrl-D
\\d, \\d TABLE, \\x        as in psql: .tables, .schema TABLE, rows vertically and back; also \\dt, \\d+ TABLE, \\?, \\q
"""


class ShellError(Exception):
    """A command that cannot be done."""


@dataclass(slots=True)
class Presentation:
    """How results are printed."""

    form: str = "table"
    lsn: str | None = None
    """LSNs as "text" or "integer"; None: as the format has them."""
    counts: bool = False
    """Whether the effort of a statement is told on standard error."""

    def text(self, result: QueryResult) -> str:
        """The rows."""
        lsn_text = self.form in FOR_PEOPLE if self.lsn is None else self.lsn == "text"
        return FORMATS[self.form](result, lsn_text)


@dataclass(slots=True)
class Interpreter:
    """Runs what is typed or piped."""

    session: LDQuery
    presentation: Presentation
    parameters: dict[str, Any] = field(default_factory=dict)
    at_terminal: bool = False
    """Somebody reads along: results are paged and summed up."""
    ended: bool = False
    """The input said so."""
    open_statement: str = ""
    """What was typed of a statement that goes on behind a command."""
    _output: Path | None = None
    _printed: bool = False

    def run(self, text: str) -> int:
        """Run all that an input holds, until something fails; the exit status.

        Raises:
            LogDeviceError: a statement fails. What stands before it was done, what stands behind it is not.
            ShellError: a command fails.
        """
        status = EXIT_OK
        parts = list(pieces(text))
        if self.at_terminal:
            self.open_statement = "".join(f"{part.text}\n" for part in parts if part.interrupted)
        for part in parts:
            if self.ended or (self.at_terminal and part.interrupted):
                break
            try:
                if part.is_command:
                    self._command(part.text)
                elif not self._query(part.text):
                    status = EXIT_UNANSWERED
            except LogDeviceError as error:
                if len(parts) == 1:
                    raise
                raise LogDeviceError(error.status, f"statement of line {part.line}: {error.detail}") from None
            except ShellError as error:
                raise ShellError(str(error) if len(parts) == 1 else f"line {part.line}: {error}") from None
        return status

    def _query(self, sql: str) -> bool:
        """Print what a statement comes to; whether all nodes answered that were asked."""
        result = self.session.query(sql, self.parameters)
        for_people = self.presentation.form in FOR_PEOPLE
        blank = "\n" if for_people and self._printed and not self.at_terminal else ""
        self._show(blank + self.presentation.text(result))
        self._printed = True
        for failure in result.failures:
            say(NAME, f"rows are missing: {failure}", alarm=sys.stderr.isatty())
        effort = f"{result.requests} requests, {result.rows_fetched} rows fetched, {result.seconds:.3f} s"
        if self.presentation.counts:
            say(NAME, effort)
        if self.at_terminal and (for_people or self._output is not None):
            rows = "1 row" if len(result.rows) == 1 else f"{len(result.rows)} rows"
            into = f" in {self._output}" if self._output is not None else ""
            self._put(f"({rows}{into}; {effort})\n")
        return not result.failures

    def _show(self, text: str) -> None:
        """Print a result, into the file if there is one."""
        if self._output is None:
            self._put(text, paged=True)
            return
        try:
            with self._output.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ShellError(f"{self._output}: {error.strerror}") from None

    def _put(self, text: str, *, paged: bool = False, chop: bool = True) -> None:
        """Print, through a pager what is longer than the terminal; `chop`: lines that are wider are scrolled, not wrapped."""
        if paged and self.at_terminal and sys.stdout.isatty():
            size = shutil.get_terminal_size()
            wide = [max(1, -(-len(line) // size.columns)) for line in text.splitlines()]
            long = len(wide) >= size.lines or any(rows > 1 for rows in wide) if chop else sum(wide) >= size.lines
            pager = shutil.which("less")
            if long and pager is not None:
                subprocess.run([pager, "-SFX" if chop else "-FX"], input=text.encode(), check=False)
                return
        put(standard_output(), text.encode())

    # Commands

    def _command(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        command = _COMMANDS.get(name)
        if command is None:
            close = nearest(name.lower(), _COMMANDS)
            raise ShellError(f"{name}: no such command; {f'did you mean {close}? ' if close else ''}.help lists them")
        command(self, rest.strip().rstrip(";"))

    def _help(self, _: str) -> None:
        self._put(_HELP)

    def _quit(self, _: str) -> None:
        self.ended = True

    def _tables(self, _: str) -> None:
        width = max(map(len, TABLES))
        lines = "".join(f"{name:<{width}}  {table.brief}\n" for name, table in TABLES.items())
        self._put(lines, paged=True, chop=False)

    def _schema(self, name: str) -> None:
        table = TABLES.get(name)
        if table is None:
            raise ShellError(f"{name or '.schema'}: give a table; .tables lists them")
        width = max(len(each.name) for each in table.columns)
        lines = [f"{each.name:<{width}}  {each.kind.value:<7}  {each.doc}\n" for each in table.columns]
        needs = f" Constrain {' and '.join(table.required)}." if table.required else ""
        text = "".join([f"{table.doc} From {table.source.value}.{needs}\n", *lines])
        self._put(text, paged=True, chop=False)

    def _describe(self, name: str) -> None:
        if name:
            self._schema(name)
        else:
            self._tables(name)

    def _format(self, form: str) -> None:
        if form not in FORMATS:
            close = nearest(form, FORMATS)
            hint = f"; did you mean {close}?" if close else "; .output takes a file" if not form else ""
            raise ShellError(f".format: one of {', '.join(FORMATS)}{hint}")
        self.presentation.form = form

    def _to_file(self, name: str) -> None:
        if not name:
            self._output = None
            return
        path = Path(name).expanduser()
        try:
            path.write_text("")
        except OSError as error:
            raise ShellError(f"{path}: {error.strerror}") from None
        self._output = path
        self._printed = False

    def _parameter(self, text: str) -> None:
        if not text:
            self._put("".join(f"{name} = {value!r}\n" for name, value in self.parameters.items()))
            return
        try:
            name, value = parse_parameter(text)
        except ValueError as error:
            raise ShellError(f".param: {error}") from None
        self.parameters[name] = value

    def _toggle_vertical(self, _: str) -> None:
        self.presentation.form = "table" if self.presentation.form == "vertical" else "vertical"
        self._put(f"format: {self.presentation.form}\n")

    def _full(self, switch: str) -> None:
        if switch not in ("on", "off"):
            raise ShellError(".full: on or off")
        self.session.full = switch == "on"

    def _watch(self, rest: str) -> None:
        period, _, sql = rest.partition(" ")
        try:
            seconds = float(period)
        except ValueError:
            raise ShellError(".watch: give seconds and a statement") from None
        if not 0.1 <= seconds <= 86400 or not sql.strip():
            raise ShellError(".watch: give seconds, 0.1 at least, and a statement")
        while True:
            self._put(f"\x1b[2J\x1b[H{time.strftime('%H:%M:%S')}  {sql}\n")
            self._query(sql)
            time.sleep(seconds)


_COMMANDS: Final[Mapping[str, Callable[[Interpreter, str], None]]] = {
    ".format": Interpreter._format,
    ".full": Interpreter._full,
    ".help": Interpreter._help,
    ".mode": Interpreter._format,
    ".output": Interpreter._to_file,
    ".param": Interpreter._parameter,
    ".quit": Interpreter._quit,
    ".exit": Interpreter._quit,
    ".schema": Interpreter._schema,
    ".tables": Interpreter._tables,
    ".watch": Interpreter._watch,
    "\\?": Interpreter._help,
    "\\d": Interpreter._describe,
    "\\d+": Interpreter._describe,
    "\\dt": Interpreter._describe,
    "\\q": Interpreter._quit,
    "\\x": Interpreter._toggle_vertical,
}
COMMAND_NAMES: Final = tuple(_COMMANDS)
