"""Which frames share an entry, by what their records take unpacked."""

from __future__ import annotations

import struct

import pytest
from google_crc32c import value as crc32c

from logdevice_py.config.attributes import LogAttributes
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.batch import encode_batch, unpacked_size
from logdevice_py.core.compression import Compression
from logdevice_py.core.entry import BODY_SIZE_MAX, ConstituentFlags
from logdevice_py.core.ids import PeerId
from logdevice_py.core.record_keys import encode_keys
from sequencer.batching import UNPACKED_MAX, OpenEntry, is_worth_packing
from sequencer.frames import Frame

BATCH, KEYS = int(ConstituentFlags.BATCH), int(ConstituentFlags.KEYS)
ATTRIBUTES = LogAttributes(path="/a", replication=ReplicationProperty.parse("node:1"))


def frame(payload: bytes, flags: int = BATCH) -> Frame:
    return Frame(payload, 1, crc32c(payload), flags, peer=PeerId(-1), request_id=1)


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("keyed", [False, True])
def test_small_frames_that_unpack_to_much_do_not_share_an_entry(codec: Compression, keyed: bool) -> None:
    large = encode_batch([bytes(UNPACKED_MAX // 3)], codec)
    if keyed:
        large = encode_keys([b"key"]) + large
    flags = BATCH | (KEYS if keyed else 0)
    entry = OpenEntry(stream=False)
    for _ in range(2):
        assert entry.fits(frame(large, flags), ATTRIBUTES)
        entry.add(frame(large, flags))
    assert entry.bytes < ATTRIBUTES.max_payload_bytes // 2
    assert not entry.fits(frame(large, flags), ATTRIBUTES)
    assert entry.fits(frame(encode_batch([b"small"] * 100, codec)), ATTRIBUTES)


def test_what_a_constituent_takes_unpacked_is_read_from_its_head() -> None:
    assert unpacked_size(b"x" * 9, 0) == 9
    assert unpacked_size(encode_batch([b"abc"]), BATCH) == len(encode_batch([b"abc"]))
    for cut in (b"", b"\x02", encode_keys([b"k"])):
        assert unpacked_size(cut, BATCH | KEYS) == len(cut)
    assert unpacked_size(struct.pack(">BI", 2, 1000) + b"x", BATCH) == 1000
    beyond = struct.pack(">BI", 2, BODY_SIZE_MAX + 1)
    assert unpacked_size(beyond, BATCH) == len(beyond), "nobody unpacks it"


def test_what_clients_packed_is_not_packed_again() -> None:
    records = [b"a record like any other"] * 100
    loose, packed = frame(encode_batch(records)), frame(encode_batch(records, Compression.LZ4))
    assert is_worth_packing([loose])
    assert is_worth_packing([frame(b"one record", 0)])
    assert is_worth_packing([loose, packed]), "most of the bytes are loose"
    assert not is_worth_packing([packed])
    assert not is_worth_packing([packed, frame(b"small", 0)])


def test_nothing_joins_a_frame_that_is_an_entry_of_its_own() -> None:
    entry = OpenEntry(stream=False, alone=True)
    entry.add(frame(b"conditional", 0))
    assert not entry.fits(frame(b"small", 0), ATTRIBUTES)
