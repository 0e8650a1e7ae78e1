"""Completion and colours of what is typed into the shell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.lexers import Lexer

from ldquery.formats import FORMATS
from ldquery.interpreter import COMMAND_NAMES
from ldquery.literals import tokens
from logdevice_py.tables.catalog import TABLES

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
_ARGUMENTS: Final = {
    ".format": tuple(FORMATS),
    ".mode": tuple(FORMATS),
    ".schema": tuple(TABLES),
    "\\d": tuple(TABLES),
    "\\d+": tuple(TABLES),
    "\\dt": tuple(TABLES),
    ".full": ("on", "off"),
}
_STYLES: Final = {"string": "ansigreen", "comment": "ansibrightblack", "blob": "ansigreen"}
_WORD: Final = re.compile(r"\w*$")


class SqlCompleter(Completer):
    """Completes commands and their arguments, keywords, tables, aliases, and the columns of tables that the statement names."""

    def __init__(self) -> None:
        self._files = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What the word before the cursor may become."""
        line = document.current_line_before_cursor.lstrip()
        command, space, argument = line.partition(" ")
        if command.startswith((".", "\\")) and command != ".watch":
            if command == ".output" and space:
                return self._files.get_completions(Document(argument), complete_event)
            typed = argument if space else command
            return _beginning(typed, _ARGUMENTS.get(command, ()) if space else COMMAND_NAMES, "")
        return _of_statement(document.text_before_cursor, document.text_after_cursor)


def _beginning(typed: str, names: Iterable[str], kind: str) -> Iterator[Completion]:
    for name in names:
        if name.startswith(typed.lower()) and name != typed.lower():
            yield Completion(name, -len(typed), display_meta=kind)


def _of_statement(before: str, after: str) -> Iterator[Completion]:
    """What may stand at the cursor in a statement."""
    if not before.strip():
        return
    behind, ahead = list(tokens(before)), list(tokens(after))
    if behind[-1][0] in ("open", "comment"):  # within a text or a comment
        return
    semicolons = [place for place, token in enumerate(behind) if token == ("other", ";")]
    behind = behind[semicolons[-1] + 1 :] if semicolons else behind
    ahead = ahead[: ahead.index(("other", ";"))] if ("other", ";") in ahead else ahead
    match = _WORD.search(before)
    word = match[0] if match is not None else ""
    named = _named_tables([*behind, *ahead])
    earlier = [text.lower() for kind, text in behind if kind != "comment" and not text.isspace()]
    earlier = earlier[:-1] if word and earlier else earlier
    if earlier[-1:] == ["."]:
        table = TABLES.get(named.get(earlier[-2] if len(earlier) > 1 else "", ""))
        if table is not None:
            yield from _beginning(word, [each.name for each in table.columns], "column")
        return
    if word or earlier[-1:] in (["from"], ["join"]):
        if word:
            columns = {each.name for name in named.values() for each in TABLES[name].columns}
            yield from _beginning(word, sorted(columns), "column")
            yield from _beginning(word, sorted(name for name in named if name not in TABLES), "alias")
        yield from _beginning(word, sorted(TABLES), "table")
        if word:
            yield from _beginning(word, sorted(_KEYWORDS), "")


def _named_tables(statement: list[tuple[str, str]]) -> dict[str, str]:
    """The tables that a statement names, by their names and by their aliases."""
    words = [text.lower() for kind, text in statement if kind != "comment" and not text.isspace()]
    found: dict[str, str] = {}
    for place, name in enumerate(words):
        if name not in TABLES or words[max(0, place - 1) : place] == ["."]:
            continue
        found[name] = name
        further = words[place + 1 : place + 3]
        alias = "".join(further[1:] if further[:1] == ["as"] else further[:1])
        if alias.isidentifier() and alias not in _KEYWORDS:
            found[alias] = name
    return found


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
