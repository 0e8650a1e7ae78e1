"""Who wrote a cell, and what damaged ones come to."""

from __future__ import annotations

import msgpack
import pytest

from epoch_store.cells import Cell, ConditionalWrite, WriteId, decide, decode_cell, encode_cell, key_of, won_by
from epoch_store.interface import (
    GetLastCleanEpoch,
    LastCleanEpoch,
    ReadMetadata,
    ReadShardIdentity,
    RegisterShard,
    Result,
    SetLastCleanEpoch,
)
from logdevice_py.core.extensions import TailFlags, TailState
from logdevice_py.core.ids import NodeId, metadata_log_of
from logdevice_py.core.lsn import EPOCH_MAX, LSN_MAX, Epoch, Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import TailRecord
from tests.epoch_stores import LOG, NODE, identity, next_epoch

OURS = WriteId(identity(1, 1), 7)
OTHERS = (WriteId(identity(2, 1), 7), WriteId(identity(1, 2), 7), WriteId(identity(1, 1), 8))


def attempt(version: int = 4) -> ConditionalWrite:
    content = encode_cell(OURS, b"")
    made = decide(next_epoch(), None, OURS)
    assert isinstance(made, ConditionalWrite)
    return ConditionalWrite(version, content, made.result)


def test_a_lost_write_is_won_only_with_our_id_at_our_version() -> None:
    write = attempt()
    attempts = {OURS: write}
    assert won_by(Cell(5, encode_cell(OURS, b"")), attempts) is write.result
    assert won_by(Cell(6, encode_cell(OURS, b"")), attempts) is None
    for other in OTHERS:
        assert won_by(Cell(5, encode_cell(other, b"")), attempts) is None
    assert won_by(None, attempts) is None
    assert won_by(Cell(5, b"?"), attempts) is None


def test_each_kind_of_operation_has_its_cell() -> None:
    assert key_of(ReadMetadata(LOG)) == key_of(next_epoch()) == "logs/7/sequencer"
    assert key_of(GetLastCleanEpoch(LOG)) == key_of(SetLastCleanEpoch(LOG, Epoch(1), None)) == "logs/7/lce"
    assert (
        key_of(ReadShardIdentity(NodeId(3), 2))
        == key_of(RegisterShard(bytes(16), NodeId(3), 2, None))
        == "shards/N3:S2"
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xc1",
        msgpack.packb({}),
        msgpack.packb([1, 0, 1]),
        msgpack.packb([2, 0, 1, 1, b""]),
        msgpack.packb([1, 0, 1, 1, "text"]),
        msgpack.packb([1, 0, 1, True, b""]),
        msgpack.packb([1, 0, 1, 2**63, b""]),
        encode_cell(OURS, b"\xc1"),
        encode_cell(OURS, msgpack.packb([0, 1, 1])),
        encode_cell(OURS, msgpack.packb([2**31, 1, 1])),
        encode_cell(OURS, msgpack.packb([bytes(15), 0, 1])),
        encode_cell(OURS, msgpack.packb([bytes(16), 9, 1])),
        encode_cell(OURS, msgpack.packb([bytes(16), 0, 0])),
        bytes(2 << 20),
    ],
)
def test_a_damaged_cell_fails_and_is_never_overwritten(content: bytes) -> None:
    operations = (
        ReadMetadata(LOG),
        next_epoch(),
        GetLastCleanEpoch(LOG),
        SetLastCleanEpoch(LOG, Epoch(9), None),
        ReadShardIdentity(NODE, 0),
        RegisterShard(bytes(16), NODE, 0, None),
    )
    for operation in operations:
        result = decide(operation, Cell(3, content), OURS)
        assert not isinstance(result, ConditionalWrite)
        assert (result.status, result.version) == (Status.FAILED, 3)
        assert key_of(operation) in result.detail


def test_a_cell_keeps_its_writer_and_payload() -> None:
    assert decode_cell(encode_cell(OURS, b"payload")) == (OURS, b"payload")


def test_metadata_logs_have_no_metadata_of_their_own() -> None:
    with pytest.raises(AssertionError):
        ReadMetadata(metadata_log_of(LOG))


def test_fields_that_a_later_version_adds_are_ignored() -> None:
    assert _last_clean_epoch([5, 7, 8, 9]) == LastCleanEpoch(Epoch(5), TailRecord(Lsn(7), Timestamp(8), 9))
    assert _last_clean_epoch([5, 7, 8, 9, 1]) == LastCleanEpoch(Epoch(5), TailRecord(Lsn(7), Timestamp(8), 9))
    tail = TailRecord(Lsn(7), Timestamp(8), 9, TailState(1, 2, 3), 4)
    assert _last_clean_epoch([5, 7, 8, 9, 1, 2, 3, 4]) == LastCleanEpoch(Epoch(5), tail)


@pytest.mark.parametrize(
    "tail",
    [
        None,
        TailRecord(Lsn(7), Timestamp(8)),
        TailRecord(Lsn(7), Timestamp(8), 65_536),
        TailRecord(Lsn(7), Timestamp(8), None, TailState(1, 2, 3), 4),
        TailRecord(Lsn(0), Timestamp(0), None, TailState(flags=int(TailFlags.LOST))),
        TailRecord(LSN_MAX, Timestamp(2**63 - 1), 65_536, TailState(2**63 - 1, 2**63 - 1, 3), 2**63 - 1),
    ],
)
def test_the_tail_record_comes_back_as_it_was(tail: TailRecord | None) -> None:
    made = decide(SetLastCleanEpoch(LOG, EPOCH_MAX, tail), None, OURS)
    assert isinstance(made, ConditionalWrite)
    assert len(decode_cell(made.content)[1]) <= 64, "releases before read no more"
    found = decide(GetLastCleanEpoch(LOG), Cell(1, made.content), OURS)
    assert isinstance(found, Result)
    assert found.value == LastCleanEpoch(EPOCH_MAX, tail)


def _last_clean_epoch(fields: list[object]) -> object:
    found = decide(GetLastCleanEpoch(LOG), Cell(3, encode_cell(OURS, msgpack.packb(fields))), OURS)
    assert isinstance(found, Result)
    assert found.status is Status.OK
    return found.value


def test_the_first_release_reads_the_payload_of_every_tail_record() -> None:
    """It takes three integers there and fails at a fourth: what came later stands behind the payload, where it does not look."""
    state = TailState(11, 3, int(TailFlags.ENDED))
    for tail in (
        TailRecord(Lsn(9), Timestamp(5)),
        TailRecord(Lsn(9), Timestamp(5), 4),
        TailRecord(Lsn(9), Timestamp(5), 4, state, 6),
    ):
        made = decide(SetLastCleanEpoch(LOG, Epoch(3), tail), None, OURS)
        assert isinstance(made, ConditionalWrite)
        assert msgpack.unpackb(decode_cell(made.content)[1]) == [3, 9, 5]
