"""Turns LSNs that are written as string literals into numbers, before SQLite sees them.

LSN columns hold integers. SQLite would compare one with the text 'e3n17' without a complaint, and always find them different.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

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


def tokens(statement: str) -> Iterator[tuple[str, str]]:
    """The tokens of a statement, as (kind, text); their texts joined are the statement."""
    for match in _TOKEN.finditer(statement):
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
    try:
        lsn = LSN.parse(content)
    except ValueError as error:
        raise LogDeviceError(Status.INVALID_PARAM, str(error)) from None
    return f" {int(lsn)} "  # in blanks: SQLite takes a literal for a token of its own, whatever stands beside it
