"""How far the demo is: a line that is rewritten on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import time

BAR = 28
TEXT = 50
"""Columns that the rest of the line takes."""
REWRITE = 0.05
"""Seconds between rewritings."""
RATE_AFTER = 0.3
"""Seconds after which a rate means something."""


class DemoProgress:
    """Of one phase."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, max(1, total)
        self._terminal = sys.stderr.isatty()
        self._start = time.monotonic()
        self._last = 0.0
        self._quarters = 0
        self._done = 0

    def show(self, done: int) -> None:
        """So many records are done."""
        self._done = done
        now = time.monotonic()
        if self._terminal:
            if now - self._last >= REWRITE:
                self._last = now
                self._rewrite(now)
        elif done < self._total and int(done / self._total * 4) > self._quarters:
            self._quarters = int(done / self._total * 4)
            self._line(now)

    def say(self, text: str) -> None:
        """A line that stays."""
        print(("\r\x1b[K" if self._terminal else "") + f"  {text}", file=sys.stderr, flush=True)

    def end(self) -> None:
        """The last state stays."""
        if self._terminal:
            self._rewrite(time.monotonic())
            print(file=sys.stderr)
        else:
            self._line(time.monotonic())

    def _line(self, now: float) -> None:
        print(
            f"  {self._what:<6} {self._share():4.0%}  {self._records()} after {now - self._start:.1f} s",
            file=sys.stderr,
            flush=True,
        )

    def _rewrite(self, now: float) -> None:
        width = max(4, min(BAR, shutil.get_terminal_size().columns - TEXT))
        filled = round(self._share() * width)
        bar = "━" * filled + "╌" * (width - filled)
        seconds = now - self._start
        rate = f"  {self._done / seconds:,.0f}/s" if seconds >= RATE_AFTER else ""
        text = f"  {self._what:<6} {bar} {self._share():4.0%}  {self._records()}{rate}"
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def _records(self) -> str:
        return f"{self._done:,} record{'' if self._done == 1 else 's'}"

    def _share(self) -> float:
        return min(1.0, self._done / self._total)
