"""Permissions in whole clusters: what each principal may do, what it is told, and what becomes of permissions that change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from client.client import Client
from client.reader import Reader
from client.takeover import recovered
from client.write import write_stream, write_streams
from logdevice_py import LogDeviceError, Record, SimCluster, SimulationFailed
from logdevice_py.config.logs import LogTree
from logdevice_py.config.permits import parse_permits
from logdevice_py.core.ids import LOG_TREE_DELTAS, LOG_TREE_SNAPSHOTS, LogId, WriterId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from server.simulation.faults.hostile import LET_IN_AS_NODE
from tests.simulation import deliberate_connections  # noqa: F401 (plants)
from tests.simulation.deliberate_fault import FAULTS

Simulate = Callable[..., Any]
PERMIT = "append:svc-clicks, read:group/bi, trim:ops, admin:root, read:svc-clicks"


async def told(operation: Awaitable[Any]) -> Any:
    """What became of an operation: its error, or None."""
    try:
        await operation
    except LogDeviceError as error:
        return error
    return None


async def stream_one(client: Client, payload: bytes) -> None:
    async with client.buffered_writer() as writer:
        await writer.append(1, payload)


async def next_payloads(reader: Reader, timeout: float = 20) -> list[bytes]:
    """Of the next records, behind any gaps."""
    while True:
        found = [item.payload for item in await reader.read(timeout=timeout) if isinstance(item, Record)]
        if found:
            return found


async def read_some(client: Client, log: int | str) -> list[bytes]:
    async with client.reader(log, start=LSN.OLDEST) as reader:
        return await next_payloads(reader)


def set_permit(cluster: SimCluster, text: str) -> None:
    """A newer cluster file, on all nodes at once."""
    machines = cluster.machines
    tree = machines.config.logs
    groups = [(group.path, group.lo, group.hi, group.overrides) for group in tree.groups]
    defaults = {**tree.defaults, "permit": parse_permits(text)}
    logs = LogTree.build(defaults=defaults, directories=tree.directories, groups=groups)
    machines.config = replace(machines.config, version=machines.config.version + 1, logs=logs)
    for node in machines.nodes.values():
        node.take_config(machines.config)


def run(simulate: Simulate, application: Callable[[SimCluster], Awaitable[Any]], **options: Any) -> Any:
    return simulate(application, permissions=True, attributes={"permit": PERMIT}, virtual_seconds=120, **options)


def test_each_may_do_what_it_is_permitted_and_nothing_else(simulate: Simulate) -> None:
    async def application(cluster: SimCluster) -> None:
        allowed = {
            "svc-clicks": {"append", "append many", "stream", "read", "find", "tail"},
            "ops": {"trim", "tail"},
            "root": {"append", "append many", "stream", "read", "find", "trim", "tail"},
            "nobody-in-particular": set(),
        }
        async with cluster.client(principal="root") as root:
            receipt = await root.append(1, b"first")
        for principal, may in allowed.items():
            async with cluster.client(principal=principal) as client:
                operations: dict[str, Callable[[], Awaitable[Any]]] = {
                    "append": lambda: client.append(1, b"one"),
                    "append many": lambda: client.append_many(1, [b"two", b"three"], atomic=True),
                    "stream": lambda: stream_one(client, b"four"),
                    "read": lambda: read_some(client, 1),
                    "find": lambda: client.find_time(1, 1),
                    "trim": lambda: client.trim(1, LSN(receipt.lsn - 1)),
                    "tail": lambda: client.tail_lsn(1),
                }
                outcomes = {name: await told(operation()) for name, operation in operations.items()}
            assert {name for name, error in outcomes.items() if error is None} == may, (principal, outcomes)
            refused = [error for error in outcomes.values() if error is not None]
            assert all(error.status is Status.ACCESS for error in refused), (principal, refused)
            assert not any(error.retriable or error.maybe_applied for error in refused)
            named = [name for name, error in outcomes.items() if error is not None and principal not in error.detail]
            assert named in ([], ["find"])  # look-ups tell what shards say

    run(simulate, application)


def test_a_group_of_the_certificate_counts_and_who_has_none_is_anonymous(simulate: Simulate) -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client(principal="svc-clicks") as writer:
            await writer.append(1, b"clicked")
        async with cluster.client(principal="carol", groups=["bi"]) as reader:
            assert len(await read_some(reader, 1)) == 1
        async with cluster.client() as stranger:
            error = await told(stranger.append(1, b"hello"))
            assert error.status is Status.ACCESS
            assert "principal anonymous may not append to log 1 (/logs/1): it has no permission append" in error.detail
        set_permit(cluster, "append:anonymous")
        async with cluster.client() as stranger, cluster.client(principal="svc-clicks") as known:
            await stranger.append(1, b"hello")
            await known.append(1, b"so may everybody")

    run(simulate, application)


async def permission_taken_away(cluster: SimCluster) -> None:
    """What is open ends, and goes on when the permission is back."""
    async with cluster.client(principal="svc-clicks") as client:
        # one that goes by its first configuration: with a later one it would look by itself what it may do
        client.set_config = lambda config: None  # type: ignore[method-assign]
        await stream_one(client, b"first")
        async with client.reader(1, start=LSN.OLDEST) as reader:
            assert await next_payloads(reader) == [b"first"]
            waiting = asyncio.ensure_future(next_payloads(reader, timeout=60))
            await asyncio.sleep(1)
            assert not waiting.done()
            set_permit(cluster, "append:svc-clicks, admin:root")
            error = await told(waiting)
            assert error.status is Status.ACCESS
            assert "svc-clicks may not read log 1" in error.detail
            await stream_one(client, b"second")
            set_permit(cluster, "admin:root")
            assert (await told(stream_one(client, b"third"))).status is Status.ACCESS
            assert (await told(client.append(1, b"third"))).status is Status.ACCESS
            set_permit(cluster, PERMIT)
            await stream_one(client, b"fourth")
            batch = await next_payloads(reader)
            while b"fourth" not in batch:
                batch += await next_payloads(reader)
            assert batch == [b"second", b"fourth"]


def test_a_permission_that_is_taken_away_ends_what_is_open(simulate: Simulate) -> None:
    run(simulate, permission_taken_away)


def test_the_log_tree_is_changed_by_administrators_and_read_by_everybody(simulate: Simulate) -> None:
    async def application(cluster: SimCluster) -> None:
        async with (
            cluster.client(principal="root") as root,
            cluster.client(principal="svc-clicks") as client,
            cluster.client() as stranger,
        ):
            await root.make_log_group("/made", 1, attributes={"permit": "append:svc-clicks, read:anonymous"})
            for each in (client, stranger):
                assert (await each.get_log_group("/made")).logs
                error = await told(each.make_log_group("/mine", 1))
                assert error.status is Status.ACCESS
                for log in (LOG_TREE_DELTAS, LOG_TREE_SNAPSHOTS):
                    assert (await told(each.append(log, b"forged"))).status is Status.ACCESS
                    assert (await told(each.trim(log, LSN(1)))).status is Status.ACCESS
            await client.append("/made", b"payload")
            assert (await told(stranger.append("/made", b"payload"))).status is Status.ACCESS
            assert len(await read_some(stranger, "/made")) == 1

    run(simulate, application, log_tree=True)


def test_without_permissions_nothing_is_asked(simulate: Simulate) -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            await client.append(1, b"payload")

    simulate(application, attributes={"permit": "append:somebody"}, virtual_seconds=60)


@pytest.mark.parametrize("seed", range(2))
def test_permitted_work_goes_on_under_faults(simulate: Simulate, seed: int) -> None:
    async def application(cluster: SimCluster) -> int:
        async with cluster.client(principal="svc-clicks") as client, client.buffered_writer(timeout="5min") as writer:
            for number in range(30):
                await writer.append(1, b"%d" % number)
        await cluster.calm()
        async with cluster.client(principal="root") as client:
            tail = await client.tail_lsn(1)
            async with client.reader(1, start=LSN.OLDEST, until=tail) as reader:
                return len([item async for item in reader if isinstance(item, Record)])

    assert run(simulate, application, faults="all", seed=seed, nodes=5) == 30


def test_a_write_stream_belongs_to_its_principal(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who may append to the log as well uses the writer id of somebody else: only he has to take another one."""
    ids = iter([WriterId(b"w" * 16)] * 2 + [WriterId(bytes([number]) * 16) for number in range(10)])
    for module in (write_stream, write_streams):
        monkeypatch.setattr(module, "new_writer_id", lambda rng: next(ids))

    async def application(cluster: SimCluster) -> tuple[int, int]:
        set_permit(cluster, "append:a, append:b, admin:root")
        async with (
            cluster.client(principal="a") as one,
            cluster.client(principal="b") as two,
            one.buffered_writer() as first,
            two.buffered_writer() as second,
        ):
            for number in range(5):
                await first.append(1, b"a%d" % number)
                await second.append(1, b"b%d" % number)
            return first.metrics.refusals, second.metrics.refusals

    # the other one is refused once at most, when the log goes on in a further epoch; nothing of his fails
    assert run(simulate, application) in ((0, 1), (1, 1))


