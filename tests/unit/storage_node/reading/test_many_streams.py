"""Very many read streams of a shard: what each costs in memory and time, and who is refused when there are too many."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from logdevice_py.core.ids import LogId, PeerId, ShardId
from logdevice_py.core.lsn import LSN_MAX
from logdevice_py.core.status import Status
from logdevice_py.protocol.framing import decode_frame, encode_frame
from logdevice_py.protocol.messages import Records, ShardGap, Started, Stop
from storage_node.log_store.wanted import pack_shards, single_copy, unpack_shards
from storage_node.reading.catchup import CatchupQueue
from storage_node.reading.read_stream import ServerReadStream
from storage_node.settings import StorageSettings
from tests.unit.storage_node.fakes import (
    ME,
    PLENTY,
    READER,
    SYNC_LOG,
    ShardDriver,
    lsn,
    release,
    start,
    stores,
    told,
    window,
)

GREEDY = PeerId(-2)
STREAMS = 2000


def open_stream(driver: ShardDriver, stream: int, *, peer: PeerId = READER, **fields: Any) -> Status:
    driver.turn(start(stream=stream, peer=peer, **fields))
    return driver.take_one(Started).status


def bytes_of_a_stream(
    known_down: Callable[[int], Sequence[ShardId]], credit: int, order: Sequence[tuple[int, int]] = ()
) -> float:
    """What an idle stream takes, with all that came with its START."""
    driver = ShardDriver()
    driver.turn(*stores([lsn(1, 1)]))
    ids = range(1 << 40, (1 << 40) + STREAMS)
    frames = []
    for each in ids:
        fields: dict[str, Any] = {
            "until": LSN_MAX,
            "single_copy": True,
            "credit": credit,
            "known_down": known_down(each),
            "order": order,
        }
        frames.append(b"".join(encode_frame(start(stream=each, **fields)[1])))
    gc.collect()
    tracemalloc.start()
    try:
        for frame in frames:
            driver.node.on_message(READER, decode_frame(frame), driver.now)
            driver.node.on_turn_end(driver.now)
            driver.outbox.take()
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert driver.machines.catchup.stream_count() == STREAMS
    return taken / STREAMS


class TestMemory:
    def test_an_idle_stream_takes_little(self) -> None:
        assert bytes_of_a_stream(lambda _: (), PLENTY) < 600

    def test_also_when_its_reader_says_that_very_many_shards_are_down(self) -> None:
        rng = random.Random(1)
        everybody = range(1 << 22)
        assert bytes_of_a_stream(lambda _: [ShardId(shard) for shard in rng.sample(everybody, 127)], PLENTY) < 1500

    def test_readers_that_stand_together_share_their_order(self) -> None:
        order = [(shard << 8, shard % 7) for shard in range(127)]
        assert bytes_of_a_stream(lambda _: (), PLENTY, order) < 600

    def test_streams_have_no_dictionaries(self) -> None:
        driver = ShardDriver()
        driver.turn(start())
        (stream,) = driver.machines.catchup.streams()
        assert not hasattr(stream, "__dict__")

    def test_a_packed_set_of_shards_is_the_set(self) -> None:
        shards = [ShardId(7), ShardId(3), ShardId(7), ShardId(2**23 - 1)]
        assert unpack_shards(pack_shards(shards)) == frozenset(shards)
        assert pack_shards(shards) == pack_shards(shards[::-1])
        assert single_copy(ME, pack_shards(shards), 3).known_down == frozenset(shards)


class _Counted(list[Any]):
    """A list that counts how many items were looked at or moved."""

    steps = 0

    def remove(self, item: Any) -> None:
        self.steps += len(self)
        super().remove(item)

    def __delitem__(self, key: Any) -> None:
        self.steps += len(self)
        super().__delitem__(key)

    def __getitem__(self, key: Any) -> Any:
        self.steps += 1
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.steps += 1
        super().__setitem__(key, value)

    def pop(self, *where: Any) -> Any:
        self.steps += len(self) if where else 1
        return super().pop(*where)

    def __iter__(self) -> Any:
        for item in super().__iter__():
            self.steps += 1
            yield item


class TestTime:
    def test_a_stream_among_very_many_is_removed_as_quickly_as_one_among_few(self) -> None:
        driver = ShardDriver()
        for each in range(STREAMS):
            driver.node.on_message(READER, start(stream=each)[1], driver.now)
        driver.turn()
        counted = driver.log().streams = _Counted(driver.log().streams)
        closed = [0, STREAMS - 1, *range(500, 600)]
        for each in closed:
            driver.node.on_message(READER, Stop(log=SYNC_LOG, stream=each, shard=ME), driver.now)
        assert counted.steps <= 4 * len(closed)
        driver.sent.clear()
        driver.turn(*stores([lsn(1, 1)]))
        driver.turn(release(lsn(1, 1)))
        heard = sorted(message.stream for message in driver.take(Records))
        assert heard == sorted(set(range(STREAMS)) - set(closed))

    def test_streams_that_wait_for_their_readers_are_not_woken_by_releases(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver = ShardDriver()
        driver.turn(*[start(stream=each, credit=0) for each in range(50)])
        driver.turn(*[start(stream=each, window_high=lsn(0, 1), first=lsn(1, 1)) for each in range(50, 100)])
        driver.turn(start(stream=100))
        woken: list[int] = []
        original = ServerReadStream.wake

        def wake(stream: ServerReadStream) -> None:
            woken.append(stream.stream)
            original(stream)

        monkeypatch.setattr(ServerReadStream, "wake", wake)
        driver.turn(*stores([lsn(1, 1), lsn(1, 2)]))
        driver.turn(release(lsn(1, 1)))
        assert woken == [100]
        driver.turn(window(lsn(9, 1), PLENTY, stream=7), window(lsn(9, 1), PLENTY, stream=77))
        assert told(driver, stream=7) == [lsn(1, 1)]
        assert told(driver, stream=77) == [lsn(1, 1)]
        driver.turn(release(lsn(1, 2)))
        assert told(driver, stream=7) == told(driver, stream=77) == [lsn(1, 2)]

    def test_nor_are_those_whose_readers_do_not_read(self) -> None:
        driver = ShardDriver()
        driver.turn(start())
        driver.node.on_peer_congested(READER, driver.now)
        driver.turn(*stores([lsn(1, 1), lsn(1, 2)]))
        driver.turn(release(lsn(1, 1)))
        assert driver.log().streams is None
        driver.node.on_peer_drained(READER, driver.now)
        driver.turn()
        assert told(driver) == [lsn(1, 1)]
        driver.turn(release(lsn(1, 2)))
        assert told(driver) == [lsn(1, 2)]

    def test_a_turn_looks_at_some_of_very_many_and_the_next_one_at_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys.modules[CatchupQueue.__module__], "_LOOKS_MAX", 10)
        driver = ShardDriver()
        driver.turn(*[start(stream=each) for each in range(25)])
        driver.advance(0)
        driver.turn(*stores([lsn(1, 1)]))
        driver.turn(release(lsn(1, 1)))
        assert len(driver.take(Records)) == 10
        driver.advance(0)
        assert len(driver.take(Records)) == 15
        assert driver.take(ShardGap) == []


class TestLimits:
    def test_a_client_of_ten_thousand_logs_gets_all_its_streams_while_another_is_refused(self) -> None:
        settings = StorageSettings()
        driver = ShardDriver(settings)
        for each in range(settings.streams_per_peer_max):
            driver.node.on_message(GREEDY, start(stream=each, peer=GREEDY)[1], driver.now)
        driver.turn()
        driver.take(Started)
        assert open_stream(driver, settings.streams_per_peer_max, peer=GREEDY) is Status.AGAIN
        assert driver.node.metrics.read_streams_refused == 1
        for each in range(10_000):
            driver.node.on_message(READER, start(stream=each)[1], driver.now)
        driver.turn()
        assert {answer.status for answer in driver.take(Started)} == {Status.OK}

    def test_whoever_comes_when_others_took_what_they_could_finds_places(self) -> None:
        driver = ShardDriver(StorageSettings(streams_max=100))
        for peer in range(-11, -1):
            stream = 0
            while open_stream(driver, stream, peer=PeerId(peer)) is Status.OK:
                stream += 1
        assert open_stream(driver, 1) is Status.OK

    def test_streams_that_end_leave_their_places(self) -> None:
        driver = ShardDriver(StorageSettings(streams_max=2))
        assert [open_stream(driver, each) for each in range(2)] == [Status.OK, Status.AGAIN]
        assert open_stream(driver, 0, peer=PeerId(-3)) is Status.OK
        assert open_stream(driver, 0, peer=GREEDY) is Status.AGAIN
        driver.turn((READER, Stop(log=SYNC_LOG, stream=0, shard=ME)))
        assert open_stream(driver, 0, peer=GREEDY) is Status.OK
        driver.node.on_peer_down(GREEDY, driver.now)
        assert open_stream(driver, 5) is Status.OK

    def test_nodes_get_theirs_when_clients_have_all_places(self) -> None:
        driver = ShardDriver(StorageSettings(streams_max=1))
        assert open_stream(driver, 0) is Status.OK
        assert open_stream(driver, 1) is Status.AGAIN
        assert open_stream(driver, 0, peer=PeerId(3), log=LogId(8)) is Status.OK
        driver.node.on_peer_down(PeerId(3), driver.now)
        assert driver.node.metrics.read_streams == 1

    def test_very_many_that_end_with_their_connection_are_cleared_away_in_several_turns(self) -> None:
        driver = ShardDriver()
        for each in range(5_000):
            driver.node.on_message(GREEDY, start(stream=each, peer=GREEDY)[1], driver.now)
        driver.turn()
        driver.take(Started)
        counts = [driver.node.metrics.read_streams]
        driver.node.on_peer_down(GREEDY, driver.now)
        counts.append(driver.node.metrics.read_streams)
        assert open_stream(driver, 7) is Status.OK
        while driver.node.metrics.read_streams > 1:
            counts.append(driver.node.metrics.read_streams)
            driver.node.on_turn_end(driver.now)
        assert max(before - after for before, after in itertools.pairwise(counts)) <= 1_000
        assert driver.machines.catchup.stream_count() == 1
        assert driver.machines.shard.logs[SYNC_LOG].read_streams == 1

    def test_nothing_is_sent_to_a_connection_that_is_gone_while_its_streams_are_cleared_away(self) -> None:
        driver = ShardDriver()
        for each in range(3_000):
            driver.node.on_message(GREEDY, start(stream=each, peer=GREEDY)[1], driver.now)
        driver.turn()
        driver.take(Started)
        driver.node.on_peer_down(GREEDY, driver.now)
        driver.turn(*stores([lsn(1, 1)]), release(lsn(1, 1)))
        assert not driver.take(Records)
        assert not driver.take(ShardGap)
