"""Every message can be said in words, also one that nobody wrote a line for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from logdevice_py.core.entry import EntryFlags, EntryHeader, encode_entry
from logdevice_py.core.epoch_summary import EpochSummary, SummaryFlags
from logdevice_py.core.extensions import TailFlags, TailState, encode_extensions, encode_summary
from logdevice_py.core.ids import EVENT_LOG_DELTAS, LogId, NodeId, shard_id
from logdevice_py.core.lsn import LSN_MAX, Esn, compose_lsn
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol import messages as m
from logdevice_py.protocol.declare import (
    CODECS,
    BoolKind,
    BytesKind,
    FieldKind,
    IntKind,
    ListKind,
    MessageCodec,
    TextKind,
    TupleKind,
)
from tests.stories.words import describe, is_answer

SHARD = shard_id(NodeId(2))


def greatest(kind: FieldKind) -> Any:
    if isinstance(kind, IntKind):
        return kind.hi
    if isinstance(kind, ListKind):
        return [greatest(kind.element)] * 2
    if isinstance(kind, TupleKind):
        return tuple(map(greatest, kind.elements))
    if isinstance(kind, BytesKind):
        return b"\xff" * min(16, kind.hi)
    if isinstance(kind, BoolKind):
        return True
    return "text" if isinstance(kind, TextKind) else 0


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_every_message_is_one_line_whatever_it_holds(codec: MessageCodec) -> None:
    fields = {name: greatest(kind) for name, kind in codec.fields}
    if "records" in fields:
        fields["records"] = 1
    if codec.payload is not None:
        fields[codec.payload] = b"no image"
    said = describe(codec.cls(**fields))
    assert said.startswith(m.MessageType(codec.number).name)
    assert "\n" not in said


def test_a_message_that_is_not_declared_is_called_by_its_name() -> None:
    @dataclass
    class Unheard:
        log: int

    assert describe(Unheard(7)) == "Unheard"
    assert not is_answer(Unheard(7))


def store(image: bytes, **others: Any) -> m.Store:
    fields = {"wave": 1, "generation": 1, "flags": 0, "seal_epoch": 0, "recovery_id": 0, **others}
    return m.Store(log=LogId(1), lsn=compose_lsn(1, 5), shard=SHARD, image=image, **fields)


HEADER = EntryHeader(LogId(1), compose_lsn(1, 5), Timestamp(0), 1, (SHARD, shard_id(NodeId(4))), Esn(4), 0)


def test_a_bridge_of_recovery() -> None:
    flags = EntryFlags.HOLE | EntryFlags.BRIDGE | EntryFlags.WRITTEN_BY_RECOVERY
    image = encode_entry(replace(HEADER, flags=int(flags)), b"")
    said = describe(store(image, flags=int(m.StoreFlags.RECOVERY), seal_epoch=1))
    assert said == "STORE    log 1 e1n5 BRIDGE, copyset N2 N4, RECOVERY, seal epoch 1"


def test_an_entry_that_ends_the_log() -> None:
    extensions = encode_extensions(TailState(fence=7, flags=int(TailFlags.ENDED)))
    image = encode_entry(replace(HEADER, flags=int(EntryFlags.CONTROL), extensions=extensions), b"")
    assert describe(store(image)) == "STORE    log 1 e1n5 CONTROL (fence 7, ended), wave 1, copyset N2 N4"


def test_what_an_epoch_holds_is_said_by_its_bridge() -> None:
    summary = EpochSummary(int(SummaryFlags.COUNTED), first=Esn(1), last=Esn(4), records=1, size=20)
    flags = EntryFlags.HOLE | EntryFlags.BRIDGE | EntryFlags.WRITTEN_BY_RECOVERY
    image = encode_entry(replace(HEADER, flags=int(flags), extensions=encode_summary(summary)), b"")
    assert "e1n5 BRIDGE (1 record, 20 bytes, n1 to n4), copyset" in describe(store(image))


def test_a_damaged_image_is_said_to_be_one() -> None:
    image = encode_entry(HEADER, b"")
    said = describe(store(image[:-1] + bytes([image[-1] ^ 1])))
    assert said == "STORE    log 1 e1n5 (the header of the entry does not match its checksum)"


def test_names_of_logs_and_ends() -> None:
    logs: list[tuple[int, int]] = [(LogId(1), compose_lsn(1, 0xFFFFFFFF)), (EVENT_LOG_DELTAS, LSN_MAX)]
    assert describe(m.Release(shard=SHARD, logs=logs)) == "RELEASE  log 1 the end of epoch 1; event log the end"


def test_whether_a_shard_is_asked_or_answers() -> None:
    answers = {codec.cls for codec in CODECS.values() if is_answer(object.__new__(codec.cls))}
    assert {m.Stored, m.Sealed, m.Records, m.Cleaned, m.EpochRecoveryMetadata} <= answers
    assert answers.isdisjoint({m.Store, m.Seal, m.Start, m.Clean, m.Release, m.Compare})
