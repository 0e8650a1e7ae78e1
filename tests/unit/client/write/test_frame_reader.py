"""Own frames are recognised in the entries that a reader gets."""

from __future__ import annotations

import pytest
from google_crc32c import value as crc32c

from client.read.items import Gap, GapKind
from client.read.metrics import ReadMetrics
from client.read.read_set import ReadRequest
from client.read.settings import ReadSettings
from client.write.finder import FoundFrames, StoredFrames
from client.write.frame_reader import FrameListing, PositionSearch, StreamFrameReader
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.batch import encode_batch
from logdevice_py.core.compression import Compression
from logdevice_py.core.entry import (
    Constituent,
    ConstituentFlags,
    EntryFlags,
    EntryHeader,
    encode_body,
    encode_entry,
)
from logdevice_py.core.ids import ShardId, WriterId
from logdevice_py.core.lsn import LSN, Esn, Lsn, compose_lsn
from logdevice_py.core.record_keys import encode_keys
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.constituents import ContentMark, content_mark
from logdevice_py.protocol.messages import AppendFlags, Durability
from tests.unit.client.fakes import LOG, Bench, cluster

OURS, THEIRS = WriterId(b"o" * 16), WriterId(b"t" * 16)
STREAM = int(ConstituentFlags.WRITE_STREAM)


def search(
    *entries: tuple[EntryHeader, bytes],
    contents: dict[int, ContentMark] | None = None,
    config: ClusterConfig | None = None,
) -> FoundFrames:
    """What a search for our frames finds in such entries."""
    found: list[FoundFrames] = []

    def done(frames: FoundFrames, now: Micros) -> None:
        found.append(frames)

    request = ReadRequest(log=LOG, stream=1, first=compose_lsn(2, 1), until=compose_lsn(2, 9))
    bench = Bench()
    if config is not None:
        bench.session.set_config(config, bench.now)
    searching = PositionSearch(bench.session, request, OURS, contents or {}, done, ReadSettings(), ReadMetrics())
    for each in entries:
        searching.note_entry(*each)
    searching.finish(bench.now)
    (frames,) = found
    return frames


def frame(writer: WriterId, sequence: int, records: int) -> Constituent:
    return frame_of(b"x" * records, records, 0, writer, sequence)


def frame_of(payload: bytes, records: int, flags: int, writer: WriterId = OURS, sequence: int = 1) -> Constituent:
    return Constituent(payload, records, crc32c(payload), STREAM | flags, writer, sequence)


def entry(lsn: Lsn, *parts: Constituent) -> tuple[EntryHeader, bytes]:
    body = encode_body(parts)
    header = EntryHeader(
        log=LOG,
        lsn=lsn,
        timestamp=Timestamp(77),
        wave=1,
        copyset=(ShardId(0), ShardId(256)),
        lng=Esn(0),
        records=sum(part.records for part in parts),
        flags=int(EntryFlags.WRITE_STREAM),
        body_length=len(body),
        body_crc=crc32c(body),
    )
    return header, encode_entry(header, body)


def test_a_frame_is_found_by_writer_and_number_and_its_offset_counts_the_records_before_it() -> None:
    found = search(entry(compose_lsn(2, 4), frame(THEIRS, 8, 3), frame(OURS, 8, 2), frame(OURS, 9, 1)))
    places = {number: (place.lsn, place.batch_offset) for number, place in found.positions.items()}
    assert places == {8: (compose_lsn(2, 4), 3), 9: (compose_lsn(2, 4), 5)}
    assert found.positions[8].timestamp == 77
    assert found.positions[8].copyset == (0, 256)
    assert not found.uncertain


def test_a_place_is_as_durable_as_the_log_asks_for() -> None:
    for durability, expected in (("sync", Durability.SYNC), ("async", Durability.ASYNC)):
        config = cluster(defaults=f'durability = "{durability}"')
        found = search(entry(compose_lsn(2, 4), frame(OURS, 8, 1)), config=config)
        assert found.positions[8].durability is expected


