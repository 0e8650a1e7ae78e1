"""The member of examples/exactly_once.py, killed at a step: ``python -m tests.integration.exactly_once_worker FILE DATABASE``.

Each line of the input, ``ROWS STEP``, is one more process, of which the wait status is printed. A step is before or after any call of the database.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from examples.exactly_once import OrdersTable, connect, consume


class KilledConnection:
    """A connection whose process is killed at a step."""

    def __init__(self, connection: Any, step: int) -> None:
        self._connection = connection
        self._left = step

    def _step(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._connection, name)

        def stepped(*arguments: Any) -> Any:
            self._step()
            result = call(*arguments)
            self._step()
            return result

        return stepped


def run(file: str, database: str, rows: int, step: int) -> None:
    """The process: to its end, or to the step."""
    mark = "%s" if database.startswith("postgresql:") else "?"
    table = OrdersTable(KilledConnection(connect(database), step), mark)
    asyncio.run(consume(file, "the only one", table, rows))


if __name__ == "__main__":
    for line in sys.stdin:
        rows, step = map(int, line.split())
        child = os.fork()  # what is imported need not be imported again
        if child == 0:
            run(*sys.argv[1:], rows, step)
            os._exit(0)
        print(os.waitpid(child, 0)[1], flush=True)
