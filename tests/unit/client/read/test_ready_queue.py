from __future__ import annotations

from google_crc32c import value as crc32c

from client.read.items import Gap, GapKind
from client.read.metrics import ReadMetrics
from client.read.read_buffer import Buffered
from client.read.ready_queue import GAPS_MAX, TAKEN_BYTES_MAX, ReadyQueue
from client.read.sender_state import Sender
from logdevice_py.core.batch import encode_batch
from logdevice_py.core.compression import Compression
from logdevice_py.core.entry import Constituent, ConstituentFlags, EntryHeader, encode_body, encode_entry
from logdevice_py.core.ids import Generation, LogId, NodeId, shard_id
from logdevice_py.core.lsn import LSN, Esn, compose_lsn
from logdevice_py.core.units import Timestamp


def compressed_entry(esn: int, size: int) -> Buffered:
    """One record of `size` zero bytes, which takes next to nothing packed."""
    batch = encode_batch([bytes(size)], Compression.ZSTD)
    body = encode_body([Constituent(batch, 1, crc32c(batch), int(ConstituentFlags.BATCH))])
    header = EntryHeader(
        LogId(1), compose_lsn(1, esn), Timestamp(1), 1, (), Esn(0), 1, body_length=len(body), body_crc=crc32c(body)
    )
    return Buffered(header, encode_entry(header, body), Sender(shard_id(NodeId(0)), Generation(1)))


def test_a_batch_of_large_compressed_records_ends_before_it_fills_the_memory() -> None:
    queue = ReadyQueue(LogId(1), compose_lsn(1, 1), ReadMetrics())
    size = TAKEN_BYTES_MAX // 2
    for esn in range(1, 6):
        queue.put_entry(compressed_entry(esn, size))
    assert [len(queue.take(1000)) for _ in range(3)] == [2, 2, 1]


def test_gaps_hold_the_window_up_only_when_there_are_very_many() -> None:
    queue = ReadyQueue(LogId(1), compose_lsn(1, 1), ReadMetrics())
    for esn in range(1, GAPS_MAX + 1):
        queue.put_gap(Gap((GapKind.HOLE, GapKind.TRIM)[esn % 2], LSN(compose_lsn(1, esn)), LSN(compose_lsn(1, esn))))
    assert (len(queue), queue.held_from) == (GAPS_MAX, None)
    queue.put_entry(compressed_entry(GAPS_MAX + 1, 10))
    assert queue.held_from == compose_lsn(1, 1)
    assert len(queue.take(1)) == 1
    assert (len(queue), queue.held_from, queue.bytes) == (0, None, 0)
    queue.put_entry(compressed_entry(GAPS_MAX + 2, 10))
    assert queue.held_from == compose_lsn(1, GAPS_MAX + 2)


def test_entries_are_taken_as_they_are_stored_with_the_gaps_between_them() -> None:
    metrics = ReadMetrics()
    queue = ReadyQueue(LogId(1), compose_lsn(1, 1), metrics)
    first, second = compressed_entry(1, 10), compressed_entry(3, 10)
    hole = Gap(GapKind.HOLE, LSN(compose_lsn(1, 2)), LSN(compose_lsn(1, 2)))
    queue.put_entry(first)
    queue.put_gap(hole)
    queue.put_entry(second)
    assert queue.take_entries(2) == [(first.header, first.image), hole]
    assert (len(queue), queue.bytes, queue.held_from) == (1, len(second.image), compose_lsn(1, 3))
    assert queue.take_entries(2) == [(second.header, second.image)]
    assert queue.held_from is None, "nothing holds the window up any more"
    assert (len(queue), queue.bytes, metrics.records_delivered) == (0, 0, 2)
    assert first.sender.held == -len(first.image)


def entry_of(esn: int, records: int) -> Buffered:
    """An entry of that many records."""
    batch = encode_batch([b"x"] * records)
    body = encode_body([Constituent(batch, records, crc32c(batch), int(ConstituentFlags.BATCH))])
    header = EntryHeader(
        LogId(1),
        compose_lsn(1, esn),
        Timestamp(1),
        1,
        (),
        Esn(0),
        records,
        body_length=len(body),
        body_crc=crc32c(body),
    )
    return Buffered(header, encode_entry(header, body), Sender(shard_id(NodeId(0)), Generation(1)))


def test_an_entry_is_taken_in_parts_only_when_it_has_more_records_than_are_asked_for() -> None:
    queue = ReadyQueue(LogId(1), compose_lsn(1, 1), ReadMetrics())
    for esn, records in enumerate([4, 4, 25, 3], 1):
        queue.put_entry(entry_of(esn, records))
    taken = []
    while batch := queue.take(10):
        taken.append(([(run.lsn & 0xFF, run.batch_offset, run.count) for run in batch.runs], queue.taken_to & 0xFF))
    assert taken == [
        ([(1, 0, 4), (2, 0, 4), (3, 0, 2)], 2),
        ([(3, 2, 10)], 2),
        ([(3, 12, 10)], 2),
        ([(3, 22, 3), (4, 0, 3)], 4),
    ]
    for esn, records in enumerate([4, 4, 4], 5):
        queue.put_entry(entry_of(esn, records))
    assert [len(queue.take(10)) for _ in range(2)] == [8, 4]
