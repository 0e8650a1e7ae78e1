"""Turns LSNs that are written as string literals into numbers, before SQLite sees them, and gives parameters their values.

LSN columns hold integers. SQLite would compare one with the text 'e3n17' silently, and always find them different.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status

# As SQLite takes SQL apart: what can hold a quote is recognised as a whole, everything else may be cut anywhere. A quote that is not closed takes the
# rest, also with SQLite: to look for its end again at each of many would take quadratic time.
_TOKEN: Final = re.compile(
    r"""
      (?P<comment> --[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<blob>    [xX]'[^']*' )
    | (?P<string>  '(?:[^']|'')*' )
    | (?P<quoted>  "(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]]*\] )
    | (?P<word>    [A-Za-z_$0-9\u0080-\U0010ffff]+ )
    | (?P<open>    ['"`\[].* )
    | (?P<other>   . )
    """,
    re.VERBOSE | re.DOTALL,
)
_LSN: Final = re.compile(r"e\d+n\d+")
_PARAMETER: Final = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)=(.*)", re.DOTALL)
_INTEGER: Final = re.compile(r"[+-]?\d+")
_REAL: Final = re.compile(r"[+-]?(?:\d+\.\d*|\.?\d+)(?:[eE][+-]?\d+)?")
_INTEGER_MAX: Final = (1 << 63) - 1

FUNCTIONS_ELSEWHERE: Final = {
    "now": "write datetime('now') for a text, unixepoch() * 1000000 to compare with columns, which hold microseconds since 1970; both are UTC",
    "to_timestamp": "write datetime(tail_time / 1000000, 'unixepoch') for a text: columns hold microseconds since 1970",
}
"""What stands here for functions that PostgreSQL has and SQLite has not."""


def tokens(statement: str) -> Iterator[tuple[str, str]]:
    """The tokens of a statement, as (kind, text); their texts joined are the statement."""
    return tokens_from(statement, 0)


def tokens_from(text: str, place: int) -> Iterator[tuple[str, str]]:
    """The tokens from a place of a text on."""
    for match in _TOKEN.finditer(text, place):
        assert match.lastgroup is not None
        yield match.lastgroup, match[0]


def replace_lsns(statement: str) -> str:
    """The statement with the number in place of every string literal of the form 'e3n17'.

    Raises:
        LogDeviceError: INVALID_PARAM: a literal of that form is out of the range of LSNs.
    """
    return "".join(_number(text) if kind == "string" else text for kind, text in tokens(statement))


def _number(literal: str) -> str:
    content = literal[1:-1]
    if _LSN.fullmatch(content) is None:
        return literal
    return f" {_parse_lsn(content)} "  # in blanks: SQLite takes a literal for a token of its own, whatever stands beside it


def _parse_lsn(text: str) -> int:
    try:
        return int(LSN.parse(text))
    except ValueError as error:
        raise LogDeviceError(Status.INVALID_PARAM, str(error)) from None


# Parameters


def parse_parameter(text: str) -> tuple[str, int | float | str]:
    """Name and value of ``log=7``. A value is an integer, a number or an LSN if it looks like one; 'in quotes' it is text.

    Raises:
        ValueError: it is none.
    """
    match = _PARAMETER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no parameter: write NAME=VALUE, like log=7")
    name, value = match.groups()
    if len(value) >= 2 and value[0] == value[-1] == "'":
        return name, value[1:-1].replace("''", "'")
    if _INTEGER.fullmatch(value):
        return name, int(value)
    return name, float(value) if _REAL.fullmatch(value) else value


def bind(statement: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the parameters that a statement names, as :log, $log or @log; texts like e3n17 mean that LSN, as literals do.

    Raises:
        LogDeviceError: INVALID_PARAM: one has no value, or one that SQL does not have, or no name.
    """
    return {name: _value(name, parameters) for name in _parameter_names(statement)}


def _parameter_names(statement: str) -> Iterator[str]:
    marked = False
    for kind, text in tokens(statement):
        if marked and kind == "other" and text == ":":
            raise LogDeviceError(
                Status.INVALID_PARAM,
                "SQLite has no casts with :: as PostgreSQL: write CAST(log_id AS TEXT); its types are TEXT, INTEGER and REAL",
            )
        if kind == "other" and text == "?":
            raise LogDeviceError(Status.INVALID_PARAM, "parameters have names: write :log, not ?")
        if kind == "word" and (marked or text.startswith("$")):
            yield text.removeprefix("$")
        marked = kind == "other" and text in (":", "@")


def _value(name: str, parameters: Mapping[str, Any]) -> Any:
    if name not in parameters:
        raise LogDeviceError(
            Status.INVALID_PARAM,
            f"parameter {name} has no value: give -p {name}=VALUE, in the shell .param {name}=VALUE",
        )
    value = parameters[name]
    if isinstance(value, str) and _LSN.fullmatch(value):
        return _parse_lsn(value)
    if isinstance(value, int) and not -_INTEGER_MAX - 1 <= value <= _INTEGER_MAX:
        raise LogDeviceError(Status.INVALID_PARAM, f"parameter {name}: {value} has more than the 64 bits of an integer")
    if value is not None and not isinstance(value, int | float | str | bytes):
        raise LogDeviceError(Status.INVALID_PARAM, f"parameter {name}: SQL has no {type(value).__name__}")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise LogDeviceError(Status.INVALID_PARAM, f"parameter {name} is no text in UTF-8") from None
    return value
