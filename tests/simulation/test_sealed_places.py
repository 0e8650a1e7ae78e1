"""Encrypted batches of write streams under the faults of the simulator: readers refuse nothing, until a sequencer moves or repeats one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

import sequencer.epoch_sequencer
from client.encryption import EncryptionKeys
from logdevice_py import LogDeviceError, Reader, SimCluster
from logdevice_py.core.entry import Constituent, encode_body
from logdevice_py.core.ids import WriterId
from logdevice_py.core.status import Status
from server.simulation.faults.attacks import FORGED

Simulate = Callable[..., Any]
Encode = Callable[[Sequence[Constituent]], bytes]
KEYS = EncryptionKeys({"k": b"k" * 32}, write_with="k")
LOG, RECORDS = 1, 60


async def encrypted_records(cluster: SimCluster) -> None:
    """Several writers, and readers meanwhile; in the end all that was acknowledged is there once, in the order of its writer."""
    acknowledged: set[bytes] = set()

    async def write(name: bytes) -> None:
        async with cluster.client() as client:
            writer = client.buffered_writer(encryption=KEYS, size_trigger="64B", timeout="1min")
            for number in range(RECORDS):
                payload = b"%s %d" % (name, number)

                async def settle(receipt: Any, payload: bytes = payload) -> None:
                    with suppress(LogDeviceError):
                        await receipt
                        acknowledged.add(payload)

                waiting.create_task(settle(writer.append(LOG, payload)))
                await asyncio.sleep(cluster.rng.choice([0, 0, 0.05, 0.5]))
            with suppress(LogDeviceError):
                await writer.close()

    async with asyncio.TaskGroup() as waiting:
        for name in (b"a", b"b"):
            waiting.create_task(write(name))
        for _ in range(5):
            await asyncio.sleep(2)
            await _read(cluster, timeout=5, whole=False)
    await cluster.calm()
    found = await _read(cluster, timeout=60, whole=True)
    assert acknowledged <= set(found)
    for name in (b"a", b"b"):
        numbers = [int(payload.split()[1]) for payload in found if payload.startswith(name)]
        assert numbers == sorted(set(numbers))


async def _read(cluster: SimCluster, *, timeout: float, whole: bool) -> list[bytes]:
    found: list[bytes] = []
    try:
        async with cluster.client() as client:
            until = await client.tail_lsn(LOG, timeout=timeout)
            async with client.reader(LOG, until=until, encryption=KEYS) as reader:
                while batch := await reader.read(10, timeout=timeout):
                    found += [payload for payload in batch.payloads if payload is not None]
    except LogDeviceError as error:
        if whole or error.status is Status.MISPLACED:
            raise
    return [payload for payload in found if not payload.startswith(FORGED)]


async def _read_all(reader: Reader) -> list[bytes | None]:
    found: list[bytes | None] = []
    while batch := await reader.read(10):
        found += batch.payloads
    return found


@pytest.mark.parametrize("seed", range(4))
def test_readers_refuse_nothing_whatever_breaks(simulate: Simulate, seed: int) -> None:
    attributes = {"sequencer_batching": False} if seed % 2 else {"batching_compression": "zstd"}
    simulate(
        encrypted_records,
        seed=seed,
        nodes=5,
        replicate="node:3",
        faults="all",
        attributes=attributes,
        virtual_seconds=1200,
    )


def _swap(encode: Encode) -> Encode:
    """Frames that share an entry are stored in another order."""
    return lambda frames: encode(frames[::-1])


def _repeat(encode: Encode) -> Encode:
    """A writer's frame is stored again, under the next one's number and in its place."""
    before: dict[WriterId, tuple[int, bytes, int]] = {}

    def repeat(frames: Sequence[Constituent]) -> bytes:
        for frame in frames:
            if frame.writer:
                records, payload, crc = before.get(frame.writer, (0, b"", 0))
                before[frame.writer] = frame.records, frame.payload, frame.crc
                if records == frame.records and frame.sequence % 7 == 0:
                    frame.payload, frame.crc = payload, crc
        return encode(frames)

    return repeat


@pytest.mark.parametrize("broken", [_swap, _repeat])
def test_a_sequencer_that_moves_or_repeats_batches_is_noticed(
    simulate: Simulate, monkeypatch: pytest.MonkeyPatch, broken: Callable[[Encode], Encode]
) -> None:
    monkeypatch.setattr(sequencer.epoch_sequencer, "encode_body", broken(encode_body))

    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            async with client.buffered_writer(encryption=KEYS, size_trigger="1B") as writer:
                for number in range(RECORDS):
                    writer.append(LOG, b"%d" % number)
            async with client.reader(LOG, until="tail", encryption=KEYS) as reader:
                with pytest.raises(LogDeviceError, match="MISPLACED"):
                    await _read_all(reader)

    simulate(application, virtual_seconds=60)
