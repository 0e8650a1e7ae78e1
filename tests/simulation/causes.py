"""What a simulation that failed comes from."""

from __future__ import annotations


def innermost(error: BaseException) -> BaseException:
    """The first exception within causes and groups."""
    while isinstance(error, BaseExceptionGroup) or error.__cause__ is not None:
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error
    return error
