"""Messages that nobody waits for urgently leave together with the next one, where there is a next one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from logdevice_py.core.ids import Generation, LogId, PeerId, ShardId
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import GetSeqState, Release, Store, says
from tests.integration.test_transport import process, release

PEER = PeerId(1)


def urgent(number: int) -> GetSeqState:
    return GetSeqState(request_id=number, log=LogId(1), flags=0, min_epoch=Epoch(0))


def store(released: int) -> Store:
    return Store(
        log=LogId(1),
        lsn=Lsn(9),
        shard=ShardId(0),
        generation=Generation(1),
        wave=1,
        flags=0,
        seal_epoch=Epoch(0),
        recovery_id=0,
        released=Lsn(released),
        image=b"image",
    )


async def test_a_patient_message_leaves_at_once_when_nothing_followed_the_one_before() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses) as (sender, _), process(1, addresses) as (_, seen):
        sender.send(PEER, urgent(1))
        await seen.until(lambda: len(seen.messages) == 1)
        for number in (1, 2, 3):
            sender.send(PEER, release(number), patient=True)
            sender.flush()
            assert not sender._patient
            await asyncio.sleep(0.005)  # longer than any patience: nothing follows
        await seen.until(lambda: len(seen.messages) == 4)


async def test_a_patient_message_waits_for_the_next_one_where_such_have_come_and_order_is_kept() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses) as (sender, _), process(1, addresses) as (_, seen):
        sender.send(PEER, urgent(1))
        await seen.until(lambda: len(seen.messages) == 1)
        sender.send(PEER, release(1), patient=True)
        sender.flush()
        sender.send(PEER, urgent(2))  # within its patience
        sender.flush()
        before = sender.metrics.bytes_sent
        sender.send(PEER, release(2), patient=True)
        sender.flush()
        assert sender.metrics.bytes_sent == before
        sender.send(PEER, urgent(3))
        sender.flush()
        await seen.until(lambda: len(seen.messages) == 5)
        assert [message for _, message in seen.messages] == [urgent(1), release(1), urgent(2), release(2), urgent(3)]


async def test_a_release_that_waits_is_left_out_when_a_store_says_the_same() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses) as (sender, _), process(1, addresses) as (_, seen):
        sender.send(PEER, urgent(1))
        await seen.until(lambda: len(seen.messages) == 1)
        sender.send(PEER, release(1), patient=True)
        sender.flush()
        sender.send(PEER, store(released=1))  # the release before it has left already
        sender.flush()
        sender.send(PEER, release(2), patient=True)
        sender.send(PEER, store(released=2))
        sender.flush()
        sender.send(PEER, release(3), patient=True)
        sender.send(PEER, store(released=2))
        sender.flush()
        expected = [urgent(1), release(1), store(released=1), store(released=2), release(3), store(released=2)]
        await seen.until(lambda: len(seen.messages) == len(expected))
        assert [message for _, message in seen.messages] == expected


@pytest.mark.parametrize(
    ("patient", "left_out"),
    [
        (Release(shard=ShardId(0), logs=[(1, 7)]), True),
        (Release(shard=ShardId(0), logs=[(1, 6)]), True),
        (Release(shard=ShardId(0), logs=[(1, 8)]), False),
        (Release(shard=ShardId(0), logs=[(2, 7)]), False),
        (Release(shard=ShardId(0), logs=[(1, 7), (2, 7)]), False),
        (Release(shard=ShardId(1), logs=[(1, 7)]), False),
    ],
)
def test_a_store_says_what_a_release_of_its_log_alone_says_to_its_shard(patient: Release, left_out: bool) -> None:
    assert says(store(released=7), patient) is left_out
    assert not says(urgent(1), patient)


async def test_a_patient_message_that_waits_in_vain_is_sent_and_the_next_does_not_wait() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses) as (sender, _), process(1, addresses) as (_, seen):
        sender.send(PEER, urgent(1))
        await seen.until(lambda: len(seen.messages) == 1)
        sender.send(PEER, release(1), patient=True)
        sender.flush()
        sender.send(PEER, urgent(2))
        sender.flush()
        sender.send(PEER, release(2), patient=True)
        sender.flush()
        await seen.until(lambda: len(seen.messages) == 4)
        before = sender.metrics.bytes_sent
        sender.send(PEER, release(3), patient=True)
        sender.flush()
        assert sender.metrics.bytes_sent > before
        await seen.until(lambda: len(seen.messages) == 5)


async def test_what_waits_patiently_is_sent_before_the_connection_closes() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(1, addresses) as (_, seen):
        async with process(0, addresses) as (sender, _):
            sender.send(PEER, urgent(1))
            await seen.until(lambda: len(seen.messages) == 1)
            sender.send(PEER, release(1), patient=True)
            sender.flush()
            sender.send(PEER, urgent(2))
            sender.flush()
            sender.send(PEER, release(2), patient=True)
        await seen.until(lambda: len(seen.messages) == 4)


class Root:
    """A machine that notes what it gets."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.turns = 0
        self.changed = asyncio.Event()

    def on_message(self, peer: PeerId, message: Any, now: Micros) -> None:
        self.got.append(message)
        self.changed.set()

    def on_peer_up(self, peer: PeerId, now: Micros) -> None: ...

    def on_peer_down(self, peer: PeerId, now: Micros, *, refused: bool) -> None: ...

    def on_turn_end(self, now: Micros) -> None:
        self.turns += 1


async def test_a_patient_message_to_the_own_node_comes_with_the_next_one_or_soon() -> None:
    from logdevice_py.core.machine import Outbox, Send, TimerWheel
    from logdevice_py.runtime.driver import Driver

    root, outbox = Root(), Outbox()
    crashed: list[BaseException] = []
    driver = Driver(root, outbox, TimerWheel(), effects={}, own_peer=PEER, on_crash=crashed.append)

    def put_out(message: Any) -> None:
        outbox.emit(Send(PEER, message, patient=type(message) is Release))

    async def turn(*messages: Any) -> None:
        driver.event(lambda now: [put_out(message) for message in messages] and None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    await turn(release(1))
    assert not root.got
    await turn(urgent(1))
    assert root.got == [release(1), urgent(1)]
    await turn(release(2))
    await turn(store(released=2))
    assert root.got[2:] == [store(released=2)]
    root.changed.clear()
    await turn(release(3))
    assert root.got[-1] == store(released=2)
    async with asyncio.timeout(5):
        await root.changed.wait()
    assert root.got[-1] == release(3)
    driver.stop()
    assert not crashed
