"""Takes input apart: statements, which end with ; and commands, which are a line that begins with a dot or a backslash.

A command may stand on a line of its own within a statement: it is done first, and the statement goes on behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ldquery.literals import tokens, tokens_from

WORDS: Final = {"exit": ".quit", "quit": ".quit", "help": ".help"}
"""Commands that people type without a dot, where no statement is open."""
DOT_COMMANDS: Final = (
    ".exit",
    ".format",
    ".full",
    ".help",
    ".mode",
    ".output",
    ".param",
    ".quit",
    ".schema",
    ".tables",
    ".watch",
)
_COMMAND: Final = re.compile(r"[.\\][^\n]*|(?:exit|quit|help)[ \t;]*$", re.IGNORECASE | re.MULTILINE)
# a line of a statement may well begin with a dot, as .node_id does, but SQL knows no backslash
_COMMAND_WITHIN: Final = re.compile(rf"[ \t]*(\\[^\n]*|(?:{'|'.join(map(re.escape, DOT_COMMANDS))})(?![\w.])[^\n]*)")


@dataclass(frozen=True, slots=True)
class Piece:
    """A statement without its ; or a command."""

    text: str
    line: int
    """Of the input, from 1."""
    interrupted: bool = False
    """A statement that is not ended, with a command in it: who types it goes on with it."""

    @property
    def is_command(self) -> bool:
        """Whether it is no SQL."""
        return self.text.startswith((".", "\\"))


def pieces(text: str) -> Iterator[Piece]:
    """The statements and commands of an input, without those that hold nothing but comments."""
    place, line, counted = 0, 1, 0
    while place < len(text):
        begin = _skip_blanks(text, place)
        line += text.count("\n", counted, begin)
        counted = begin
        command = _COMMAND.match(text, begin)
        if command is not None:
            place = command.end()
            words = command[0].rstrip(" \t\r;")
            yield Piece(WORDS.get(words.lower(), words), line)
            continue
        statement, commands, place, ended = _statement(text, begin)
        for at in commands:
            words = text[at:].partition("\n")[0]
            yield Piece(words.strip(" \t\r;"), line + text.count("\n", begin, at))
        if statement:
            yield Piece(statement.rstrip(), line, interrupted=bool(commands) and not ended)


def _statement(text: str, begin: int) -> tuple[str, list[int], int, bool]:
    """The statement that begins at a place, without its ; and the commands in it; where these begin; where what follows begins; whether it has its ;."""
    kept: list[str] = []
    commands: list[int] = []
    place = begin
    while place < len(text):
        for kind, token in tokens_from(text, place):
            place += len(token)
            if kind == "other" and token == ";":
                return "".join(kept), commands, place, True
            kept.append(token)
            if token == "\n" and (command := _COMMAND_WITHIN.match(text, place)):
                commands.append(place)
                place = command.end()
                break
    return "".join(kept), commands, place, False


def _skip_blanks(text: str, place: int) -> int:
    """Where something begins that is neither blank nor a comment."""
    for kind, token in tokens_from(text, place):
        if kind != "comment" and not token.isspace():
            return place
        place += len(token)
    return place


def is_complete(text: str) -> bool:
    """Whether Enter ends the input: nothing at all, a command, also as the last line of a statement, or a statement up to its ; outside of literals."""
    if not text.strip() or _COMMAND.match(text.strip()):
        return True
    lines, last = _last_line(text)
    if _COMMAND_WITHIN.match(last) and _is_outside_of_literals(lines):
        return True
    ends = [piece for kind, piece in tokens(text) if kind != "comment" and piece.strip()]
    return bool(ends) and ends[-1] == ";"


def hint(text: str) -> str | None:
    """What to tell somebody who ends a line of an open statement with a command that is none there."""
    lines, last = _last_line(text)
    word = last.strip(" \t;")
    if not lines:
        return None
    if not _is_outside_of_literals(lines):
        if _COMMAND_WITHIN.match(last) or word.lower() in WORDS:
            return f"{word} is within quotes or a comment that are not closed: close them, or drop the statement with Ctrl-C"
    elif word.lower() in WORDS:
        return f"{word} is part of the statement, which goes on until ; stands there: \\q leaves, Ctrl-C drops the statement"
    return None


def _last_line(text: str) -> tuple[str, str]:
    """The lines before the last one, and that one."""
    lines, newline, last = text.rpartition("\n")
    return lines + newline, last


def _is_outside_of_literals(lines: str) -> bool:
    """Whether what follows whole lines is neither in quotes nor in a comment."""
    last = list(tokens(lines))[-1:]
    return last == [("other", "\n")]
