"""A restored epoch store knows all that the disks know: no epoch is given twice, whatever the copy missed. Rules: `epoch_store.backup`."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from epoch_store.backup import DiskReport, EpochStoreCopy, Restored, restore
from epoch_store.cells import WriteId, decode_cell, decode_shard_identity, encode_cell, encode_shard_identity, key_of
from epoch_store.interface import ReadMetadata, ReadShardIdentity, ShardIdentity, WriterIdentity
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import Generation, InstanceId, LogId, NodeId, ShardId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData

UUID = bytes(range(16))
LOG = LogId(7)
WRITE = WriteId(WriterIdentity(NodeId(-1), InstanceId(5)), 1)
TWO = ReplicationProperty.parse("node:2")


def shard(node: int) -> ShardId:
    return ShardId(node << 8)


def interval(since: int, *nodes: int) -> EpochInterval:
    return EpochInterval(Epoch(since), tuple((shard(node), Generation(1)) for node in nodes), TWO)


def metadata(next_epoch: int, *history: EpochInterval, written: bool = True) -> EpochMetaData:
    return EpochMetaData(Epoch(next_epoch), history or (interval(1, 0, 1, 2),), written, False, NodeId(0))


def a_copy(stored: dict[int, EpochMetaData], generations: dict[int, int] | None = None) -> EpochStoreCopy:
    cells = {key_of(ReadMetadata(LogId(log))): encode_cell(WRITE, each.encode()) for log, each in stored.items()}
    for node, generation in (generations or {}).items():
        identity = ShardIdentity(UUID, shard(node), Generation(generation))
        cells[key_of(ReadShardIdentity(NodeId(node), 0))] = encode_cell(WRITE, encode_shard_identity(identity))
    return EpochStoreCopy("main", UUID, Timestamp(3), cells)


def disk(
    node: int,
    epochs: dict[int, int] | None = None,
    records: dict[int, EpochMetaData] | None = None,
    generation: int = 1,
) -> DiskReport:
    traces = {LogId(log): Epoch(epoch) for log, epoch in (epochs or {}).items()}
    found = {LogId(log): record for log, record in (records or {}).items()}
    return DiskReport(UUID, shard(node), Generation(generation), 4, traces, found)


def stored_in(restored: Restored, log: int = LOG) -> EpochMetaData:
    return EpochMetaData.decode(decode_cell(restored.cells[key_of(ReadMetadata(LogId(log)))])[1])


def test_a_log_goes_on_behind_the_greatest_epoch_of_which_a_disk_has_a_trace() -> None:
    restored = restore(a_copy({LOG: metadata(4)}), [disk(0, {LOG: 9}), disk(1, {LOG: 11}), disk(2)], WRITE)
    assert stored_in(restored).epoch == 12
    assert restored.moved == {LOG: (4, 12)}


def test_what_no_disk_knows_more_of_stays_as_it_was_copied() -> None:
    copy = a_copy({LOG: metadata(12)}, {0: 1, 1: 1, 2: 1})
    restored = restore(copy, [disk(0, {LOG: 9}), disk(1), disk(2)], WRITE)
    assert restored.cells == copy.cells
    assert not restored.moved


def test_the_newest_record_of_the_metadata_log_counts_and_is_written_again() -> None:
    later = metadata(9, interval(1, 0, 1, 2), interval(8, 1, 2, 3))
    reports = [disk(0), disk(1, {LOG: 8}, {LOG: later}), disk(2, {LOG: 8}, {LOG: metadata(2)}), disk(3)]
    found = stored_in(restore(a_copy({LOG: metadata(4)}), reports, WRITE))
    assert found.history == later.history
    assert (found.epoch, found.written) == (9, False)


def test_a_record_that_is_older_than_the_copy_changes_nothing() -> None:
    newer = metadata(9, interval(1, 0, 1, 2), interval(8, 0, 1, 2))
    copy = a_copy({LOG: newer}, {0: 1, 1: 1, 2: 1})
    reports = [disk(0, {}, {LOG: metadata(2)}), disk(1), disk(2)]
    assert restore(copy, reports, WRITE).cells == copy.cells


def test_a_log_that_the_copy_does_not_know_is_restored_from_its_metadata_log() -> None:
    restored = restore(a_copy({}), [disk(0, {LOG: 3}, {LOG: metadata(2)}), disk(1), disk(2)], WRITE)
    assert stored_in(restored).epoch == 4
    assert restored.moved == {LOG: (0, 4)}


def test_entries_of_a_log_whose_nodesets_nobody_knows_stop_the_restoring() -> None:
    with pytest.raises(LogDeviceError, match="log 7 has entries, but no disk has a record of its metadata log"):
        restore(a_copy({}), [disk(0, {LOG: 3})], WRITE)


def test_every_disk_of_a_nodeset_has_to_be_reported_or_named_as_missing() -> None:
    copy = a_copy({LOG: metadata(4)}, {5: 1})
    with pytest.raises(LogDeviceError, match=r"nothing is said of the disks of N1:S0, N2:S0, N5:S0") as caught:
        restore(copy, [disk(0, {LOG: 9})], WRITE)
    assert caught.value.status is Status.INVALID_PARAM
    missing = frozenset({shard(1), shard(2), shard(5)})
    assert stored_in(restore(copy, [disk(0, {LOG: 9})], WRITE, missing=missing)).epoch == 26
    assert stored_in(restore(copy, [disk(0, {LOG: 9})], WRITE, missing=missing, beyond=100)).epoch == 110


def test_the_nodeset_of_a_record_names_disks_that_are_needed_as_well() -> None:
    later = metadata(9, interval(1, 0, 1, 2), interval(8, 1, 2, 3))
    with pytest.raises(LogDeviceError, match=r"disks of N3:S0"):
        restore(a_copy({LOG: metadata(4)}), [disk(0), disk(1, {}, {LOG: later}), disk(2)], WRITE)


def test_a_later_generation_on_a_disk_counts_and_an_earlier_one_does_not() -> None:
    copy = a_copy({LOG: metadata(4)}, {0: 1, 1: 3, 2: 1})
    restored = restore(copy, [disk(0, generation=2), disk(1, generation=2), disk(2)], WRITE)
    assert restored.generations == [shard(0)]
    operation = ReadShardIdentity(NodeId(0), 0)
    assert decode_shard_identity(operation, decode_cell(restored.cells[key_of(operation)])[1]).generation == 2
    assert (
        restored.cells[key_of(ReadShardIdentity(NodeId(1), 0))] == copy.cells[key_of(ReadShardIdentity(NodeId(1), 0))]
    )


def test_a_disk_of_another_cluster_is_refused() -> None:
    with pytest.raises(LogDeviceError) as caught:
        restore(a_copy({}), [replace(disk(0), cluster=bytes(16))], WRITE)
    assert caught.value.status is Status.INVALID_CLUSTER


@pytest.mark.parametrize("seed", range(200))
def test_no_epoch_that_left_a_trace_is_given_again(seed: int) -> None:
    """Activations at random, before and after the copy; each that stored something left a trace on two of three disks. Nodesets change on the way."""
    rng = random.Random(seed)
    current, copied = metadata(2), None
    traces: dict[int, int] = {}
    records: dict[int, EpochMetaData] = {}
    used = set()
    for _ in range(rng.randrange(1, 20)):
        if copied is None and rng.random() < 0.2:
            copied = current
        epoch = current.epoch
        history = current.history
        if rng.random() < 0.3:
            history = (*history, interval(epoch, *rng.sample(range(4), 3)))
        current = replace(current, epoch=Epoch(epoch + 1), history=history)
        if rng.random() < 0.8:
            used.add(epoch)
            for node in rng.sample(range(4), 2):
                traces[node] = max(epoch, traces.get(node, 0))
            if history != metadata(2).history:
                for node in rng.sample(range(4), 2):
                    records[node] = current
    copy = a_copy({LOG: copied or metadata(2)})
    reports = [
        disk(node, {LOG: traces[node]} if node in traces else {}, {LOG: records[node]} if node in records else {})
        for node in range(4)
    ]
    after = stored_in(restore(copy, reports, WRITE))
    assert after.epoch > max(used, default=0)
    known = max(((copied or metadata(2)), *records.values()), key=lambda each: each.effective_since)
    assert after.history == known.history


# Files


def test_copies_and_reports_are_read_as_they_were_written() -> None:
    copy = a_copy({LOG: metadata(4)}, {0: 1})
    assert EpochStoreCopy.parse(copy.to_text()) == copy
    report = disk(3, {LOG: 9, 8: 1}, {LOG: metadata(4)}, generation=2)
    assert DiskReport.parse(report.to_text()) == report
    assert len(report.to_text().splitlines()) == 1, "reports of several shards stand in one file, a line each"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": 2}, "the file has version 2, this program reads 1"),
        ({"kind": "disk"}, "no file of this kind"),
        ({"cells": {"logs/7/sequencer": "AAAA"}}, "cannot be read"),
        ({"cells": {"logs/7/sequencer": "?"}}, "cannot be read"),
        ({"uuid": "no"}, "cannot be read"),
        ({"taken": None}, "cannot be read"),
    ],
)
def test_what_is_no_copy_is_refused_in_words(change: dict[str, object], text: str) -> None:
    values = json.loads(a_copy({LOG: metadata(4)}).to_text()) | change
    with pytest.raises(LogDeviceError, match=text):
        EpochStoreCopy.parse(json.dumps(values))


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "[" * 100_000])
def test_what_is_no_file_at_all_is_refused_in_words(text: str) -> None:
    with pytest.raises(LogDeviceError, match="no file of this kind"):
        EpochStoreCopy.parse(text)
    with pytest.raises(LogDeviceError, match="no file of this kind"):
        DiskReport.parse(text)
