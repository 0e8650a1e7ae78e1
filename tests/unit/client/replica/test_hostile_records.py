"""Bytes that anybody may have appended: taken, or refused as declared, and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from client.read.items import Record
from client.replica.applied_state import REQUESTS_MAX, AppliedState
from client.replica.chunked_snapshots import CHUNK_OVERHEAD, ChunkedSnapshots, cut_snapshot
from client.replica.commands import NOTHING, RequestId, StateVersion, decode_command, encode_command
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, LSN_INVALID, Lsn
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp
from tests.unit.client.replica.registers import REGISTERS, Registers

COMMAND = encode_command("registers", RequestId(bytes(16), NOTHING), b"a * 1")


def damaged(data: bytes) -> Iterator[bytes]:
    """Cut anywhere, followed by something, and with another byte in each place."""
    yield from (data[:size] for size in range(len(data)))
    yield data + b"\x00"
    for at in range(len(data)):
        for byte in (0x00, 0x7F, 0x91, 0xC0, 0xC6, 0xDD, 0xFF):
            yield data[:at] + bytes([byte]) + data[at + 1 :]


def test_damaged_commands() -> None:
    for data in damaged(COMMAND):
        with contextlib.suppress(CorruptEntryError):
            decode_command(data, "registers")
    with pytest.raises(CorruptEntryError):
        decode_command(COMMAND[:-1], "registers")


def test_damaged_snapshots() -> None:
    state: AppliedState[Registers] = AppliedState(REGISTERS)
    state.position = StateVersion(Lsn(7), 1)
    for data in damaged(state.encode()):
        with contextlib.suppress(CorruptEntryError):
            AppliedState.decode(data, REGISTERS)
    records = cut_snapshot(state.encode(), bytes(16), CHUNK_OVERHEAD + 20)
    for at, record in enumerate(records):
        for data in damaged(record):
            found: ChunkedSnapshots[Registers] = ChunkedSnapshots(REGISTERS, LSN_INVALID)
            for lsn, each in enumerate([*records[:at], data, *records[at + 1 :]], 1):
                found.offer(each, Lsn(lsn))


@pytest.mark.parametrize("size", [0, 1, 20, 21, 1000])
def test_a_snapshot_of_any_size_is_put_together_again(size: int) -> None:
    state: AppliedState[Registers] = AppliedState(REGISTERS)
    state.position = StateVersion(Lsn(7), 0)
    state.value.values["a"], state.value.counts["a"] = "x" * size, 1
    found: ChunkedSnapshots[Registers] = ChunkedSnapshots(REGISTERS, Lsn(1))
    records = cut_snapshot(state.encode(), bytes(16), CHUNK_OVERHEAD + 20)
    assert max(map(len, records)) <= CHUNK_OVERHEAD + 20
    for lsn, record in enumerate(records, 1):
        found.offer(record, Lsn(lsn))
        found.offer(record, Lsn(lsn))  # appended twice, as an append that is tried again may be
    assert found.choose(Lsn(9), AppliedState(REGISTERS)).encode() == state.encode()


def test_the_memory_of_requests_is_bounded() -> None:
    state: AppliedState[Registers] = AppliedState(REGISTERS)
    for lsn in range(1, REQUESTS_MAX + 11):
        request = RequestId(lsn.to_bytes(16, "big"), state.position)
        state.take(Record(LogId(1), LSN(lsn), 0, Timestamp(0), encode_command("registers", request, b"a * 1")))
    assert (state.horizon, len(state._outcomes)) == (StateVersion(Lsn(10), 0), REQUESTS_MAX)
    assert AppliedState.decode(state.encode(), REGISTERS).encode() == state.encode()
