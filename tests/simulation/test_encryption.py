"""Encryption by clients in whole clusters: nodes hold nothing in clear, and readers with the keys get what was written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from client.encryption import EncryptionKeys
from client.spark.options import SourceOptions
from client.spark.planning import Restriction, plan
from client.spark.triggers import Load, bounded_positions, first_positions, ranges_between
from logdevice_py import LogDeviceError, Record, SimCluster
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import Status
from streams.namespace import Namespace

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


def test_a_log_is_trimmed_and_previewed_without_its_keys(simulate: Simulate) -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            await client.append(1, b"in clear")
            sealed = [await client.append(1, b"secret", encryption=FIRST) for _ in range(3)]
            preview = await client.trim_preview(1, sealed[1].lsn)
            assert (preview.trim_point, preview.records) == (sealed[1].lsn, 3)
            assert preview.bytes > len(b"in clear") + 2 * len(b"secret"), "with what the encryption adds"
            await client.trim(1, sealed[1].lsn)
            assert (await client.head(1)).trim_point == sealed[1].lsn

    simulate(application, virtual_seconds=60)


def test_spark_plans_with_the_keys_that_it_was_given(simulate: Simulate, tmp_path: Path) -> None:
    keys = tmp_path / "my.keys"
    keys.write_text(f"k1 {(b'1' * 32).hex()}\n")
    keys.chmod(0o600)
    given = {"cluster": "cluster.toml", "logs": "1", "keysFile": str(keys)}

    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            lsns = [(await client.append(1, b"secret", encryption=FIRST)).lsn for _ in range(5)]
            behind = lsns[-1] + 1
            planned = await plan(client, SourceOptions.of(given), Restriction())
            assert [(cut.lo <= lsns[0], cut.hi) for cut in planned] == [(True, lsns[-1])]
            options = SourceOptions.of(given, streaming=True)
            assert (await first_positions(client, options))[1] <= lsns[0]
            assert (await ranges_between(client, {}, {1: behind}))[0].hi == lsns[-1]
            two = await bounded_positions(client, options, {1: lsns[0]}, {1: behind}, Load(2, len(b"secret") * 2), 0)
            assert two == {1: lsns[2]}

    simulate(application, virtual_seconds=60)


async def refused(operation: Awaitable[Any]) -> LogDeviceError:
    with pytest.raises(LogDeviceError) as caught:
        await operation
    return caught.value


@pytest.mark.parametrize("batching", [True, False])
def test_direct_appends_are_encrypted_each_by_itself(simulate: Simulate, batching: bool) -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            one = await client.append(1, b"secret 0", encryption=FIRST, key=b"in clear")
            appends = [
                client.append(1, b"secret 1", encryption=FIRST),
                client.append(1, b"in clear"),
                client.append_many(1, [b"secret 2", b"secret 3"], encryption=BOTH),
                client.append_many(1, [b"secret 4", b"secret 5"], encryption=FIRST, atomic=True, txids=[7, 8]),
                client.append(1, b"secret 6", encryption=FIRST, txid=9),
            ]
            for each in appends:
                await each
            last = await client.append(1, b"secret 7", encryption=FIRST, expect=(await appends[-1]).position)
            async with client.reader(1, start=LSN.OLDEST, until="tail", encryption=BOTH) as reader:
                found = [item async for item in reader if isinstance(item, Record)]
            assert sorted(item.payload for item in found if item.payload != b"in clear") == [
                b"secret %d" % number for number in range(8)
            ]
            assert (found[-1].lsn, found[-1].batch_offset) == last.position
            assert await client.find_key(1, b"in clear") is not None
            async with client.reader(1, start=one.lsn, until=one.lsn) as reader:
                assert (await refused(reader.read())).status is Status.NOKEY
            largest = cluster.machines.config.log(LogId(1)).max_payload_bytes  # type: ignore[union-attr]
            assert (
                await refused(at_once(lambda: client.append(1, bytes(largest), encryption=FIRST)))
            ).status is Status.TOOBIG
            readers_only = EncryptionKeys({"k1": b"1" * 32})
            assert (
                await refused(at_once(lambda: client.append(1, b"x", encryption=readers_only)))
            ).status is Status.INVALID_PARAM
        stored = [
            image
            for node in cluster.machines.nodes.values()
            for rows in node.snapshot().values()
            for image in rows.values()
        ]
        assert stored
        assert not any(b"secret" in image for image in stored)

    simulate(application, attributes={"sequencer_batching": batching}, virtual_seconds=60)


async def at_once(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


def test_streams_are_encrypted_by_their_writers(simulate: Simulate) -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client, Namespace(client) as namespace:
            shared = await namespace.create("shared")
            async with shared.writer(encryption=FIRST) as writer:
                first = await writer.write(b"one")
                await writer.write(b"two", expect=first.position)
            async with shared.reader(until="tail") as reader:
                assert (await refused(reader.read())).status is Status.NOKEY
            async with shared.reader(until="tail", encryption=FIRST) as reader:
                assert [record.payload async for record in reader] == [b"one", b"two"]
            owned = await namespace.create("owned", writers="exclusive")
            for number in range(2):
                async with owned.exclusive_writer(owner="me", encryption=BOTH) as owner:
                    assert (owner.last.payload if owner.last else None) == (b"0" if number else None)
                    await owner.write(b"%d" % number)
            last = await owned.last(encryption=BOTH)
            assert last is not None
            assert last.payload == b"1"
            assert await owned.count(encryption=BOTH) == 2
            assert (await refused(owned.last())).status is Status.NOKEY

    simulate(application, log_tree=True, virtual_seconds=120)
