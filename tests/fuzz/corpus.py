"""The corpus that is committed: for each target a few inputs that reach what the seeds do not, and the inputs of findings that were fixed."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.checking import Target, check

_DIRECTORY = Path(__file__).parent / "corpus"
_SIZE_MAX = 200
"""Bytes of an input that `distil` chooses."""
_COUNT_MAX = 12
_ROOT = str(Path(__file__).resolve().parents[2])


def committed(name: str) -> list[bytes]:
    """The inputs of one target: a line of base64 each, so that a file holds many and a diff shows them; `#` begins a comment."""
    found = []
    for path in (_DIRECTORY / f"{name}.txt", _DIRECTORY / f"{name}.fixed.txt"):
        if path.exists():
            lines = path.read_text().splitlines()
            found += [base64.b64decode(line) for line in lines if line and not line.startswith("#")]
    return found


def distil(target: Target, directory: Path) -> str:
    """Choose from a corpus, smallest first, what reaches lines that seeds and what was chosen before do not; says how much that is."""
    seen: set[Any] = set()
    for data in target.seeds():
        seen |= _lines(target, data)
    begun = len(seen)
    inputs = sorted((path.read_bytes() for path in directory.glob("*")), key=lambda data: (len(data), data))
    chosen: list[bytes] = []
    for data in inputs:
        if len(data) > _SIZE_MAX or len(chosen) == _COUNT_MAX:
            break
        reached = _lines(target, data)
        if not reached <= seen:
            seen |= reached
            chosen.append(data)
    _DIRECTORY.mkdir(exist_ok=True)
    (_DIRECTORY / f"{target.name}.txt").write_text("".join(f"{base64.b64encode(data).decode()}\n" for data in chosen))
    return f"{begun} lines by seeds, {len(seen) - begun} more by {len(chosen)} of {len(inputs)} inputs, {sum(map(len, chosen))} bytes"


def _lines(target: Target, data: bytes) -> set[Any]:
    """The lines of this repository and of tomllib that an input reaches."""
    reached: set[Any] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if not (name.startswith(_ROOT) or "tomllib" in name) or "/tests/fuzz/" in name:
            return None
        reached.add((name, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        check(target, data, slack=1000.0)
    finally:
        sys.settrace(None)
    return reached