async def reader_asks_for_epochs(cluster: SimCluster) -> None:
    async with cluster.client(principal="root") as root, cluster.client(principal="reader") as reader:
        set_permit(cluster, "admin:root, read:reader")
        first = await root.append(1, b"one")
        for ahead in (1, 2):
            asked = recovered(reader, LogId(1), min_epoch=first.lsn.epoch + ahead, timeout_us=Micros(3_000_000))
            assert (await told(asked)).retriable
        assert await reader.tail_lsn(1) == first.lsn, "it learns how far the log is all the same"
        assert (await root.append(1, b"two")).lsn.epoch == first.lsn.epoch


def test_who_may_only_read_begins_no_epochs(simulate: Simulate) -> None:
    run(simulate, reader_asks_for_epochs)


def test_readers_that_begin_epochs_are_noticed(simulate: Simulate) -> None:
    with FAULTS["readers_begin_epochs"].planted(), pytest.raises((SimulationFailed, AssertionError, AttributeError)):
        run(simulate, reader_asks_for_epochs)


async def among_strangers(cluster: SimCluster) -> None:
    """Honest work on log 1, and strangers who try everything, with a certificate or without: no log changes but by the honest."""
    acknowledged: list[bytes] = []

    async def annoy(client: Client) -> None:
        reader = client.reader(1, start=LSN.OLDEST)
        for log in (1, 2, LOG_TREE_DELTAS, LOG_TREE_SNAPSHOTS):
            assert (await told(client.append(log, b"stranger"))).status is Status.ACCESS
            assert (await told(client.trim(log, LSN(1)))).status is Status.ACCESS
        assert (await told(next_payloads(reader))).status is Status.ACCESS
        assert (await told(client.raise_fence(1, 7))).status is Status.ACCESS
        await reader.close()

    async with (
        cluster.client(principal="svc-clicks") as honest,
        cluster.client(principal="mallory") as mallory,
        cluster.client() as nobody,
    ):
        for number in range(15):
            payload = b"%d" % number
            await honest.append(1, payload)
            acknowledged.append(payload)
            if number % 5 == 0:
                await asyncio.gather(annoy(mallory), annoy(nobody))
            await asyncio.sleep(0.5)
        await cluster.calm()
        tail = await honest.tail_lsn(1)
        async with honest.reader(1, start=LSN.OLDEST, until=tail) as reader:
            assert [item.payload async for item in reader if isinstance(item, Record)] == acknowledged
    async with cluster.client(principal="root") as root:
        for log in (2, LOG_TREE_DELTAS):
            async with root.reader(log, start=LSN.OLDEST, until=await root.tail_lsn(log)) as reader:
                assert [item async for item in reader if isinstance(item, Record)] == []
    effects = cluster.machines.fault_effects
    assert cluster.faults["hostile_node"]
    assert cluster.faults["hostile_client"]
    assert effects[LET_IN_AS_NODE] == 0


HOSTILE = {"faults": ("hostile_node", "hostile_client"), "fault_interval": 0.3, "log_tree": True}


def test_strangers_and_false_nodes_change_no_log(simulate: Simulate) -> None:
    run(simulate, among_strangers, **HOSTILE)


@pytest.mark.parametrize("fault", ["permissions_not_looked_at", "nodes_believed"])
def test_strangers_are_noticed_when_nobody_checks(simulate: Simulate, fault: str) -> None:
    with FAULTS[fault].planted(), pytest.raises(SimulationFailed):
        run(simulate, among_strangers, **HOSTILE)


def test_streams_that_go_on_are_noticed(simulate: Simulate) -> None:
    with FAULTS["refused_streams_go_on"].planted(), pytest.raises(SimulationFailed):
        run(simulate, permission_taken_away)
