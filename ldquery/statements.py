"""Takes input apart: statements, which end with ; and commands, which are a line that begins with a dot or a backslash."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ldquery.literals import tokens, tokens_from

WORDS: Final = {"exit": ".quit", "quit": ".quit", "help": ".help"}
"""Commands that people type without a dot."""
_COMMAND: Final = re.compile(r"[.\\][^\n]*|(?:exit|quit|help)[ \t;]*$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Piece:
    """A statement without its ; or a command."""

    text: str
    line: int
    """Of the input, from 1."""

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
        place = len(text)
        end = place
        position = begin
        for kind, token in tokens_from(text, begin):
            if kind == "other" and token == ";":
                end, place = position, position + 1
                break
            position += len(token)
        if begin < end:
            yield Piece(text[begin:end].rstrip(), line)


def _skip_blanks(text: str, place: int) -> int:
    """Where something begins that is neither blank nor a comment."""
    for kind, token in tokens_from(text, place):
        if kind != "comment" and not token.isspace():
            return place
        place += len(token)
    return place


def is_complete(text: str) -> bool:
    """Whether Enter ends the input: a command, nothing at all, or a statement up to its ; outside of literals."""
    if not text.strip() or _COMMAND.match(text.strip()):
        return True
    ends = [piece for kind, piece in tokens(text) if kind != "comment" and piece.strip()]
    return bool(ends) and ends[-1] == ";"
