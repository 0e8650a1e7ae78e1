"""Deferrable messages of a driver: to its own node, and to others before it stops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from logdevice_py.core.ids import PeerId
from logdevice_py.core.machine import Outbox, Send, TimerQueue
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.protocol.messages import Release
from logdevice_py.runtime.clock import monotonic_us
from logdevice_py.runtime.driver import Driver
from logdevice_py.shell import outgoing
from tests.integration.test_transport import process, release
from tests.unit.logdevice_py.shell.test_turn import store, urgent

PEER = PeerId(1)
OWN = PeerId(0)


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


class TransportProcess:
    """A driver whose machine sends what it is told to."""

    def __init__(self) -> None:
        self.root = Root()
        self.timers = TimerQueue()
        self.crashed: list[BaseException] = []
        self.driver = Driver(
            self.root, outbox := Outbox(), self.timers, effects={}, own_peer=OWN, on_crash=self.crashed.append
        )
        self._outbox = outbox

    async def turn(self, to: PeerId, message: Any) -> None:
        self.driver.event(lambda now: self._outbox.emit(Send(to, message, deferrable=type(message) is Release)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def stop(self) -> None:
        self.driver.stop()
        assert not self.crashed


@pytest.fixture
def long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deferrable messages wait for an hour: a machine that stalls for some milliseconds must not look like nothing having followed."""
    monkeypatch.setattr(outgoing, "WAIT_US", 3_600 * SECOND)


@pytest.mark.usefixtures("long_wait")
async def test_a_deferrable_message_to_the_own_node_comes_with_the_next_one() -> None:
    node = TransportProcess()
    await node.turn(OWN, release(1))
    assert not node.root.got
    await node.turn(OWN, urgent(1))
    assert node.root.got == [release(1), urgent(1)]
    await node.turn(OWN, release(2))
    await node.turn(OWN, store(released=2))
    assert node.root.got[2:] == [store(released=2)]
    node.stop()


async def test_a_deferrable_message_to_the_own_node_comes_soon_when_nothing_follows() -> None:
    node = TransportProcess()
    await node.turn(OWN, release(1))
    async with asyncio.timeout(5):
        await node.root.changed.wait()
    assert node.root.got == [release(1)]
    node.stop()


@pytest.mark.usefixtures("long_wait")
async def test_what_waits_is_sent_before_the_driver_stops() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(1, addresses) as (_, seen):
        async with process(0, addresses) as (sender, _):
            node = TransportProcess()
            node.driver.attach(sender)
            await node.turn(PEER, urgent(1))
            await seen.until(lambda: len(seen.messages) == 1)
            await node.turn(PEER, release(1))  # leaves alone
            await node.turn(PEER, urgent(2))
            await node.turn(PEER, release(2))
            await seen.until(lambda: len(seen.messages) == 3)
            node.stop()
        await seen.until(lambda: len(seen.messages) == 4)
        assert [message for _, message in seen.messages] == [urgent(1), release(1), urgent(2), release(2)]


async def test_a_timer_that_was_cancelled_causes_no_turn() -> None:
    node = TransportProcess()
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    cancelled = node.timers.at(monotonic_us(), lambda now: None)
    node.driver.event(lambda now: None)
    loop.call_soon(cancelled.cancel)  # in the step of the loop in which the turn is run and the timer armed
    loop.call_later(0.01, done.set)
    await done.wait()
    assert node.root.turns == 1
    node.stop()
