"""The root: routing, several shards, and the default reader of metadata logs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from logdevice_py.config.cluster import MetadataLogConfig
from logdevice_py.core.ids import Generation, NodeId, metadata_log_of, shard_id
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.machine import Outbox, Send, TimerQueue
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.messages import Digest, Started, Stored, Trim, Trimmed
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.interface import WriteShard
from storage_node.log_store.memory import MemoryDisk, MemoryLogStore
from storage_node.settings import StorageSettings
from storage_node.stored_metadata import RecoveredEpoch, SoftSealValue, decode_seal, encode_seal
from tests.unit.storage_node.fakes import (
    READER,
    SEQUENCER,
    SHARDS,
    SYNC_LOG,
    EverybodyIsAlive,
    LoneStorageNode,
    ShardDriver,
    lsn,
    make_config,
    release,
    start,
    store,
    stores,
)

NOW = Micros(1)


def two_shards() -> tuple[LoneStorageNode, Outbox]:
    """A node with two shards."""
    contents = []
    for index in range(2):
        disk = MemoryDisk()
        memory = MemoryLogStore(disk)
        memory.adopt(
            ShardMarker(b"u" * 16, shard_id(NodeId(0), index), Generation(1)), boot=disk.boot, now=Timestamp(1)
        )
        contents.append(memory.load())
    outbox = Outbox()
    node = LoneStorageNode(
        NodeId(0), make_config(), StorageSettings(), outbox, TimerQueue(), EverybodyIsAlive(), contents
    )
    return node, outbox


def effects(outbox: Outbox, kind: type[Any]) -> list[Any]:
    """Effects of one kind; of messages, the messages."""
    found = [effect.message if isinstance(effect, Send) else effect for effect in outbox.take()]
    return [effect for effect in found if isinstance(effect, kind)]


def test_shards_fail_apart() -> None:
    driver = ShardDriver()
    node, outbox = two_shards()
    del driver
    node.on_message(SEQUENCER, store(lsn(1, 1)), NOW)
    node.on_turn_end(NOW)
    [write] = effects(outbox, WriteShard)
    node.on_written(write.token, Status.FAILED, NOW)
    node.on_turn_end(NOW)
    assert [answer.status for answer in effects(outbox, Stored)] == [Status.FAILED]
    assert node.shards[shard_id(NodeId(0), 0)].shard.failed
    assert not node.shards[shard_id(NodeId(0), 1)].shard.failed


def test_completions_of_another_run_are_ignored() -> None:
    node, outbox = two_shards()
    node.on_written(12345, Status.FAILED, NOW)
    assert not any(machines.shard.failed for machines in node.shards.values())
    assert outbox.take() == []


def test_requests_for_shards_that_are_not_here_are_answered() -> None:
    driver = ShardDriver()
    message = start()[1]
    message.shard = SHARDS[2]
    driver.turn((READER, message), (READER, Trim(request_id=1, log=SYNC_LOG, shard=SHARDS[2], lsn=lsn(1, 1))))
    assert driver.take_one(Started).status is Status.NOTSTORAGE
    assert driver.take_one(Trimmed).status is Status.NOTSTORAGE


def test_a_purge_reads_the_metadata_log_from_its_nodeset() -> None:
    node, outbox = two_shards()
    node.on_message(SEQUENCER, store(lsn(1, 1)), NOW)
    node.on_message(*release(lsn(2, 1)), NOW)
    digests = effects(outbox, Digest)
    assert [message.shard for message in digests] == list(SHARDS)
    assert all(message.ranges[0].log == metadata_log_of(SYNC_LOG) for message in digests)


def test_a_metadata_log_that_moves_while_it_is_read_is_read_where_it_is() -> None:
    node, outbox = two_shards()
    node.on_message(SEQUENCER, store(lsn(1, 1)), NOW)
    node.on_message(*release(lsn(2, 1)), NOW)
    effects(outbox, Digest)
    config = make_config()
    moved = MetadataLogConfig(SHARDS[3:], config.metadata_log.replication)
    node.on_config(replace(config, version=2, metadata_log=moved), NOW)
    assert [message.shard for message in effects(outbox, Digest)] == list(SHARDS[3:])


def test_a_newer_cluster_file_counts_at_once() -> None:
    from logdevice_py.config.cluster import ShardState

    driver = ShardDriver()
    driver.node.on_config(make_config(ShardState.READ_ONLY), driver.now)
    driver.turn(*stores([lsn(1, 1)]))
    assert driver.take_one(Stored).status is Status.DISABLED


class TestStoredMetadata:
    def test_values_are_read_back(self) -> None:
        soft = SoftSealValue(Epoch(4), NodeId(-1), True, Epoch(2), Epoch(5))
        assert SoftSealValue.decode(soft.encode()) == soft
        end = RecoveredEpoch(Epoch(9), 3, 5, lsn(1, 3), Timestamp(-7), True)  # type: ignore[arg-type]
        assert RecoveredEpoch.decode(end.encode()) == end
        assert decode_seal(encode_seal(Epoch(7), NodeId(3))) == (7, 3)

    @pytest.mark.parametrize("value", [b"", b"\x02" + b"\x00" * 8, b"\x01"])
    def test_other_bytes_are_refused(self, value: bytes) -> None:
        with pytest.raises(CorruptEntryError):
            decode_seal(value)
