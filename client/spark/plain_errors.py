"""Errors that the driver shows in a few lines."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from logdevice_py.core.status import LogDeviceError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def told_plainly(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Raises our errors without the frames that they passed: Spark puts those of its worker before the text, where nobody finds it."""

    @functools.wraps(method)
    def plain(*arguments: _P.args, **named: _P.kwargs) -> _R:
        try:
            return method(*arguments, **named)
        except LogDeviceError as error:
            raise error.with_traceback(None) from None

    return plain
