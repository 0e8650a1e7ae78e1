"""Runs a program of ours under the sampling profiler: ``python -m benchmarks.ldbench.profiled OUTPUT MODULE [ARGUMENT...]``.

It samples between SIGUSR1 and SIGUSR2; without a sample there is no file.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.ldbench.sampling import StackSampler


def main() -> int:
    """The program's own exit status; the stacks are written when it ends in order."""
    output, module = Path(sys.argv[1]), sys.argv[2]
    program: Any = import_module(module).main
    sampler = StackSampler()
    sampler.obey_signals()
    try:
        return int(program(sys.argv[3:]) or 0)
    finally:
        sampler.stop()
        if sampler.stacks:
            sampler.save(output)


if __name__ == "__main__":
    sys.exit(main())
