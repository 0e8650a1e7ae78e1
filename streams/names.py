"""Names of streams: words between slashes, like ``team/orders``. A directory is what names have before a slash; nobody makes or removes it."""

from __future__ import annotations

import re
from typing import Any, Final

from client.replica.commands import refuse
from logdevice_py.core.status import Status

NAME_CHARACTERS_MAX: Final = 1024
"""Of a whole name."""
_RULE: Final = (
    f"1 to 255 letters, digits, _, . and -, and again behind each slash, {NAME_CHARACTERS_MAX} in all at most"
)
_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,255}")


def checked_name(name: Any) -> str:
    """A name of a stream; CommandRefused when it is none. What a name is belongs to the format of commands: all replicas judge alike."""
    if type(name) is not str or len(name) > NAME_CHARACTERS_MAX:
        raise refuse(Status.INVALID_PARAM, f"a name of a stream has {_RULE}")
    for word in name.split("/"):
        if _WORD.fullmatch(word) is None:
            shown = name[:60]
            raise refuse(
                Status.INVALID_PARAM,
                f"{shown!r} is no name of a stream: it has {_RULE}",
            )
    return name


def checked_new_name(name: Any) -> str:
    """A name that a stream is to get. Who asks for it checks that, and no replica: streams that have another one by an earlier version keep it."""
    if not {".", ".."}.isdisjoint(checked_name(name).split("/")):
        raise refuse(Status.INVALID_PARAM, f"{name[:60]!r}: no part of a stream's name is . or ..")
    return str(name)


def is_below(name: str, directory: str) -> bool:
    """Whether a stream is in a directory or below it; everything is below the empty one."""
    return not directory or name.startswith(f"{directory}/")
