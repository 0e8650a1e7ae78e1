"""The ZooKeeper epoch store against a real server that is killed, stopped, cut off and kept from answering."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.utils import AsyncResult

from epoch_store.all_cells import read_cells, write_cells
from epoch_store.interface import GetLastCleanEpoch, ReadMetadata, RegisterShard, Result, SetLastCleanEpoch
from epoch_store.zookeeper import ZooKeeperEpochStore, ZooKeeperEpochStoreSettings
from logdevice_py.core import marks
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import MILLISECOND
from server.dev.free_ports import free_ports
from server.dev.zookeeper_server import ZooKeeperServer, why_no_zookeeper
from tests.epoch_stores import LOG, given, identity, next_epoch, run, run_batch, run_one
from tests.zookeeper import HOST, LosingProxy

OpenStore: TypeAlias = Callable[..., ZooKeeperEpochStore]
SETTINGS = ZooKeeperEpochStoreSettings(
    deadline_us=700 * MILLISECOND,
    session_timeout_us=600 * MILLISECOND,
    reconnect_delay_us_max=100 * MILLISECOND,
    retry_delay_us=20 * MILLISECOND,
)
LONG_DEADLINE = replace(SETTINGS, deadline_us=20_000 * MILLISECOND, session_timeout_us=4_000 * MILLISECOND)
"""Where the subject is not the deadline, a slow disk or a busy machine must not meet it."""
SHORT = replace(SETTINGS, deadline_us=3_000 * MILLISECOND, session_timeout_us=4_000 * MILLISECOND)
"""Where it is met, what comes before it must still have the time."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    reason = why_no_zookeeper()
    if reason is not None:
        pytest.skip(reason)
    server = ZooKeeperServer(tmp_path / "zookeeper", tick_ms=100)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def proxy(server: ZooKeeperServer) -> Iterator[LosingProxy]:
    proxy = LosingProxy(server.port)
    yield proxy
    proxy.close()


@pytest.fixture
async def open_store(server: ZooKeeperServer) -> Iterator[OpenStore]:  # type: ignore[misc]
    stores: list[ZooKeeperEpochStore] = []

    def open_one(hosts: str = server.address, settings: ZooKeeperEpochStoreSettings = SETTINGS) -> ZooKeeperEpochStore:
        loop = asyncio.get_running_loop()
        stores.append(ZooKeeperEpochStore(hosts, "", "test", identity(0, len(stores) + 1), loop, settings))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that other tasks bring about."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - threads change it
            await asyncio.sleep(0.0005)


async def until_ok(store: ZooKeeperEpochStore) -> Result:
    """Activate until it works, as sequencers do."""
    async with asyncio.timeout(60):  # tries of less than a second, of which a busy machine may lose some
        while True:
            result = await run_one(store, next_epoch())
            if result.status is Status.OK:
                return result
            assert result.status in (Status.AGAIN, Status.TIMEDOUT), result


async def test_no_epoch_is_given_twice_while_the_server_is_killed_and_restarted(
    server: ZooKeeperServer, open_store: OpenStore
) -> None:
    stores = [open_store() for _ in range(3)]
    epochs: list[int] = []
    stop = False

    async def activate(store: ZooKeeperEpochStore) -> None:
        while not stop:
            result = await run_one(store, next_epoch())
            if result.status is Status.OK:
                epochs.append(given(result))
            else:
                assert result.status in (Status.AGAIN, Status.TIMEDOUT), result

    async with asyncio.TaskGroup() as group:
        for store in stores:
            group.create_task(activate(store))
        for _ in range(3):
            await asyncio.sleep(0.3)
            before = len(epochs)
            server.kill()
            await asyncio.to_thread(server.start)
            await until(lambda: len(epochs) >= before + 10)  # noqa: B023
        stop = True
    assert len(epochs) == len(set(epochs)), "an epoch was given twice"
    for store in stores:
        assert store.metrics.reconnects >= 1


