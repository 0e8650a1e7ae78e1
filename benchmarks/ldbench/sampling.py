"""Where a process spends its CPU time: stacks, sampled by a timer that runs only while the process does.

The cost is one short signal handler a millisecond of CPU time, so what is measured stays what it was, unlike under a tracing profiler.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

INTERVAL: Final = 0.001
START_SAMPLING: Final = signal.SIGUSR1
STOP_SAMPLING: Final = signal.SIGUSR2
"""To a process that `obey_signals`."""
_DEPTH: Final = 60
_ROOT: Final = str(Path(__file__).parents[2]) + "/"


class StackSampler:
    """Counts the stacks of the main thread. It must be started there, and SIGPROF must be free."""

    def __init__(self) -> None:
        self.stacks: Counter[tuple[str, ...]] = Counter()
        """Outermost frame first."""

    def start(self) -> None:
        """Begin, or go on."""
        signal.signal(signal.SIGPROF, self._on_signal)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)

    def stop(self) -> None:
        """Stop; what was counted stays."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)

    def obey_signals(self) -> None:
        """Start and stop when another process says so."""
        signal.signal(START_SAMPLING, lambda number, frame: self.start())
        signal.signal(STOP_SAMPLING, lambda number, frame: self.stop())

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        stack: list[str] = []
        while frame is not None and len(stack) < _DEPTH:
            code = frame.f_code
            stack.append(f"{_short(code.co_filename)}:{code.co_qualname}")
            frame = frame.f_back
        self.stacks[tuple(reversed(stack))] += 1

    def save(self, path: Path) -> None:
        """Write the stacks as flame graph tools read them: ``outer;inner count``."""
        lines = (f"{';'.join(stack)} {count}" for stack, count in sorted(self.stacks.items()))
        path.write_text("".join(f"{line}\n" for line in lines))


def _short(file: str) -> str:
    if file.startswith(_ROOT):
        file = file.removeprefix(_ROOT)
    return re.split(r"/(?:site-packages|lib/python\d+\.\d+)/", file)[-1]


def self_time(text: str, *, by_file: bool) -> list[tuple[str, float]]:
    """Shares of the samples by innermost frame, largest first, of a file that `StackSampler.save` wrote."""
    found: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        innermost = stack.rpartition(";")[2]
        found[innermost.partition(":")[0] if by_file else innermost] += int(count)
    total = sum(found.values())
    return [(name, count / total) for name, count in found.most_common()] if total else []
