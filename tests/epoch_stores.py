"""What tests of epoch stores share: metadata to store, and a way to await results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from epoch_store.interface import EpochStore, Operation, Result, UpdateMetadata, WriterIdentity
from epoch_store.updaters import ToNextEpoch
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import Generation, InstanceId, LogId, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import EPOCH_INVALID, Epoch
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData

LOG = LogId(7)
NODE = NodeId(0)


def identity(node: int = 0, instance: int = 1) -> WriterIdentity:
    """A run of a node."""
    return WriterIdentity(NodeId(node), InstanceId(instance))


def interval(
    *nodes: int, since: int = EPOCH_INVALID, generation: int = 1, replication: str = "node:2"
) -> EpochInterval:
    """An interval on shard 0 of these nodes."""
    nodeset: list[tuple[ShardId, Generation]] = [(shard_id(NodeId(node)), Generation(generation)) for node in nodes]
    return EpochInterval(Epoch(since), tuple(nodeset), ReplicationProperty.parse(replication))


def next_epoch(log: LogId = LOG, node: int = 0, acceptable: int | None = None) -> UpdateMetadata:
    """Take the next epoch of a log, provisioning it."""
    updater = ToNextEpoch(interval(0, 1, 2), None if acceptable is None else Epoch(acceptable), provision=True)
    return UpdateMetadata(log, updater, NodeId(node))


async def run(store: EpochStore, *operations: Operation) -> list[Result]:
    """Submit one batch and await its results."""
    return await run_batch(store, operations)


async def run_batch(store: EpochStore, operations: Sequence[Operation]) -> list[Result]:
    """Submit one batch and await its results."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[list[Result]] = loop.create_future()
    submitting = True

    def done(results: list[Result]) -> None:
        assert not submitting, "an answer came before submit returned"
        if not answered.cancelled():
            answered.set_result(results)

    store.submit(operations, done)
    submitting = False
    return await answered


async def run_one(store: EpochStore, operation: Operation) -> Result:
    """Submit one operation and await its result."""
    return (await run(store, operation))[0]


def given(result: Result) -> int:
    """The epoch that an activation got."""
    assert isinstance(result.value, EpochMetaData), result
    return result.value.given_epoch