async def test_a_write_whose_answer_was_lost_is_found_to_be_won(proxy: LosingProxy, open_store: OpenStore) -> None:
    store = open_store(proxy.address, LONG_DEADLINE)
    await until_ok(store)
    marks.HITS.clear()
    for expected in range(2, 6):
        proxy.lose_answers_at_write = 1
        activation = asyncio.ensure_future(run_one(store, next_epoch()))
        await until(lambda: proxy.lose_answers)
        await asyncio.sleep(0.03)
        assert not activation.done()
        proxy.cut()
        proxy.lose_answers = False
        result = await activation
        assert result.status is Status.OK, result
        assert given(result) == expected
    assert marks.HITS["epoch_store_lost_answer_was_won"] == store.metrics.unknown_outcomes == 4


async def test_lost_answers_of_many_writes_neither_skip_nor_repeat_epochs(
    server: ZooKeeperServer, proxy: LosingProxy, open_store: OpenStore
) -> None:
    store = open_store(proxy.address, LONG_DEADLINE)
    logs = [LogId(log) for log in range(1, 101)]
    first = await run_batch(store, [next_epoch(log) for log in logs])
    assert {result.status for result in first} == {Status.OK}
    proxy.lose_answers_at_write = 30
    rounds = asyncio.ensure_future(run_batch(store, [next_epoch(log) for log in logs]))
    await until(lambda: proxy.lose_answers)
    await asyncio.sleep(0.05)
    proxy.cut()
    proxy.lose_answers = False
    results = await rounds
    assert {(result.status, given(result)) for result in results} == {(Status.OK, 2)}
    assert store.metrics.unknown_outcomes > 0
    assert marks.HITS["epoch_store_lost_answer_was_won"] > 0
    direct = await run_batch(open_store(settings=LONG_DEADLINE), [ReadMetadata(log) for log in logs])
    assert {result.version for result in direct} == {2}


async def test_a_server_that_is_away_longer_than_the_session_gives_again_and_then_works(
    server: ZooKeeperServer, open_store: OpenStore
) -> None:
    store = open_store()
    await until_ok(store)
    server.kill()
    loop = asyncio.get_running_loop()
    began = loop.time()
    # nobody answers for the server, which is away until this is over
    async with asyncio.timeout(30):
        while loop.time() - began < 1.5:
            read, update = await asyncio.gather(run_one(store, GetLastCleanEpoch(LOG)), run_one(store, next_epoch()))
            assert read.status is Status.AGAIN
            assert update.status in (Status.AGAIN, Status.TIMEDOUT)
            assert (update.status is Status.TIMEDOUT) == update.maybe_applied
    await asyncio.to_thread(server.start)
    assert given(await until_ok(store)) >= 2


def noting_waits(wait: Callable[..., object], noted: list[str]) -> Callable[..., object]:
    """A way to wait for an answer of kazoo's, which the thread that makes it must not use."""
    own = threading.get_ident()

    def noting(*args: object, **kwargs: object) -> object:
        if threading.get_ident() == own:
            noted.append("".join(traceback.format_stack(limit=4)))
        return wait(*args, **kwargs)

    return noting


