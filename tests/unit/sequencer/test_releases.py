"""Releases reach the shards that stored the entry at once, all others soon, and nodes that come back."""

from __future__ import annotations

from logdevice_py.core.ids import Generation, LogId, NodeId, PeerId, ShardId, shard_id
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.protocol.messages import Release, Store
from sequencer.settings import SequencerSettings
from tests.unit.sequencer.fakes import LOG, World, active, make_config


def told(world: World) -> dict[ShardId, list[tuple[int, int]]]:
    """By shard, what was released since the last call."""
    found: dict[ShardId, list[tuple[int, int]]] = {}
    for message in world.messages(Release):
        found.setdefault(message.shard, []).extend(message.logs)
    world.sent.clear()
    return found


class TestWaitedFor:
    def releases(self, world: World) -> dict[ShardId, bool]:
        """By shard, whether its RELEASE may wait for company."""
        return {send.message.shard: send.deferrable for send in world.sent if type(send.message) is Release}

    def test_nobody_waits_for_a_release_unless_a_shard_says_so(self) -> None:
        world = active()
        request = world.append()
        world.run()
        assert self.releases(world) == dict.fromkeys(world.answer_to(request).copyset, True)

    def test_the_shard_whose_reader_waits_is_told_at_once_and_only_of_this_release(self) -> None:
        world = active()
        world.append()
        world.run()
        world.sent.clear()
        shard = shard_id(NodeId(1), 0)
        world.awaited = {shard}
        request = world.append()
        world.run()
        copyset = world.answer_to(request).copyset
        assert shard in copyset
        assert self.releases(world) == {each: each != shard for each in copyset}
        world.sent.clear()
        world.awaited = set()
        world.append()
        world.run()
        assert set(self.releases(world).values()) == {True}


class TestAtOnce:
    def test_the_copyset_is_told_in_the_same_turn(self) -> None:
        world = active()
        request = world.append()
        world.run()
        assert sorted(told(world)) == sorted(world.answer_to(request).copyset)

    def test_so_are_all_shards_of_what_was_acknowledged_before_it_could_be_released(self) -> None:
        world = World()
        request = world.append()
        world.run()
        lsn = world.answer_to(request).lsn
        assert told(world) == {shard: [(LOG, lsn)] for shard in world.sequencer.release_shards}

    def test_a_store_says_what_is_released_when_it_leaves(self) -> None:
        world = active()
        world.append()
        world.run()
        released = world.sequencer.last_released
        world.sent.clear()
        world.append()
        world.run()
        assert released < world.sequencer.last_released
        assert {message.released for message in world.messages(Store)} == {released}

    def test_many_logs_share_a_message(self) -> None:
        world = World(make_config(3))
        for log in range(1, 51):
            world.append(log=LogId(log))
        world.run(10_000_000)
        world.sent.clear()
        for log in range(1, 51):
            world.append(log=LogId(log))
        world.run()
        releases = world.messages(Release)
        assert len(releases) <= 6
        assert sum(len(message.logs) for message in releases) == 150

    def test_only_the_latest_lsn_of_a_turn_is_told(self) -> None:
        world = active()
        world.append(b"x" * 5000)
        world.append(b"x" * 5000)
        world.run()
        assert told(world)
        for pairs in told(world).values():
            assert len(pairs) <= 2


