"""What a node says to clients that ask what a log waits for."""

from __future__ import annotations

from typing import Any

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.machine import Send
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, Micros
from logdevice_py.protocol.messages import GetSeqState, SeqState, SeqStateFlags, Store
from tests.unit.sequencer.fakes import CLIENT, LOG, World, active


def silent(store: Store) -> None:
    """A shard that does not answer."""


def ask(world: World, log: LogId = LOG) -> SeqState:
    message = GetSeqState(request_id=77, log=log, flags=int(SeqStateFlags.EXPLAIN), min_epoch=Epoch(99))
    world.outbox.take()
    world.node.on_message(CLIENT, message, world.now)
    (answer,) = [each for each in world.outbox.take() if isinstance(each, Send) and each.to == CLIENT]
    found: Any = answer.message
    assert isinstance(found, SeqState)
    assert (found.request_id, found.log, found.status) == (77, log, Status.AGAIN)
    return found


def test_it_answers_at_once_and_activates_nothing() -> None:
    world = active()
    answer = ask(world)
    assert (answer.waits, answer.epoch) == ([], world.sequencer.epoch)
    assert ask(world, LogId(LOG + 1)).waits == []
    assert LogId(LOG + 1) not in world.node.sequencers


def test_an_entry_that_waits_names_the_shards() -> None:
    world = active()
    world.answer = silent
    world.append()
    world.run()
    ((kind, cause, shards, waiting, _, _),) = ask(world).waits
    assert (kind, waiting) == ("APPEND", 1)
    assert cause in ("STORES", "STORES_AGAIN")
    assert shards.startswith("N")


def test_many_askers_cost_one_look() -> None:
    world = active()
    first = ask(world).waits
    world.answer = silent
    world.append()
    world.run(0)
    assert ask(world).waits is first
    world.now = Micros(world.now + 200 * MILLISECOND)
    assert ask(world).waits is not first