def test_a_frame_with_our_number_and_other_content_is_not_ours() -> None:
    batch, keys = int(ConstituentFlags.BATCH), int(ConstituentFlags.KEYS)
    ours = frame_of(b"honest", 1, 0, OURS, 5)
    others = [
        frame_of(b"forged", 1, 0, OURS, 5),
        frame_of(b"honest", 2, batch, OURS, 5),
        frame_of(b"honest", 1, batch, OURS, 5),
        frame_of(b"honest", 1, keys, OURS, 5),
    ]
    contents = {5: content_mark(int(AppendFlags.WRITE_STREAM | AppendFlags.SYNC), 1, ours.crc, b"honest")}
    for other in others:
        found = search(entry(compose_lsn(2, 4), other), contents=contents)
        assert found.positions == {}
        assert found.taken[5].lsn == compose_lsn(2, 4)
        found = search(entry(compose_lsn(2, 4), other), entry(compose_lsn(2, 5), ours), contents=contents)
        assert found.positions[5].lsn == compose_lsn(2, 5)


def test_the_records_of_frames_come_with_their_keys() -> None:
    bench = Bench()
    listed: list[StoredFrames] = []
    request = ReadRequest(log=LOG, stream=1, first=compose_lsn(2, 1), until=compose_lsn(2, 9))
    listing = FrameListing(
        bench.session, request, lambda writer: writer == OURS, listed.append, ReadSettings(), ReadMetrics()
    )
    batch, keyed = int(ConstituentFlags.BATCH), int(ConstituentFlags.KEYS)
    listing.note_entry(
        *entry(
            compose_lsn(2, 4),
            frame_of(b"alone", 1, 0),
            frame_of(encode_keys([b"key"]) + b"with a key", 1, keyed),
            frame_of(encode_batch([b"a", b"b"], Compression.LZ4), 2, batch),
            frame_of(b"another's", 1, 0, THEIRS),
            frame_of(encode_keys([None, b""]) + encode_batch([b"c", b"d"]), 2, batch | keyed),
        )
    )
    listing.finish(bench.now)
    assert [frame.records() for frame in listed[0].frames] == [
        ([b"alone"], None),
        ([b"with a key"], [b"key"]),
        ([b"a", b"b"], None),
        ([b"c", b"d"], [None, b""]),
    ]


def test_a_body_that_cannot_be_taken_apart_may_have_held_our_frames() -> None:
    header, image = entry(compose_lsn(2, 4), frame(OURS, 8, 2))
    assert search((header, image[:-1])).uncertain


@pytest.mark.parametrize("what", ["nothing", "a damaged entry", "a lost range", "a trimmed range"])
def test_a_listing_tells_whether_frames_may_be_missing(what: str) -> None:
    bench = Bench()
    listed: list[StoredFrames] = []
    request = ReadRequest(log=LOG, stream=1, first=compose_lsn(2, 1), until=compose_lsn(2, 9))
    listing = FrameListing(bench.session, request, lambda writer: True, listed.append, ReadSettings(), ReadMetrics())
    header, image = entry(compose_lsn(2, 4), frame(OURS, 8, 2))
    listing.note_entry(header, image[:-1] if what == "a damaged entry" else image)
    if what in ("a lost range", "a trimmed range"):
        kind = GapKind.DATALOSS if what == "a lost range" else GapKind.TRIM
        listing.note_gap(Gap(kind, LSN(compose_lsn(2, 5)), LSN(compose_lsn(2, 6))))
    listing.finish(bench.now)
    assert listed[0].lost is (what in ("a damaged entry", "a lost range"))


def test_a_search_that_nobody_wants_any_more_leaves_nothing_behind() -> None:
    bench = Bench()
    found: list[FoundFrames] = []
    finder = StreamFrameReader(bench.session, ReadSettings(), ReadMetrics())
    searching = finder.find(
        LOG, OURS, compose_lsn(2, 1), compose_lsn(2, 9), {}, lambda frames, now: found.append(frames), bench.now
    )
    bench.turn()
    assert bench.session.streams.read_streams()
    assert len(bench.session.requests)
    searching.cancel()
    bench.pass_time(60_000_000)
    assert not bench.session.streams.read_streams()
    assert not len(bench.session.requests)
    assert not found
