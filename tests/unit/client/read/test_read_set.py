"""The shards that a stream reads from, as the cluster file and its interval change."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from client.read.metrics import ReadMetrics
from client.read.read_set import ReadPosition, ReadRequest, ReadSet
from client.read.ready_queue import ReadyQueue
from client.read.sender_state import SenderStatus
from client.read.settings import ReadSettings
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import Outbox, Send, TimerQueue
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import Start, Stop
from tests.unit.client.read.fakes import LOG, make_config, make_interval, shard

NOW = Micros(1)
STARTING, ABSENT, IDLE = SenderStatus.STARTING, SenderStatus.ABSENT, SenderStatus.IDLE


class Reading:
    """A set of three shards that were asked to send."""

    def __init__(self, nodes: int = 3) -> None:
        self.outbox, self.timers = Outbox(), TimerQueue()
        position = ReadPosition(Lsn(1), Lsn(1000))
        position.limit = Lsn(1000)
        request = ReadRequest(log=LOG, stream=1, first=Lsn(1), until=Lsn(1000))
        self.set = ReadSet(
            request,
            position,
            ReadyQueue(LOG, Lsn(1), ReadMetrics()),
            settings=ReadSettings(),
            outbox=self.outbox,
            timers=self.timers,
            rng=random.Random(1),
            metrics=ReadMetrics(),
        )
        self.set.enter(make_interval(1, [0, 1, 2], 2), make_config(nodes))
        self.set.start_all(NOW, single_copy=False)

    def sent(self, kind: type[object]) -> list[int]:
        """The nodes that were sent a message of a kind, and no other."""
        messages = [effect.message for effect in self.outbox.take() if isinstance(effect, Send)]
        assert all(isinstance(message, kind) for message in messages)
        return [message.shard >> 8 for message in messages]

    @property
    def statuses(self) -> list[SenderStatus]:
        return [sender.status for sender in self.set.senders.values()]


@pytest.fixture
def reading() -> Reading:
    return Reading()


def test_every_shard_of_the_interval_in_the_cluster_file_is_asked() -> None:
    reading = Reading(2)
    assert reading.sent(Start) == [0, 1]
    assert reading.statuses == [STARTING, STARTING, ABSENT]
    assert [sender.lost for sender in reading.set.senders.values()] == [False, False, True]


def test_a_cluster_file_that_says_the_same_of_the_shards_changes_nothing(reading: Reading) -> None:
    reading.sent(Start)
    assert not reading.set.set_config(make_config(4, 2))
    assert (reading.statuses, reading.sent(Stop)) == ([STARTING] * 3, [])


def test_a_shard_that_left_it_is_told_to_stop_and_may_come_back(reading: Reading) -> None:
    reading.sent(Start)
    assert reading.set.set_config(make_config(2, 2))
    assert (reading.statuses, reading.sent(Stop)) == ([STARTING, STARTING, ABSENT], [2])
    assert reading.set.unable_to_tell(Lsn(1)) == (shard(2),)
    assert not reading.set.set_config(make_config(2, 3))
    assert reading.set.set_config(make_config(3, 4))
    assert reading.statuses == [STARTING, STARTING, IDLE]
    assert reading.set.unable_to_tell(Lsn(1)) == ()


def test_another_interval_stops_those_that_are_not_in_it(reading: Reading) -> None:
    reading.sent(Start)
    before = reading.set.senders[shard(0)]
    before.timer = reading.timers.at(Micros(10), lambda now: pytest.fail("what was due of the old interval"))
    reading.set.enter(make_interval(5, [2, 3], 2), make_config(4))
    assert reading.sent(Stop) == [0, 1]
    assert list(reading.set.senders) == [shard(2), shard(3)]
    assert reading.statuses == [IDLE, IDLE]
    reading.timers.advance(Micros(20))


def test_shards_are_told_how_many_copies_there_are_with_extra_copies(reading: Reading) -> None:
    reading.outbox.take()
    reading.set.enter(replace(make_interval(1, [0, 1, 2], 2), extra_copies=1), make_config(3))
    reading.set.start_all(NOW, single_copy=True)
    starts = [effect.message for effect in reading.outbox.take() if isinstance(effect, Send)]
    assert [start.replication for start in starts if isinstance(start, Start)] == [3, 3, 3]