async def test_a_stopped_server_costs_the_session_but_not_the_store(
    server: ZooKeeperServer, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    await until_ok(store)
    server.freeze()
    waits_on_the_loop: list[str] = []
    for name in ("get", "wait"):
        monkeypatch.setattr(AsyncResult, name, noting_waits(getattr(AsyncResult, name), waits_on_the_loop))
    # the server says nothing until they are all answered
    async with asyncio.timeout(30):
        results = await run_batch(store, [next_epoch(LogId(log)) for log in range(1, 2000)])
    assert {result.status for result in results} <= {Status.AGAIN, Status.TIMEDOUT}
    assert not waits_on_the_loop
    await asyncio.sleep(0.6)
    server.thaw()
    assert given(await until_ok(store)) >= 2
    assert store.metrics.reconnects >= 1


async def test_a_store_opened_before_its_server_runs_works_once_it_does(
    server: ZooKeeperServer, open_store: OpenStore
) -> None:
    server.kill()
    store = open_store(settings=SHORT)
    assert (await run_one(store, next_epoch())) == Result(
        Status.AGAIN, detail=f"ZooKeeper at {server.address} did not answer"
    )
    await asyncio.to_thread(server.start)
    assert given(await until_ok(store)) == 1


async def test_one_reachable_server_of_several_is_enough(server: ZooKeeperServer, open_store: OpenStore) -> None:
    assert given(await until_ok(open_store(f"127.0.0.1:{free_ports(1)[0]},{server.address}", LONG_DEADLINE))) == 1


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers are tried in the order in which they are given."""
    monkeypatch.setattr(random, "shuffle", lambda hosts: None)


@pytest.fixture
def unreachable() -> Iterator[str]:
    """An address from which nothing comes, not even that nobody listens: the queue of connections is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((HOST, 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield "{}:{}".format(*listener.getsockname())


async def test_a_server_that_cannot_be_reached_is_left_before_the_deadline_of_what_waits(
    server: ZooKeeperServer, unreachable: str, open_store: OpenStore, in_order: None
) -> None:
    settings = replace(
        LONG_DEADLINE,
        deadline_us=8_000 * MILLISECOND,
        session_timeout_us=15_000 * MILLISECOND,
        connect_timeout_us=200 * MILLISECOND,
    )
    store = open_store(f"{unreachable},{server.address}", settings)
    assert given(await run_one(store, next_epoch())) == 1


async def test_a_server_that_falls_silent_is_left_though_requests_keep_coming(
    server: ZooKeeperServer, proxy: LosingProxy, open_store: OpenStore, in_order: None
) -> None:
    """Each request counts as a sign of life for kazoo, which looks for answers to nothing but its pings."""
    settings = replace(LONG_DEADLINE, session_timeout_us=2_000 * MILLISECOND)
    store = open_store(f"{proxy.address},{server.address}", settings)
    await until_ok(store)
    accepted = proxy.accepted
    proxy.lose_answers = True
    under_way: list[asyncio.Future[Result]] = []
    async with asyncio.timeout(10):
        while not store.metrics.reconnects:
            under_way.append(asyncio.ensure_future(run_one(store, GetLastCleanEpoch(LOG))))
            await asyncio.sleep(0.05)
    assert {result.status for result in await asyncio.gather(*under_way)} == {Status.OK}
    assert proxy.accepted == accepted, "it is not the next one that is tried"


async def test_a_write_that_a_silent_server_made_is_found_to_be_won_at_another_one(
    server: ZooKeeperServer, proxy: LosingProxy, open_store: OpenStore, in_order: None
) -> None:
    settings = replace(LONG_DEADLINE, session_timeout_us=2_000 * MILLISECOND)
    store = open_store(f"{proxy.address},{server.address}", settings)
    before = given(await until_ok(store))
    marks.HITS.clear()
    proxy.lose_answers_at_write = 1
    activation = asyncio.ensure_future(run_one(store, next_epoch()))
    reads: list[asyncio.Future[Result]] = []
    async with asyncio.timeout(10):
        while not activation.done():  # each counts as a sign of life for kazoo
            reads.append(asyncio.ensure_future(run_one(store, GetLastCleanEpoch(LOG))))
            await asyncio.sleep(0.05)
    assert given(await activation) == before + 1
    assert {result.status for result in await asyncio.gather(*reads)} == {Status.OK}
    assert marks.HITS["epoch_store_lost_answer_was_won"] == 1
    assert store.metrics.unknown_outcomes == 1


async def test_closing_never_blocks_even_when_the_server_is_stopped(
    server: ZooKeeperServer, open_store: OpenStore
) -> None:
    store = open_store(settings=LONG_DEADLINE)
    await until_ok(store)
    server.freeze()
    pending = asyncio.ensure_future(run_one(store, next_epoch()))
    await asyncio.sleep(0.05)
    began = asyncio.get_running_loop().time()
    store.close()
    # to wait for the server would take two thirds of the session's 4 s: until then a connection without answers is kept
    assert asyncio.get_running_loop().time() - began < 1.5
    assert (await pending).status is Status.SHUTDOWN
    server.thaw()


async def test_a_write_that_never_reached_the_server_is_made_again(
    server: ZooKeeperServer, proxy: LosingProxy, open_store: OpenStore
) -> None:
    store = open_store(proxy.address, LONG_DEADLINE)
    await until_ok(store)
    server.freeze()
    activation = asyncio.ensure_future(run_one(store, next_epoch()))
    await asyncio.sleep(0.05)
    proxy.cut()
    server.thaw()
    assert given(await activation) == 2


async def test_a_lost_write_that_another_node_overtook_takes_a_further_epoch(
    proxy: LosingProxy, open_store: OpenStore
) -> None:
    store, other = open_store(proxy.address, LONG_DEADLINE), open_store(settings=LONG_DEADLINE)
    await until_ok(store)
    proxy.lose_answers_at_write = 1
    activation = asyncio.ensure_future(run_one(store, next_epoch()))
    await until(lambda: proxy.lose_answers)
    await asyncio.sleep(0.03)
    assert given(await run_one(other, next_epoch())) == 3
    proxy.cut()
    proxy.lose_answers = False
    assert given(await activation) == 4


async def test_a_lost_write_without_answer_until_the_deadline_may_have_been_applied(
    proxy: LosingProxy, open_store: OpenStore
) -> None:
    store = open_store(proxy.address, SHORT)
    first = given(await until_ok(store))
    proxy.lose_answers_at_write = 1
    lost = await run_one(store, next_epoch())
    assert (lost.status, lost.maybe_applied) == (Status.TIMEDOUT, True)
    proxy.cut()
    proxy.lose_answers = False
    assert given(await until_ok(store)) >= first + 2, "the one in between may be given"


async def test_a_client_that_ended_is_replaced(open_store: OpenStore) -> None:
    store = open_store(settings=LONG_DEADLINE)
    await until_ok(store)
    marks.HITS.clear()
    await asyncio.to_thread(store._client.stop)
    assert given(await until_ok(store)) == 2
    assert marks.HITS["zookeeper_client_died"] == 1


async def test_a_znode_that_somebody_else_wrote_fails_and_is_left_alone(
    server: ZooKeeperServer, open_store: OpenStore
) -> None:
    def overwrite() -> None:
        client = KazooClient(server.address)
        client.start()
        client.set("/logdevice/test/logs/7/sequencer", b"not ours")
        client.stop()
        client.close()

    store = open_store(settings=LONG_DEADLINE)
    await until_ok(store)
    await asyncio.to_thread(overwrite)
    result = await run_one(store, next_epoch())
    assert (result.status, result.version) == (Status.FAILED, 2)
    assert "logs/7/sequencer" in result.detail


async def test_all_cells_are_copied_and_written_where_there_are_none(
    server: ZooKeeperServer, open_store: OpenStore
) -> None:
    store = open_store(settings=LONG_DEADLINE)
    await until_ok(store)
    await run(store, SetLastCleanEpoch(LOG, Epoch(1), None), RegisterShard(bytes(16), NodeId(3), 2, None))
    copied = await asyncio.to_thread(read_cells, server.url, "test")
    assert sorted(copied) == ["logs/7/lce", "logs/7/sequencer", "shards/N3:S2"]
    with pytest.raises(LogDeviceError) as caught:
        await asyncio.to_thread(write_cells, server.url, "test", copied)
    assert caught.value.status is Status.EXISTS
    await asyncio.to_thread(write_cells, server.url, "restored", copied)
    assert await asyncio.to_thread(read_cells, server.url, "restored") == copied
    with pytest.raises(LogDeviceError, match="has no"):
        await asyncio.to_thread(read_cells, server.url, "nobody")
