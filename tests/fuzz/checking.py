"""What a fuzz target is, and the check of one input: which exceptions are allowed, and how much time and memory an input may cost."""

from __future__ import annotations

import contextlib
import resource
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SECONDS_MAX = 0.05
"""Processor time that an input of up to `SIZE_MAX` bytes may take."""
MEMORY_MAX = 64 << 20
"""Bytes by which an input may make the process larger."""
SIZE_MAX = 64 << 10
"""Bytes of the largest input."""
_ATTEMPTS = 5
_ROOT = Path(__file__).resolve().parents[2]
_PAGE = resource.getpagesize()


class RoundTripError(Exception):
    """What was decoded is not what its own encoding decodes to."""


@dataclass(frozen=True)
class Target:
    """A decoder under test."""

    name: str
    run: Callable[[bytes], None]
    """Decodes an input, uses what comes out, encodes it and decodes it again. It may raise only what is declared."""
    seeds: Callable[[], list[bytes]]
    """Valid inputs from the encoders, which the fuzzer mutates first."""
    declared: tuple[type[Exception], ...]
    """The errors by which the decoder refuses an input."""
    words: tuple[bytes, ...] = ()
    """Pieces of valid inputs that mutations insert."""
    seconds_max: float = SECONDS_MAX
    memory_max: int = MEMORY_MAX


@dataclass(frozen=True)
class Finding:
    """An input that a target does not take as it should."""

    target: str
    kind: str
    """``exception``, ``slow`` or ``memory``."""
    where: str
    """The type of the exception and the innermost line of this repository, or the cost: findings that agree in it have one cause."""
    text: str
    data: bytes

    @property
    def key(self) -> tuple[str, str, str]:
        """Equal for findings that count as one."""
        return self.target, self.kind, "" if self.kind == "slow" else self.where


def check(target: Target, data: bytes, *, slack: float = 1.0) -> Finding | None:
    """Run one input; None: all is well.

    Args:
        slack: factor on the allowed time, for code that is slowed down by instrumentation.
    """
    seconds = []
    for _ in range(_ATTEMPTS):  # the least of several: the machine may be busy
        began = time.thread_time()
        try:
            with _limited_memory(target.memory_max):
                target.run(data)
        except target.declared:
            pass
        except Exception as error:  # noqa: BLE001 - anything else is what is looked for
            kind = "memory" if isinstance(error, MemoryError) else "exception"
            text = "".join(traceback.format_exception(error))
            return Finding(target.name, kind, _where(error), text, data)
        seconds.append(time.thread_time() - began)
        if seconds[-1] <= target.seconds_max * slack:
            return None
    cost = f"{min(seconds) * 1000:.0f} ms for {len(data)} bytes"
    return Finding(target.name, "slow", cost, cost, data)


def _where(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(str(_ROOT))]
    frames = [frame for frame in frames if ".venv" not in frame.filename] or frames
    at = f"{Path(frames[-1].filename).relative_to(_ROOT)}:{frames[-1].lineno}" if frames else "elsewhere"
    return f"{type(error).__name__} at {at}"


@contextlib.contextmanager
def _limited_memory(size: int) -> Iterator[None]:
    """Allocations that make the process larger than this raise MemoryError, also those that are never written to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", "rb") as file:
        used = int(file.read().split(b" ", 1)[0]) * _PAGE
    resource.setrlimit(resource.RLIMIT_AS, (used + size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
