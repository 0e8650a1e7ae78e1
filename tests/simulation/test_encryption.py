"""Encryption by clients in whole clusters: nodes hold nothing in clear, and readers with the keys get what was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from client.encryption import EncryptionKeys
from logdevice_py import LogDeviceError, Record, SimCluster
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import Status

Simulate = Callable[..., Any]
FIRST = EncryptionKeys({"k1": b"1" * 32}, write_with="k1")
BOTH = EncryptionKeys({"k1": b"1" * 32, "k2": b"2" * 32}, write_with="k2")


@pytest.mark.parametrize("batching", [True, False])
def test_readers_with_the_keys_get_what_was_written_and_others_are_told(simulate: Simulate, batching: bool) -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            for keys, count in ((FIRST, 20), (BOTH, 20), (None, 1)):
                async with client.buffered_writer(encryption=keys, size_trigger_bytes=200) as writer:
                    receipts = [writer.append(1, b"%d of many records" % number) for number in range(count)]
                    await writer.flush()
                first = await receipts[0]
                async with client.reader(1, start=first.lsn, until="tail") as reader:
                    if keys is None:
                        assert [item.payload async for item in reader if isinstance(item, Record)] == [
                            b"0 of many records"
                        ]
                        continue
                    for _ in range(2):
                        with pytest.raises(LogDeviceError) as caught:
                            await reader.read()
                        assert caught.value.status is Status.NOKEY
            expected = [b"%d of many records" % number for number in [*range(20), *range(20), 0]]
            async with client.reader(1, start=LSN.OLDEST, until="tail", encryption=BOTH) as reader:
                assert [item.payload async for item in reader if isinstance(item, Record)] == expected
            found: list[bytes | None] = []
            async with client.reader(1, start=LSN.OLDEST, until="tail", encryption=FIRST) as reader:
                while len(found) < 20:
                    found += (await reader.read()).payloads
                with pytest.raises(LogDeviceError, match="key 'k2', which is not among those given"):
                    await reader.read()
            assert found == expected[:20]

    simulate(application, attributes={"sequencer_batching": batching}, virtual_seconds=60)
