"""What a caller waits for. The shell passes futures of its event loop; machines see only these methods."""

from __future__ import annotations

from typing import Any, Protocol


class Promise(Protocol):
    """The part of `asyncio.Future` that machines use."""

    def done(self) -> bool:
        """It has its outcome already; a caller that stopped waiting cancelled it."""

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...

    def exception(self) -> BaseException | None:
        """Calling it marks the exception as seen."""


def keep(promise: Promise | None, result: Any) -> None:
    """Deliver a result to whoever still waits for it."""
    if promise is not None and not promise.done():
        promise.set_result(result)


def break_(promise: Promise | None, error: BaseException) -> None:
    """Deliver an error to whoever still waits."""
    if promise is not None and not promise.done():
        promise.set_exception(error)
