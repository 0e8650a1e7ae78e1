"""Has another process bring cold ranges of logs into the page cache, see `docs/decisions/0003-reads-of-cold-data.md`."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Final

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from logdevice_py.programs import own_program
from storage_node.log_store.wanted import Wants, encode_wants

_TIMEOUT: Final = 30.0
STARTS_MAX: Final = 5
_MODULE: Final = "storage_node.log_store.rocksdb.warming"


class Warmer:
    """The other process, started when it is first needed.

    Nothing that it says is relied upon: without it, or when it lags behind, reads are right and merely slower. Should it end, it is
    started again, a few times.
    """

    def __init__(self, database: str, empty: str) -> None:
        """
        Args:
            empty: a directory in which nothing is ever put; it is made when it is missing.
        """
        self.starts = 0
        """How often the process was started."""
        self._database = database
        self._empty = empty
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._closed = False

    async def warm(
        self, family: str, log: LogId, first: Lsn, last: Lsn, size: int, wants: Wants | None = None
    ) -> Lsn | None:
        """Bring about `size` bytes from `first` into the page cache; returns how far that reached, None if it failed.

        Args:
            wants: as in `ReadShard`.
        """
        async with self._turn:
            while not self._closed and (self.starts < STARTS_MAX or self._process is not None):
                try:
                    async with asyncio.timeout(_TIMEOUT):
                        return await self._ask(f"{family} {log} {first} {last} {size} {encode_wants(wants)}\n")
                except (OSError, ValueError, TimeoutError, RuntimeError):
                    # RuntimeError: uvloop, of a pipe that the other side has closed
                    hit("log_store_warmer_failed")
                    await self._stop()
            return None

    async def _ask(self, line: str) -> Lsn:
        if self._process is None:
            self.starts += 1
            os.makedirs(self._empty, exist_ok=True)
            self._process = await asyncio.create_subprocess_exec(
                *own_program(_MODULE, self._database, self._empty),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(line.encode())
        await stdin.drain()
        return Lsn(int(await stdout.readline()))

    async def _stop(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            self._process = None

    async def close(self) -> None:
        """End the other process."""
        async with self._turn:
            self._closed = True
            await self._stop()
