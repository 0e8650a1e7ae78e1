"""Finds, in the background, which logs are short of copies because shards began as new generations or left the cluster file.

Each node looks after the logs whose nodesets list its own shards. It reads their epoch metadata from the epoch store, at once when it hears of
another generation or of another cluster file. Only where that says that a shard has lost what it held does the node read headers of its own entries,
until it finds one whose copyset names that shard. A cluster that never lost a disk costs one pass over its logs for each start of a node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from epoch_store.interface import ReadMetadata, Result
from logdevice_py.core.declare import counter, gauge
from logdevice_py.core.ids import LogId, ShardId, shard_index_of
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.runtime.clock import monotonic_us
from logdevice_py.tables.storage import CopiesState, UnderReplicatedLogsRow
from server.lost_copies import LossyEpochs, ShardsPresent, lossy_epochs, restored_by
from storage_node.log_store.interface import ReadResult
from storage_node.log_store.wanted import members, no_body

if TYPE_CHECKING:
    from server.node_view import NodeView

log = logging.getLogger("logdevice.node")

_LOOK: Final = 0.25
"""Seconds between looks whether anything has changed."""
_LOOKS_BETWEEN: Final = 40
"""Looks between two judgements of logs that are known to be short: they are trimmed, or re-replicated, meanwhile."""
_LOGS_AT_A_TIME: Final = 256
_PAUSE: Final = 0.02
"""Seconds between two groups of logs."""
_RETRY: Final = 1.0
"""Seconds after which an epoch store that did not answer is asked again."""
_READ_BYTES: Final = 64 << 10
_READ_ENTRIES: Final = 256
_READ_PAUSE: Final = 0.005
"""Seconds between two reads of one range."""


@dataclass(slots=True)
class CopyReviewMetrics:
    """What a node knows of copies that shards have lost."""

    reviewed: int = gauge("1: the logs were looked through since the shards of the cluster changed last.", unit="flag")
    under_replicated_logs: int = gauge(
        "Logs of which a shard of the node holds entries that lost shards were to have copies of.", unit="logs"
    )
    logs_with_lost_records: int = gauge(
        "Logs of which so many shards of a nodeset lost what they held that records may have no copy left.", unit="logs"
    )
    reviews: int = counter("Passes over all logs.", unit="passes")
    review_time: int = gauge("How long the last pass took.", unit="us")


@dataclass(slots=True)
class _Log:
    """A log some of whose epochs list shards that have lost what they held."""

    lossy: list[LossyEpochs]
    looked_through: dict[tuple[ShardId, LossyEpochs], Lsn] = field(default_factory=dict)
    """Up to here no entry of the shard names a lost shard, and none ever will: what is released does not lose copies any more."""
    rows: list[UnderReplicatedLogsRow] = field(default_factory=list)


class _Changed(Exception):
    """What the review goes by is another one now."""


class CopyReview:
    """The review of one node. `run` does it until it is cancelled."""

    def __init__(self, host: NodeView) -> None:
        self._host = host
        self._logs: dict[LogId, _Log] = {}
        self._reviewed: ShardsPresent | None = None
        """With these all logs were looked through."""
        self._metrics = CopyReviewMetrics()

    @property
    def done(self) -> bool:
        """Whether `rows` says everything that follows from what the node has heard of the shards until now."""
        return not self._host.shards or (self._reviewed is not None and self._reviewed == self._present())

    def rows(self) -> Iterator[UnderReplicatedLogsRow]:
        """Table `under_replicated_logs`."""
        for each in list(self._logs.values()):
            yield from each.rows

    def metrics(self) -> CopyReviewMetrics:
        """As they are now."""
        metrics = self._metrics
        metrics.reviewed = int(self.done)
        metrics.under_replicated_logs = self._count(CopiesState.SHORT)
        metrics.logs_with_lost_records = self._count(CopiesState.GONE)
        return metrics

    def _count(self, state: CopiesState) -> int:
        return sum(any(row.state == state.name for row in each.rows) for each in self._logs.values())

    async def run(self) -> None:
        """Review, and review again what is short and whenever shards change."""
        looks = 0
        while True:
            try:
                present = self._present()
                if present is not None and present != self._reviewed:
                    await self._review(present)
                elif looks % _LOOKS_BETWEEN == 0:
                    await self._judge_again()
                looks += 1
            except _Changed:
                continue
            except Exception:  # a review that fails must not be the last one
                log.exception("which logs are short of copies could not be found out; this is tried again")
                await asyncio.sleep(_RETRY)
            await asyncio.sleep(_LOOK)

    def _present(self) -> ShardsPresent | None:
        """What is known of the shards; None as long as the event log, which may say what was re-replicated, is not read."""
        host = self._host
        rebuilding, gossip = host.node.rebuilding, host.node.gossip
        if rebuilding is not None and not rebuilding.is_known:
            return None
        return ShardsPresent(
            tuple((shard, gossip.generation(shard)) for shard in host.config.storage_shards()),
            () if rebuilding is None else restored_by(rebuilding.set),
        )

    async def _review(self, present: ShardsPresent) -> None:
        began = monotonic_us()
        logs = self._host.config.log_ids()
        found: set[LogId] = set()
        while group := list(islice(logs, _LOGS_AT_A_TIME)):
            for log_id, metadata in await self._metadata_of(group):
                if self._present() != present:
                    raise _Changed
                lossy = [
                    each for each in lossy_epochs(metadata, present, self._host.config.location) if self._ours(each)
                ]
                if lossy:
                    found.add(log_id)
                    before = self._logs.get(log_id)
                    known = {} if before is None else before.looked_through
                    self._logs[log_id] = _Log(lossy, {key: lsn for key, lsn in known.items() if key[1] in lossy})
                    await self._judge(log_id)
            await asyncio.sleep(_PAUSE)
        for log_id in self._logs.keys() - found:
            del self._logs[log_id]
        self._reviewed = present
        self._metrics.reviews += 1
        self._metrics.review_time = Micros(monotonic_us() - began)

    def _ours(self, lossy: LossyEpochs) -> bool:
        return any(shard in lossy.tellers or shard in lossy.intact for shard in self._host.shards)

    async def _metadata_of(self, logs: Sequence[LogId]) -> list[tuple[LogId, EpochMetaData]]:
        """The epoch metadata of those logs that have any; waits for as long as the epoch store is away."""
        loop = asyncio.get_running_loop()
        while True:
            answer: asyncio.Future[list[Result]] = loop.create_future()
            self._host.ask_epoch_store([ReadMetadata(each) for each in logs], partial(_resolve, answer))
            results = await answer
            if all(result.status in (Status.OK, Status.EMPTY) for result in results):
                return [
                    (log_id, result.value)
                    for log_id, result in zip(logs, results, strict=True)
                    if isinstance(result.value, EpochMetaData)
                ]
            await asyncio.sleep(_RETRY)

    async def _judge_again(self) -> None:
        """Rebuilding and trimming go on: which of the logs are still short?"""
        for log_id in list(self._logs):
            await self._judge(log_id)

    async def _judge(self, log_id: LogId) -> None:
        each = self._logs[log_id]
        rows = []
        for lossy in each.lossy:
            for shard in list(self._host.shards):
                if lossy.may_be_gone and shard in lossy.tellers and self._trimmed(shard, log_id) < lossy.last:
                    rows.append(_row(log_id, shard, lossy, CopiesState.GONE, None))
                if shard in lossy.intact:
                    first = await self._first_short(log_id, shard, lossy, each.looked_through)
                    if first is not None:
                        rows.append(_row(log_id, shard, lossy, CopiesState.SHORT, first))
        each.rows = rows

    def _trimmed(self, shard: ShardId, log_id: LogId) -> Lsn:
        storage = self._host.node.storage
        machines = None if storage is None else storage.shards.get(shard)
        state = None if machines is None else machines.shard.find(log_id)
        return LSN_INVALID if state is None else state.trim_point

    async def _first_short(
        self, log_id: LogId, shard: ShardId, lossy: LossyEpochs, looked_through: dict[tuple[ShardId, LossyEpochs], Lsn]
    ) -> Lsn | None:
        """The first entry here of which a lost shard was to have a copy; None: there is none."""
        host = self._host
        lost = {int(each) for each, _ in lossy.lost}
        while True:
            storage, service = host.node.storage, host.shards.get(shard)
            machines = None if storage is None else storage.shards.get(shard)
            if machines is None or service is None or machines.shard.status() is not Status.OK:
                return None
            state = machines.shard.find(log_id)
            if state is None:
                return None
            first = max(
                lossy.first, Lsn(state.trim_point + 1), Lsn(looked_through.get((shard, lossy), LSN_INVALID) + 1)
            )
            last = min(lossy.last, state.immutable_through)
            if first > last or not service.view.directory.overlapping(log_id, first, last):
                return None
            result = await self._read(shard, log_id, first, last)
            if result.status is not Status.OK or result.through < first:
                return None
            hit = next((lsn for lsn, image in result.entries if not lost.isdisjoint(members(image))), None)
            looked_through[shard, lossy] = result.through if hit is None else Lsn(hit - 1)
            if hit is not None:
                return hit
            await asyncio.sleep(_READ_PAUSE)

    async def _read(self, shard: ShardId, log_id: LogId, first: Lsn, last: Lsn) -> ReadResult:
        """Through the queue of the shard's reads, so that a slow disk does not hold up the loop."""
        answer: asyncio.Future[ReadResult] = asyncio.get_running_loop().create_future()

        def done(result: ReadResult, now: Micros) -> None:
            if not answer.done():
                answer.set_result(result)

        def begin(now: Micros) -> None:
            assert self._host.node.storage is not None
            reads = self._host.node.storage.shards[shard].shard.reads
            reads.read(log_id, first, last, _READ_BYTES, _READ_ENTRIES, done, wants=no_body)

        self._host.driver.event(begin)
        return await answer


def _row(
    log_id: LogId, shard: ShardId, lossy: LossyEpochs, state: CopiesState, first: Lsn | None
) -> UnderReplicatedLogsRow:
    return UnderReplicatedLogsRow(
        shard=shard_index_of(shard),
        log_id=log_id,
        state=state.name,
        since_epoch=lossy.since,
        until_epoch=lossy.until,
        first_lsn=first,
        lost_shards=lossy.describe_lost(),
    )


def _resolve(future: asyncio.Future[list[Result]], results: list[Result]) -> None:
    if not future.done():
        future.set_result(results)
