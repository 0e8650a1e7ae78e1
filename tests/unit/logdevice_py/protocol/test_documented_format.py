"""docs/messages.md is enough to speak: frames of an encoder that was written from it mean here what they say there."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from logdevice_py.core.batch import constituent_records, encode_batch
from logdevice_py.core.entry import Constituent, EntryHeader, encode_body, encode_entry
from logdevice_py.core.ids import LogId, ShardId, WriterId
from logdevice_py.core.lsn import Esn, Lsn
from logdevice_py.core.status import ProtocolError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol.declare import CODECS, FieldKind, ListKind, StatusKind, TupleKind
from logdevice_py.protocol.framing import decode_frame
from logdevice_py.protocol.messages import MessageType
from tests.hostile.mutants import FrameMutator
from tests.hostile.wire import HEAD_SIZE, LAYOUTS, Answer, encode, stream_frames


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return int(value) if type(value) is not bool and isinstance(value, int) else value


def _meant(kind: FieldKind, sent: Any) -> Any:
    """What the decoder makes of it: a status that is not known is read as INTERNAL."""
    if isinstance(kind, StatusKind):
        return int(sent if sent in set(Status) else Status.INTERNAL)
    if isinstance(kind, ListKind):
        return [_meant(kind.element, each) for each in sent]
    if isinstance(kind, TupleKind):
        return [_meant(element, each) for element, each in zip(kind.elements, sent, strict=True)]
    return sent


def test_every_message_is_described() -> None:
    assert {layout.number for layout in LAYOUTS.values()} == set(map(int, MessageType))


@pytest.mark.parametrize("name", LAYOUTS)
def test_frames_from_the_description_are_decoded_as_they_were_meant(name: str) -> None:
    codec = CODECS[LAYOUTS[name].number]
    mutator = FrameMutator(7, logs=[1, 2**63 - 1], shards=[0, 256], names=[name])
    for _ in range(50):
        frame = mutator.valid()
        message = decode_frame(frame)
        size = int.from_bytes(frame[4:6], "big")
        sent = zip(codec.fields, msgpack.unpackb(frame[HEAD_SIZE : HEAD_SIZE + size]), strict=True)
        meant = {field: _meant(kind, value) for (field, kind), value in sent}
        assert {field: _plain(getattr(message, field)) for field, _ in codec.fields} == meant
    empty = decode_frame(encode(name))
    assert type(empty) is codec.cls


@pytest.mark.parametrize("name", LAYOUTS)
def test_damaged_ones_are_refused_or_valid(name: str) -> None:
    mutator = FrameMutator(8, logs=[1], shards=[0], names=[name])
    refused = 0
    for _ in range(60):
        try:
            decode_frame(mutator.damaged())
        except ProtocolError:
            refused += 1
        with pytest.raises(ProtocolError):
            decode_frame(mutator.damaged(certainly=True))
    assert refused > 20


def test_frames_of_write_streams_are_found_in_entries() -> None:
    parts = [
        Constituent(b"alone", 1, 0),
        Constituent(encode_batch([b"a", b"b"]), 2, 0, 3, WriterId(b"w" * 16), 7),
    ]
    assert constituent_records(parts[0]) == [None], "its checksum is wrong"
    body = encode_body(parts)
    header = EntryHeader(LogId(1), Lsn(9), Timestamp(5), 1, (ShardId(0), ShardId(256)), Esn(0), 3, 0, len(body), 1)
    image = encode_entry(header, body)
    [found] = stream_frames(Answer("Records", {"entries": [[9, len(image)]]}, image))
    assert (found.lsn, found.writer, found.sequence, found.payload) == (9, b"w" * 16, 7, parts[1].payload)