class TestLater:
    def test_the_other_shards_are_told_within_the_retry_interval(self) -> None:
        world = active()
        request = world.append()
        world.run()
        told(world)
        world.run(250_000)
        others = set(range(0, 1024, 256)) - set(world.answer_to(request).copyset)
        assert set(told(world)) == others

    def test_shards_of_earlier_nodesets_are_told_too(self) -> None:
        world = active(config=make_config(4))
        world.node.on_config(make_config(4, version=2, read_only=[3], nodeset_size=3), world.now)
        world.run(2_000_000)
        world.sent.clear()
        world.append()
        world.run(300_000)
        assert set(told(world)) == {shard_id(NodeId(node)) for node in range(4)}

    def test_nothing_is_told_of_a_log_that_left_and_came_back_before_it_is_released(self) -> None:
        world = active()
        world.append()
        world.run(1)
        world.node.on_config(make_config(logs=(50, 60), version=2), world.now)
        world.node.on_config(make_config(version=3), world.now)
        world.recoveries.held = True
        world.append()
        world.run(10_000)
        assert (world.sequencer.epoch, world.sequencer.last_released) == (2, 0)
        told(world)
        world.run(1_000_000)
        assert told(world) == {}

    def test_everybody_is_told_once_more_by_the_broadcast(self) -> None:
        world = active()
        world.append()
        world.run(300_000)
        told(world)
        world.run(5_000_000)
        assert len(told(world)) == 4

    def test_idle_logs_are_swept_a_part_at_a_time(self) -> None:
        world = World(settings=SequencerSettings(release_idle_logs=10))
        for log in range(1, 31):
            world.append(log=LogId(log))
        world.run(6_000_000)
        told(world)
        world.run(5_000_000)
        swept = told(world)
        assert swept
        assert all(len(pairs) == 10 for pairs in swept.values())

    def test_many_logs_at_once_are_told_in_several_turns(self) -> None:
        world = World(settings=SequencerSettings(release_sweep_logs=10))
        for log in range(1, 31):
            world.append(log=LogId(log))
        world.run(1_000_000)
        world.sent.clear()
        for log in range(1, 31):
            world.append(log=LogId(log))
        world.run(100_000)
        told(world)
        world.run(101_000)
        first = {log for pairs in told(world).values() for log, _ in pairs}
        world.run(50_000)
        rest = {log for pairs in told(world).values() for log, _ in pairs}
        assert len(first) == 10
        assert first | rest == set(range(1, 31))

    def test_nothing_is_armed_for_a_node_without_logs(self) -> None:
        world = World()
        world.run(1_000_000)
        assert world.timers.next_deadline() is None


class TestNodesThatComeBack:
    def test_they_are_told_about_all_logs(self) -> None:
        world = World(settings=SequencerSettings(release_sweep_logs=10))
        for log in range(1, 31):
            world.append(log=LogId(log))
        world.run(1_000_000)
        told(world)
        world.node.on_peer_down(PeerId(1), world.now)
        world.run(100_000)
        world.node.on_peer_up(PeerId(1), world.now)
        world.run(100_000)
        messages = told(world)
        assert sorted(log for log, _ in messages[shard_id(NodeId(1))]) == list(range(1, 31))
        assert set(messages) == {shard_id(NodeId(1))}


class TestReleasePointer:
    def test_it_waits_for_the_recovery_of_earlier_epochs(self) -> None:
        world = active()
        world.recoveries.held = True
        world.sequencer.activate(world.now)
        world.append(b"new")
        world.run()
        assert world.sequencer.last_released >> 32 == 1
        world.append(b"newer")
        world.run()
        released = world.sequencer.last_released
        assert released >> 32 == 1
        world.recoveries.finish(world.sequencer.log, world.now)
        world.run()
        assert world.sequencer.last_released == compose_lsn(2, 1)

    def test_entries_of_the_draining_epoch_are_still_released(self) -> None:
        world = active()
        world.answer = lambda store: None
        world.append()
        world.run()
        world.sequencer.activate(world.now)
        world.run()
        world.recoveries.held = True
        world.reply_to_held()
        assert world.sequencer.last_released == compose_lsn(1, 2)

    def test_an_empty_epoch_is_released_at_esn_0(self) -> None:
        world = active()
        world.cluster.generations[shard_id(NodeId(1))] = Generation(2)
        world.sequencer.activate(world.now)
        world.run(1_000_000)
        assert world.sequencer.last_released == compose_lsn(2, 0)
