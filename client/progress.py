"""A display of how far a long read or write is: a bar of tqdm's, in notebooks and on terminals."""

from __future__ import annotations

import asyncio
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TextIO

_SHOWN_EVERY: Final = 0.2
"""Seconds."""

_FORMAT: Final = "{desc}: {n:,} records in {elapsed}, {rate_noinv_fmt}{postfix}"


@dataclass(frozen=True, slots=True)
class Advance:
    """How far something is."""

    records: int
    details: str
    """For people: bytes, positions."""


class Progress:
    """Shows what `look` tells, every moment until `close`; where nothing can be drawn over, as in a file or a pipe, once, at the end. Nothing is done
    for each record."""

    def __init__(self, label: str, look: Callable[[], Advance]) -> None:
        """Begins at once, on the running loop.

        Raises:
            ImportError: tqdm is not installed.
        """
        kind = _bar_class()
        self._drawn = _can_draw_over(sys.stderr)
        self._bar = kind(
            desc=label,
            unit=" records",
            unit_scale=True,
            mininterval=0,
            miniters=0,
            bar_format=_FORMAT,
            delay=0 if self._drawn else math.inf,
        )
        self._look = look
        self._task: asyncio.Task[None] | None = asyncio.get_running_loop().create_task(self._run(), name=label)

    async def _run(self) -> None:
        while self._drawn:
            self._show()
            await asyncio.sleep(_SHOWN_EVERY)

    def _show(self) -> None:
        now = self._look()
        self._bar.set_postfix_str(now.details, refresh=False)
        self._bar.update(now.records - self._bar.n)
        if self._drawn:
            self._bar.refresh()

    def close(self) -> None:
        """Show the last state, and no more. Harmless when called again."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._show()
            self._bar.close()
            if not self._drawn:
                print(self._bar, file=sys.stderr, flush=True)


def _can_draw_over(stream: TextIO) -> bool:
    """Whether a line can be replaced: on terminals and in notebooks."""
    return stream.isatty() or type(stream).__module__.startswith("ipykernel.")


def _bar_class() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without ipywidgets a notebook shows the bar as text, which is fine
            from tqdm.auto import tqdm
    except ModuleNotFoundError:
        text = "progress=True needs tqdm, which is not installed: pip install 'logdevice-py[notebook]'"
        raise ModuleNotFoundError(text, name="tqdm") from None

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # tqdm's watching thread is not needed: somebody calls every moment

    return Bar


def shown_bytes(size: int) -> str:
    """``34.2 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.1f} {unit}" if unit != "B" else f"{size} B"
        size /= 1000  # type: ignore[assignment]
    return f"{size:.1f} TB"
