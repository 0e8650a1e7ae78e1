"""A node that tells what holds its memory: ``python -m benchmarks.node_memory.inside OUTPUT MODULE [ARGUMENT...]`` runs a program of ours.

At SIGUSR1 it writes a report to OUTPUT: what the allocator of the C library has taken and what of that is free, and which objects take most.
"""

from __future__ import annotations

import ctypes
import gc
import json
import signal
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Final

TELL: Final = signal.SIGUSR1
_TYPES_TOLD: Final = 25
_ATOMS: Final = (bytes, bytearray, int, str, float)
"""Objects that the garbage collector does not list: found through those that refer to them."""


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def allocator() -> dict[str, int]:
    """Bytes that malloc has from the kernel, in its heap and in mappings of their own, and what is in use and free of the heap; nothing where the
    C library does not tell.
    """
    try:
        mallinfo2: Any = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return {}
    mallinfo2.restype = _Mallinfo2
    told = mallinfo2()
    return {"heap": told.arena, "mapped": told.hblkhd, "in use": told.uordblks, "free": told.fordblks}


def objects() -> dict[str, dict[str, int]]:
    """By type, those that take most: how many there are, and their bytes."""
    gc.unfreeze()
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    pending = gc.get_objects()
    while pending:
        found: list[Any] = []
        for each in pending:
            if id(each) in seen or each is pending or each is seen:
                continue
            seen.add(id(each))
            kind = type(each)
            name = f"{kind.__module__}.{kind.__qualname__}"
            counts[name] += 1
            sizes[name] += sys.getsizeof(each)
            if not isinstance(each, _ATOMS):
                # a tuple or dictionary of atoms alone is not listed either
                found += [other for other in gc.get_referents(each) if id(other) not in seen]
        pending = found
    return {name: {"count": counts[name], "bytes": size} for name, size in sizes.most_common(_TYPES_TOLD)}


def main() -> int:
    """The program's own exit status."""
    output, module = Path(sys.argv[1]), sys.argv[2]
    program: Any = import_module(module).main

    def tell(_number: int, _frame: FrameType | None) -> None:
        report = {"allocator": allocator(), "objects": objects()}
        made = output.with_suffix(".new")
        made.write_text(json.dumps(report, indent=1))
        made.rename(output)

    signal.signal(TELL, tell)
    return int(program(sys.argv[3:]) or 0)


if __name__ == "__main__":
    sys.exit(main())
