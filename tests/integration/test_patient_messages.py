"""Messages that nobody waits for urgently leave together with the next one, where there is a next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from logdevice_py.core.ids import Generation, LogId, PeerId, ShardId
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.machine import Outbox, Send, TimerWheel
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from logdevice_py.protocol.messages import GetSeqState, Release, Store, says
from logdevice_py.runtime import driver, transport
from tests.integration.test_transport import process, release

PEER = PeerId(1)
HOUR = 3_600 * SECOND


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


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the microseconds that patient messages wait. It is an hour until then: a machine that stands still for some milliseconds must not
    look like nothing having followed."""

    def of(us: int) -> None:
        monkeypatch.setattr(transport, "PATIENCE_US", us)
        monkeypatch.setattr(driver, "LOCAL_PATIENCE", us / 1e6)

    of(HOUR)
    return of


async def test_a_patient_message_leaves_at_once_when_nothing_followed_the_one_before(
    patience: Callable[[int], None],
) -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses) as (sender, _), process(1, addresses) as (_, seen):
        sender.send(PEER, urgent(1))
        await seen.until(lambda: len(seen.messages) == 1)
        patience(0)
        for number in (1, 2, 3):
            sender.send(PEER, release(number), patient=True)
            sender.flush()
            assert not sender._patient
        await seen.until(lambda: len(seen.messages) == 4)


async def test_a_patient_message_waits_for_the_next_one_where_such_have_come_and_order_is_kept(
    patience: Callable[[int], None],
) -> None:
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


async def test_a_release_that_waits_is_left_out_when_a_store_says_the_same(patience: Callable[[int], None]) -> None:
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


async def test_a_patient_message_that_waits_in_vain_is_sent_and_the_next_does_not_wait(
    patience: Callable[[int], None],
) -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses) as (sender, _), process(1, addresses) as (_, seen):
        sender.send(PEER, urgent(1))
        await seen.until(lambda: len(seen.messages) == 1)
        sender.send(PEER, release(1), patient=True)
        sender.flush()
        sender.send(PEER, urgent(2))
        sender.flush()
        patience(MILLISECOND)
        sender.send(PEER, release(2), patient=True)
        sender.flush()
        await seen.until(lambda: len(seen.messages) == 4)
        before = sender.metrics.bytes_sent
        sender.send(PEER, release(3), patient=True)
        sender.flush()
        assert sender.metrics.bytes_sent > before
        await seen.until(lambda: len(seen.messages) == 5)


async def test_what_waits_patiently_is_sent_before_the_connection_closes(patience: Callable[[int], None]) -> None:
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


class OwnNode:
    """A driver whose machine sends to its own node."""

    def __init__(self) -> None:
        self.root = Root()
        self.crashed: list[BaseException] = []
        self._outbox = Outbox()
        self._driver = driver.Driver(
            self.root, self._outbox, TimerWheel(), effects={}, own_peer=PEER, on_crash=self.crashed.append
        )

    async def turn(self, message: Any) -> None:
        self._driver.event(lambda now: self._outbox.emit(Send(PEER, message, patient=type(message) is Release)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def stop(self) -> None:
        self._driver.stop()
        assert not self.crashed


async def test_a_patient_message_to_the_own_node_comes_with_the_next_one(patience: Callable[[int], None]) -> None:
    node = OwnNode()
    await node.turn(release(1))
    assert not node.root.got
    await node.turn(urgent(1))
    assert node.root.got == [release(1), urgent(1)]
    await node.turn(release(2))
    await node.turn(store(released=2))
    assert node.root.got[2:] == [store(released=2)]
    node.stop()


async def test_a_patient_message_to_the_own_node_comes_soon_when_nothing_follows() -> None:
    node = OwnNode()
    await node.turn(release(1))
    async with asyncio.timeout(5):
        await node.root.changed.wait()
    assert node.root.got == [release(1)]
    node.stop()
