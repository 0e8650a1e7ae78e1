"""One task of a write whose rows are to be in the logs once, however often it is tried, and by several tries at once.

What earlier tries appended is read first, and rows that are there are left out, whatever their order: Spark gives a task its rows in another order
when they come from a shuffle. From then on nobody else appends for this task: a try that is overtaken fails, and Spark has the later one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from client.buffered_writer import BufferedWriter
from client.client import Client
from client.receipt import Receipts
from client.spark.earlier_tries import earlier_tries
from client.spark.naming import WriteName
from client.spark.rows import Rows
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros

_TAKEOVERS_MAX: Final = 20


class ExactAppends:
    """The rows of one task for one log."""

    def __init__(
        self,
        client: Client,
        writer: BufferedWriter,
        log: LogId,
        name: WriteName,
        *,
        since: int | None,
        timeout_us: Micros,
    ) -> None:
        self._client = client
        self._writer = writer
        self._log = log
        self._name = name
        self._since = since
        self._timeout_us = timeout_us
        self._view: Epoch | None = None
        self._owned = False
        """Something of this try is acknowledged: from here on another's try ends it."""
        self._left: Counter[bytes] = Counter()
        """Records of earlier tries that no row has come for yet."""
        self._matched: Counter[bytes] = Counter()
        self._held = Rows([])
        """Rows that are not in the log, kept until there is a row for every record of earlier tries."""
        self.outcomes: list[asyncio.Future[Receipts]] = []
        self.partitions = 0
        """Those with records in the log, as in `EarlierTries`."""

    async def append(self, rows: Rows) -> None:
        """Take rows."""
        if self._view is None:
            await self._look(min_epoch=0)
        if self._left:
            self._held.add(self._unmatched(rows))
            if self._left:
                return
            rows, self._held = self._held, Rows([])
        if not rows:
            return
        if self._owned:
            await self._writer.ready()
            self._hand_over(rows)
        else:
            await self._take_over(rows)

    def finish(self) -> None:
        """No further rows come.

        Raises:
            LogDeviceError: INVALID_PARAM: earlier tries appended records that are none of the rows. Nothing was appended to the log by this one.
        """
        count = self._left.total()
        if count:
            raise LogDeviceError(
                Status.INVALID_PARAM,
                f"log {self._log}: earlier tries of this task appended {count} records that are none of its rows this time; its input, its "
                "functions or its partitions are not the same, or somebody else appended under its writer id. This try of the task appended nothing to the log; other tasks may have appended rows. Write the "
                "same rows in the same partitions, or drop what is there and write as another job",
            )

    async def _look(self, min_epoch: int) -> None:
        found = await earlier_tries(
            self._client,
            self._log,
            self._name,
            since=self._since,
            min_epoch=min_epoch,
            timeout_us=self._timeout_us,
        )
        self._view = found.view
        self.partitions |= found.partitions
        self._left = found.stored - self._matched

    def _unmatched(self, rows: Rows) -> Rows:
        """The rows for which there is no record of an earlier try."""
        left = self._left
        if not left:
            return rows
        rest: list[int] = []
        for index, digest in enumerate(rows.digests()):
            if digest in left:
                left[digest] -= 1
                if not left[digest]:
                    del left[digest]
                self._matched[digest] += 1
            else:
                rest.append(index)
        return rows.chosen(rest)

    async def _take_over(self, rows: Rows) -> None:
        """Append the first rows; look again for what others appended when one of them is ahead."""
        for _ in range(_TAKEOVERS_MAX):
            assert self._view is not None
            self._writer.take_over(self._log, self._name.writer, self._view)
            outcome = self._hand_over(rows)
            try:
                await outcome
            except LogDeviceError as error:
                if error.status is not Status.WRITE_STREAM_BROKEN:
                    raise
                self.outcomes.pop()
                await self._look(min_epoch=self._view + 1)
                rows = self._unmatched(rows)
                if self._left or not rows:
                    self._held = rows
                    return
            else:
                self._owned = True
                return
        raise LogDeviceError(
            Status.WRITE_STREAM_BROKEN,
            f"log {self._log}: other tries of this task get ahead of this one again and again",
        )

    def _hand_over(self, rows: Rows) -> asyncio.Future[Receipts]:
        outcome = self._writer.append_many(self._log, rows.payloads, keys=rows.keys)
        assert isinstance(outcome, asyncio.Future)
        self.outcomes.append(outcome)
        return outcome
