"""Who declares which shard lost, and when."""

from __future__ import annotations

from dataclasses import replace

from logdevice_py.config.location import Location
from logdevice_py.core.ids import Generation, InstanceId, NodeId, ShardId, node_of, shard_id
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.event_log.events import (
    DonorFlags,
    Event,
    RebuildMode,
    ShardAbortRebuild,
    ShardIsRebuilt,
    ShardNeedsRebuild,
    ShardsNeverUsed,
    ShardTookRecords,
    ShardUnrecoverable,
)
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.event_log.settings import RebuildingSettings
from logdevice_py.placement.failure_domains import Authority
from server.event_log.event_writer import RebuildingSupervisor
from tests.unit.storage_node.fakes import SHARDS, EverybodyIsAlive, make_config

FIRST = Generation(1)
ALL = tuple((shard, FIRST) for shard in SHARDS)


class View(EverybodyIsAlive):
    """Some nodes are dead, and shards have generations."""

    def __init__(self) -> None:
        self.dead: set[int] = set()
        self.generations: dict[ShardId, int] = {}
        self.failed: set[ShardId] = set()
        """Shards of which the nodes say that their disks failed."""
        self.instances: dict[NodeId, int] = {}
        self.cut_off = False
        self.earlier: set[int] = set()
        """Nodes of an earlier version: they keep an event log only where the file says so."""

    def keeps_event_log(self, node: NodeId) -> bool:
        return node not in self.earlier

    def isolated(self) -> bool:
        return self.cut_off

    def is_alive(self, node: NodeId) -> bool:
        return node not in self.dead

    def may_sequence(self, node: NodeId) -> bool:
        return node not in self.dead

    def serves(self, shard: ShardId) -> bool:
        return self.is_alive(node_of(shard)) and shard not in self.failed

    def instance(self, node: NodeId) -> InstanceId:
        return InstanceId(self.instances.get(node, 1))

    def generation(self, shard: ShardId) -> Generation:
        return Generation(self.generations.get(shard, 1))


class Bench:
    """The supervisor of N0, which leads."""

    def __init__(self, node: int = 0, **settings: int) -> None:
        self.view = View()
        self.config = make_config()
        self.state = RebuildingSet()
        self.events: list[Event] = []
        self.looked_up: list[ShardId] = []
        self.registered = dict.fromkeys(SHARDS, FIRST)
        """What the epoch store answers."""
        self.now = Micros(0)
        self.own = {SHARDS[node]: FIRST}
        self.supervisor = RebuildingSupervisor(
            NodeId(node),
            replace(RebuildingSettings(self_initiated_grace_period_us=10 * SECOND), **settings),
            self.view,
            self.own,
            self._look_up,
            lambda event, now: self.events.append(event),
        )

    def _look_up(self, shard: ShardId, now: Micros) -> None:
        self.looked_up.append(shard)
        if shard in self.registered:
            self.supervisor.note_generation(shard, self.registered[shard])

    def tick(self, seconds: int = 0, *, failed: frozenset[ShardId] = frozenset(), **results: object) -> list[Event]:
        """What is written after so long."""
        self.now = Micros(self.now + seconds * SECOND)
        self.events.clear()
        self.supervisor.note_gone(self.config, self.now)
        marks = {shard: Lsn(0) if (each := self.state.shards.get(shard)) is None else each.since for shard in self.own}
        marks.update(results.get("marks", {}))  # type: ignore[call-overload]
        self.supervisor.tick(
            self.config,
            self.state,
            results.get("results", {}),
            failed,
            marks,
            results.get("needed", frozenset()),
            self.now,
        )  # type: ignore[arg-type]
        return list(self.events)

    def explain(self) -> list[str]:
        return self.supervisor.explain(self.config, self.state, self.now)

    def start_new_generation(self, shard: ShardId, generation: int) -> None:
        """On another disk."""
        self.view.generations[shard] = generation
        self.registered[shard] = Generation(generation)
        if shard in self.own:
            self.own[shard] = Generation(generation)

    def apply(self, *events: Event) -> None:
        for event in events:
            self.state.apply(event, Lsn(self.state.version + 1))

    def finish(self, flags: DonorFlags = DonorFlags.NONE) -> None:
        for donor in [donor for donor in self.state.donors if self.state.awaits(donor)]:
            self.apply(ShardIsRebuilt(donor, FIRST, self.state.round, flags))


def test_a_node_that_was_dead_for_the_grace_period_is_lost() -> None:
    bench = Bench()
    bench.view.dead = {4}
    assert not bench.tick()
    assert not bench.tick(9)
    (event,) = bench.tick(1)
    assert isinstance(event, ShardNeedsRebuild)
    assert (event.shard, event.mode, event.recoverable) == (SHARDS[4], RebuildMode.RESTORE, True)
    bench.apply(event)
    assert tuple(bench.state.donors) == SHARDS[:4]
    assert not bench.tick(100)


def test_one_that_was_heard_of_meanwhile_is_not() -> None:
    bench = Bench()
    bench.view.dead = {4}
    bench.tick()
    bench.view.dead = set()
    bench.tick(9)
    bench.view.dead = {4}
    assert not bench.tick(9)


def test_only_the_leader_declares_it() -> None:
    bench = Bench(node=1)
    bench.view.dead = {4}
    bench.tick()
    assert not bench.tick(10)
    bench.view.dead = {0, 4}
    assert bench.tick(1)


def test_without_a_grace_period_nobody_declares_anything() -> None:
    bench = Bench(self_initiated_grace_period_us=0)
    bench.view.dead = {4}
    bench.tick()
    assert not bench.tick(100_000)
    assert not bench.supervisor.presumed_lost(bench.now)


def test_when_too_many_seem_to_be_lost_something_else_is_wrong() -> None:
    bench = Bench()
    bench.view.dead = {2, 3, 4}
    bench.tick()
    assert not bench.tick(100)


def test_those_that_are_rebuilt_do_not_count_any_more() -> None:
    bench = Bench()
    for node in (4, 3):
        bench.view.dead.add(node)
        bench.tick()
        bench.apply(*bench.tick(10))
        bench.finish()
    assert {node_of(shard) for shard in bench.state.shards} == {3, 4}


def test_those_of_which_an_earlier_generation_was_rebuilt_do() -> None:
    bench = Bench()
    for node in (2, 3, 4):
        bench.apply(ShardNeedsRebuild(SHARDS[node], FIRST, RebuildMode.RESTORE, ALL, False))
        bench.finish()
        bench.start_new_generation(SHARDS[node], 2)
    bench.view.dead = {2, 3, 4}
    bench.tick()
    assert not bench.tick(100)


def test_of_a_node_that_nobody_ever_heard_of_the_generation_is_looked_up() -> None:
    bench = Bench()
    bench.view.dead = {4}
    bench.registered = {}
    bench.tick()
    assert not bench.tick(10)
    assert bench.looked_up == [SHARDS[4]]
    bench.supervisor.note_generation(SHARDS[4], Generation(3))
    (event,) = bench.tick(1)
    assert isinstance(event, ShardNeedsRebuild)
    assert event.generation == 3


def test_also_of_one_that_lost_an_earlier_generation() -> None:
    bench = Bench()
    bench.registered = {}
    bench.view.dead = {3}
    bench.apply(ShardNeedsRebuild(SHARDS[3], FIRST, RebuildMode.RESTORE, ALL, False, ""))
    bench.tick()
    assert bench.tick(10) == []
    assert bench.looked_up == [SHARDS[3]]
    bench.supervisor.note_generation(SHARDS[3], Generation(2))
    (event,) = bench.tick(1)
    assert isinstance(event, ShardNeedsRebuild)
    assert event.generation == 2


def test_what_others_tell_of_the_shards_of_a_dead_node_may_be_of_an_earlier_generation() -> None:
    bench = Bench()
    bench.registered[SHARDS[3]] = Generation(4)
    bench.view.dead = {3}
    bench.apply(ShardNeedsRebuild(SHARDS[3], FIRST, RebuildMode.RESTORE, ALL))
    bench.tick()
    (event,) = bench.tick(10)
    assert isinstance(event, ShardNeedsRebuild)
    assert event.generation == 4


def test_what_was_looked_up_does_not_hold_any_more_when_the_node_was_back() -> None:
    bench = Bench()
    bench.registered = {}
    bench.view.dead = {3}
    bench.tick()
    bench.tick(10)
    bench.supervisor.note_generation(SHARDS[3], FIRST)
    bench.view.dead = set()
    bench.tick(1)
    bench.view.dead = {3}
    bench.tick()
    bench.tick(10)
    assert bench.looked_up == [SHARDS[3]] * 2


def test_a_shard_with_a_later_generation_lost_the_earlier_ones_and_helps_to_rebuild() -> None:
    bench = Bench()
    bench.view.generations[SHARDS[4]] = 3
    (event,) = bench.tick()
    assert isinstance(event, ShardNeedsRebuild)
    assert (event.generation, event.recoverable) == (2, False)
    bench.apply(event)
    assert tuple(bench.state.donors) == SHARDS
    assert not bench.tick()


def test_when_the_lost_shard_comes_back_empty_nobody_hopes_for_its_data() -> None:
    bench = Bench()
    bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RESTORE, ALL))
    bench.view.generations[SHARDS[4]] = 2
    assert bench.tick() == [ShardUnrecoverable(SHARDS[4], FIRST)]


def test_after_the_time_for_that_nobody_hopes_for_a_dead_node_either() -> None:
    bench = Bench(unrecoverable_after_us=100 * SECOND)
    bench.view.dead = {4}
    bench.tick()
    bench.apply(*bench.tick(10))
    assert not bench.tick(80)
    assert bench.tick(10) == [ShardUnrecoverable(SHARDS[4], FIRST)]


def test_a_shard_that_is_back_with_its_data_says_so_unless_its_disk_failed() -> None:
    bench = Bench(node=4)
    bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RESTORE, ALL))
    assert not bench.tick(failed=frozenset({SHARDS[4]}))
    assert bench.tick() == [ShardAbortRebuild(SHARDS[4], FIRST, RebuildMode.RESTORE)]


class TestFailedDisks:
    """Of nodes that live."""

    def test_a_shard_whose_disk_failed_the_grace_period_ago_is_lost(self) -> None:
        bench = Bench()
        bench.view.failed = {SHARDS[4]}
        assert not bench.tick()
        assert not bench.tick(9)
        assert bench.supervisor.presumed_lost(bench.now) == frozenset()
        (event,) = bench.tick(1)
        assert isinstance(event, ShardNeedsRebuild)
        assert (event.shard, event.generation, event.mode) == (SHARDS[4], FIRST, RebuildMode.RESTORE)
        assert (event.recoverable, event.source) == (True, "the disk of N4:S0 failed 10 s ago")
        assert bench.supervisor.presumed_lost(bench.now) == {SHARDS[4]}
        bench.apply(event)
        assert tuple(bench.state.donors) == SHARDS[:4]
        assert not bench.tick(100)

    def test_only_the_leader_declares_it(self) -> None:
        bench = Bench(node=4)
        bench.view.failed = {SHARDS[4]}
        bench.tick(failed=frozenset(SHARDS[4:]))
        assert not bench.tick(100, failed=frozenset(SHARDS[4:]))

    def test_one_that_serves_again_before_that_is_not(self) -> None:
        bench = Bench()
        for _ in range(3):
            bench.view.failed = {SHARDS[4]}
            assert not bench.tick()
            assert not bench.tick(9)
            bench.view.failed = set()
            assert not bench.tick(9)

    def test_a_node_that_was_started_meanwhile_begins_anew_whether_or_not_that_was_seen(self) -> None:
        bench = Bench()
        bench.view.failed = {SHARDS[4]}
        bench.tick()
        bench.tick(9)
        bench.view.instances[NodeId(4)] = 2
        assert not bench.tick(9)
        assert bench.tick(10)

    def test_what_was_looked_up_of_it_holds_for_that_run_of_its_node(self) -> None:
        bench = Bench()
        bench.view.failed = {SHARDS[4]}
        bench.tick()
        bench.apply(*bench.tick(10))
        bench.view.instances[NodeId(4)] = 2
        bench.start_new_generation(SHARDS[4], 2)
        bench.tick()
        (event,) = [each for each in bench.tick(10) if isinstance(each, ShardNeedsRebuild)]
        assert event.generation == 2

    def test_the_time_goes_on_when_its_node_dies_too(self) -> None:
        bench = Bench()
        bench.view.failed = {SHARDS[4]}
        bench.tick()
        bench.view.dead = {4}
        bench.tick(9)
        (event,) = bench.tick(1)
        assert isinstance(event, ShardNeedsRebuild)

    def test_dead_nodes_and_failed_disks_together_may_be_too_many(self) -> None:
        bench = Bench()
        bench.view.failed, bench.view.dead = {SHARDS[2], SHARDS[3]}, {4}
        bench.tick()
        assert not bench.tick(100)
        bench.view.failed = {SHARDS[3]}
        assert {event.shard for event in bench.tick(1) if isinstance(event, ShardNeedsRebuild)} == set(SHARDS[3:])

    def test_also_those_that_went_later(self) -> None:
        bench = Bench()
        for shard in SHARDS[2:]:
            bench.view.failed.add(shard)
            assert not bench.tick(4)
        assert not bench.tick(100)
        bench.view.failed.remove(SHARDS[2])
        assert len(bench.tick(1)) == 2

    def test_when_all_disks_fail_at_once_nobody_declares_anything(self) -> None:
        bench = Bench()
        bench.view.failed = set(SHARDS)
        bench.tick()
        assert not bench.tick(100)

    def test_one_that_fails_while_it_is_drained_is_lost_and_is_drained_further_when_it_is_back(self) -> None:
        bench = Bench()
        bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RELOCATE, ALL))
        bench.view.failed = {SHARDS[4]}
        bench.tick()
        bench.apply(*bench.tick(10))
        entry = bench.state.shards[SHARDS[4]]
        assert (entry.mode, entry.drained) == (RebuildMode.RESTORE, True)

    def test_nobody_waits_for_an_emptied_one(self) -> None:
        bench = Bench()
        bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RELOCATE, ALL))
        bench.finish()
        bench.view.failed = {SHARDS[4]}
        bench.tick()
        assert not bench.tick(100)
        bench.apply(ShardNeedsRebuild(SHARDS[3], FIRST, RebuildMode.RESTORE, ALL))
        assert bench.tick() == [ShardIsRebuilt(SHARDS[4], Generation(0), bench.state.round, DonorFlags.NONE)]

    def test_nor_for_one_that_could_not_be_opened_and_was_never_used(self) -> None:
        bench = Bench()
        bench.registered[SHARDS[4]] = Generation(0)
        bench.view.failed = {SHARDS[4]}
        bench.tick()
        assert not bench.tick(100)

    def test_after_the_time_for_that_nobody_hopes_for_its_data(self) -> None:
        bench = Bench(unrecoverable_after_us=100 * SECOND)
        bench.view.failed = {SHARDS[4]}
        bench.tick()
        bench.apply(*bench.tick(10))
        assert not bench.tick(80)
        assert bench.tick(10) == [ShardUnrecoverable(SHARDS[4], FIRST)]


def test_a_drained_shard_does_not_call_it_off() -> None:
    bench = Bench(node=4)
    bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RELOCATE, ALL))
    assert not bench.tick()


def test_a_donor_says_that_it_has_finished_until_the_event_log_shows_it() -> None:
    bench = Bench()
    bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RESTORE, ALL))
    results = {SHARDS[0]: (int(bench.state.round), DonorFlags.UNPLACED)}
    said = bench.tick(results=results)
    assert said == [ShardIsRebuilt(SHARDS[0], FIRST, bench.state.round, DonorFlags.UNPLACED)]
    assert bench.tick(results=results) == said
    bench.apply(*said)
    assert not bench.tick(results=results)


def test_nobody_waits_for_donors_that_left_the_cluster_file() -> None:
    bench = Bench()
    bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RESTORE, ALL))
    bench.config = replace(bench.config, nodes={node: each for node, each in bench.config.nodes.items() if node != 3})
    assert bench.tick() == [ShardIsRebuilt(SHARDS[3], Generation(0), bench.state.round, DonorFlags.UNPLACED)]


def test_one_that_left_before_it_was_emptied_did_not_give_what_it_held() -> None:
    bench = Bench()
    # ldctl names no generations
    bench.apply(
        ShardNeedsRebuild(SHARDS[3], FIRST, RebuildMode.RELOCATE, tuple((shard, Generation(0)) for shard in SHARDS))
    )
    bench.config = replace(bench.config, nodes={node: each for node, each in bench.config.nodes.items() if node != 3})
    bench.view.generations[SHARDS[3]] = 0  # those of nodes that left are forgotten
    assert bench.tick() == [ShardIsRebuilt(SHARDS[3], Generation(0), bench.state.round, DonorFlags.UNPLACED)]


def test_a_drained_shard_that_lost_its_disk_has_lost_what_it_held_and_is_drained_further() -> None:
    bench = Bench()
    for shard in SHARDS[:2]:
        bench.apply(ShardNeedsRebuild(shard, FIRST, RebuildMode.RELOCATE, ALL))
    for donor in SHARDS[1:]:
        bench.apply(ShardIsRebuilt(donor, FIRST, bench.state.round))
    bench.start_new_generation(SHARDS[0], 2)
    (event,) = bench.tick(results={SHARDS[0]: (int(bench.state.round), DonorFlags.NONE)})
    assert isinstance(event, ShardNeedsRebuild)
    assert (event.shard, event.generation, event.mode) == (SHARDS[0], 2, RebuildMode.RELOCATE)
    bench.apply(event)
    assert bench.state.authority(SHARDS[0], FIRST) is Authority.UNDERREPLICATION
    assert bench.state.shards[SHARDS[1]].authority is Authority.FULLY_AUTHORITATIVE
    assert bench.tick(results={SHARDS[0]: (int(bench.state.round), DonorFlags.NONE)}) == [
        ShardIsRebuilt(SHARDS[0], Generation(2), bench.state.round, DonorFlags.NONE)
    ]


def test_so_is_one_that_was_lost_while_it_was_drained_and_starts_a_new_generation() -> None:
    bench = Bench()
    bench.apply(
        ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RELOCATE, ALL),
        ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RESTORE, ALL),
    )
    bench.finish()
    bench.start_new_generation(SHARDS[4], 2)
    bench.apply(*bench.tick())
    entry = bench.state.shards[SHARDS[4]]
    assert (entry.mode, entry.generation, entry.rebuilt) == (RebuildMode.RELOCATE, 2, False)
    assert not bench.tick()


def test_a_drained_shard_that_cannot_tell_that_it_took_no_records_says_so() -> None:
    bench = Bench(node=2)
    bench.apply(ShardNeedsRebuild(SHARDS[2], FIRST, RebuildMode.RELOCATE, ALL))
    unmarked = {SHARDS[2]: Lsn(0)}
    assert not bench.tick(marks=unmarked), "it is being emptied"
    bench.finish()
    assert not bench.tick()
    since = bench.state.shards[SHARDS[2]].since
    assert bench.tick(marks=unmarked) == [ShardTookRecords(SHARDS[2], FIRST, since)]
    assert not bench.tick(marks=unmarked, failed=frozenset({SHARDS[2]}))
    bench.apply(ShardTookRecords(SHARDS[2], FIRST, since))
    assert not bench.tick(marks=unmarked)


def test_a_drained_shard_without_which_too_few_live_is_drained_once_more() -> None:
    """Epochs list it again: without it nobody can tell that nothing was stored in them."""
    bench, needed = Bench(), frozenset({SHARDS[4]})
    bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RELOCATE, ALL))
    assert not bench.tick(needed=needed), "it is being emptied"
    bench.finish()
    assert not bench.tick()
    since = bench.state.shards[SHARDS[4]].since
    assert bench.tick(needed=needed) == [ShardTookRecords(SHARDS[4], FIRST, since)]
    bench.apply(ShardTookRecords(SHARDS[4], FIRST, since))
    assert not bench.tick(needed=needed)
    assert not bench.state.shards[SHARDS[4]].rebuilt


def test_one_that_was_emptied_before_and_starts_a_new_generation_is_used_again() -> None:
    bench = Bench()
    bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RELOCATE, ALL))
    bench.finish()
    bench.start_new_generation(SHARDS[4], 2)
    assert not bench.tick()


def test_nobody_waits_for_an_emptied_node_that_was_stopped() -> None:
    bench = Bench()
    bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RELOCATE, ALL))
    bench.finish()
    bench.view.dead = {4}
    bench.tick()
    assert not bench.tick(100)
    bench.apply(ShardNeedsRebuild(SHARDS[3], FIRST, RebuildMode.RELOCATE, ALL))
    said = bench.tick()
    assert said == [ShardIsRebuilt(SHARDS[4], Generation(0), bench.state.round, DonorFlags.NONE)]
    bench.apply(*said)
    assert not bench.tick()


def test_nor_for_one_that_never_stored_anything() -> None:
    bench = Bench()
    bench.registered[SHARDS[4]] = Generation(0)
    bench.view.dead = {4}
    bench.apply(ShardNeedsRebuild(SHARDS[3], FIRST, RebuildMode.RELOCATE, ALL))
    bench.tick()
    assert bench.tick(10) == [ShardIsRebuilt(SHARDS[4], Generation(0), bench.state.round, DonorFlags.NONE)]


def test_an_emptied_node_that_was_used_again_in_a_new_generation_is_lost_when_it_dies() -> None:
    bench = Bench()
    bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RELOCATE, ALL))
    bench.finish()
    bench.registered[SHARDS[4]] = Generation(2)
    bench.view.dead = {4}
    bench.tick()
    (event,) = bench.tick(10)
    assert isinstance(event, ShardNeedsRebuild)
    assert (event.generation, event.mode) == (2, RebuildMode.RESTORE)


def test_a_drained_node_with_records_that_have_no_other_place_is_lost_when_it_dies() -> None:
    bench = Bench()
    bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RELOCATE, ALL))
    bench.finish(DonorFlags.UNPLACED)
    bench.view.dead = {4}
    bench.tick()
    bench.apply(*bench.tick(100))
    assert bench.state.shards[SHARDS[4]].mode is RebuildMode.RESTORE


def test_with_an_older_cluster_file_than_others_have_nothing_is_declared_and_nobody_left() -> None:
    bench = Bench()
    newer = bench.config
    bench.config = replace(newer, nodes={node: each for node, each in newer.nodes.items() if node != 3})
    bench.view.config_version = newer.version + 1
    bench.view.dead = {4}
    bench.tick()
    assert not bench.tick(10)
    bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RESTORE, ALL))
    assert not bench.tick()
    bench.config = replace(newer, version=newer.version + 1)
    assert not bench.tick()
    assert bench.state.awaits(SHARDS[3])


def test_one_that_left_after_it_was_emptied_and_used_again_in_a_new_generation_did_not_give_what_it_held() -> None:
    bench = Bench()
    bench.apply(ShardNeedsRebuild(SHARDS[3], FIRST, RebuildMode.RELOCATE, ALL))
    bench.finish()
    bench.start_new_generation(SHARDS[3], 2)
    bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RESTORE, ALL))
    bench.config = replace(bench.config, nodes={node: each for node, each in bench.config.nodes.items() if node != 3})
    assert bench.tick() == [ShardIsRebuilt(SHARDS[3], Generation(0), bench.state.round, DonorFlags.UNPLACED)]


INVENTED = [shard_id(NodeId(1000 + number)) for number in range(1000)]


class TestInventedShards:
    def bench(self) -> Bench:
        """Somebody said that shards are lost which nobody ever had, with others of the kind as donors."""
        bench = Bench()
        bench.registered = {**bench.registered, **dict.fromkeys(INVENTED, Generation(0))}
        everybody = tuple((shard, FIRST) for shard in INVENTED)
        bench.apply(*(ShardNeedsRebuild(shard, FIRST, RebuildMode.RESTORE, everybody) for shard in INVENTED[:600]))
        return bench

    def test_they_are_forgotten_a_few_at_a_time_and_what_follows_ends_well(self) -> None:
        bench = self.bench()
        for _ in range(20):
            before = len(bench.looked_up)
            events = bench.tick()
            assert len(bench.looked_up) - before <= 256
            assert len(events) <= 65
            bench.apply(*events)
        assert not bench.state.shards
        assert not bench.state.candidates
        assert bench.tick() == []
        bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RELOCATE, ALL))
        assert sorted(bench.state.donors) == list(SHARDS)

    def test_one_that_left_the_cluster_file_and_was_registered_stays(self) -> None:
        bench = Bench()
        bench.apply(ShardNeedsRebuild(SHARDS[3], FIRST, RebuildMode.RESTORE, ALL))
        bench.config = replace(
            bench.config, nodes={node: each for node, each in bench.config.nodes.items() if node != 3}
        )
        bench.apply(*bench.tick())
        assert bench.tick() == []
        assert SHARDS[3] in bench.state.shards

    def test_nothing_is_said_of_what_the_epoch_store_does_not_answer(self) -> None:
        bench = self.bench()
        bench.registered = {}
        assert not [event for event in bench.tick() if isinstance(event, ShardsNeverUsed)]


class TestRegions:
    """N0 and N1 stand in one region, N2 and N3 in another one, N4 in a third one."""

    def bench(self, **settings: int) -> Bench:
        bench = Bench(**settings)
        places = {0: "eu", 1: "eu", 2: "us", 3: "us", 4: "ap"}
        nodes = {
            node: replace(member, location=Location.parse(f"{places[node]}....rack{node}"))
            for node, member in bench.config.nodes.items()
        }
        bench.config = replace(bench.config, nodes=nodes)
        return bench

    def test_one_that_is_gone_as_a_whole_is_left_to_a_person(self) -> None:
        bench = self.bench()
        bench.view.dead = {2, 3}
        bench.tick()
        assert not bench.tick(100_000)
        assert bench.explain() == [
            "N2:S0, N3:S0: the whole region us is gone, so a person decides: bring it back, or ldctl rebuild if it is lost for good"
        ]

    def test_failed_disks_of_living_nodes_count_too(self) -> None:
        bench = self.bench()
        bench.view.dead, bench.view.failed = {2}, {SHARDS[3]}
        bench.tick()
        assert not bench.tick(100_000)

    def test_a_part_of_one_is_rebuilt(self) -> None:
        bench = self.bench()
        bench.view.dead = {2}
        bench.tick()
        (event,) = bench.tick(10)
        assert isinstance(event, ShardNeedsRebuild)

    def test_so_is_a_loss_elsewhere_while_a_region_is_gone(self) -> None:
        bench = self.bench()
        bench.view.dead = {3, 4}
        bench.tick()
        (event,) = bench.tick(10)
        assert isinstance(event, ShardNeedsRebuild)
        assert event.shard == SHARDS[3]

    def test_one_that_comes_back_node_by_node_has_the_grace_period_again(self) -> None:
        bench = self.bench()
        bench.view.dead = {2, 3}
        bench.tick()
        bench.tick(100)
        bench.view.dead = {3}
        assert not bench.tick(1)
        assert not bench.tick(8)
        assert bench.tick(1)

    def test_the_last_node_of_one_is_left_to_a_person_when_the_others_were_rebuilt(self) -> None:
        bench = self.bench()
        bench.view.dead = {2}
        bench.tick()
        bench.apply(*bench.tick(10))
        bench.finish()
        bench.view.dead = {2, 3}
        bench.tick()
        assert not bench.tick(100)

    def test_a_cluster_in_one_region_rebuilds_as_if_there_were_none(self) -> None:
        bench = Bench(max_lost_percent=100)
        bench.view.dead = {1, 2, 3, 4}
        bench.tick()
        assert len(bench.tick(10)) == 4


class TestWhoTakesPart:
    """Nodes of an earlier version keep an event log only where the file asks for it."""

    def test_nobody_is_lost_as_long_as_a_living_node_takes_no_part(self) -> None:
        bench = Bench()
        bench.view.earlier = {1}
        bench.view.dead = {4}
        bench.view.generations[SHARDS[3]] = 2
        bench.tick()
        assert not bench.tick(100)
        (text,) = bench.explain()
        assert text.startswith("nothing is re-replicated by itself until all nodes take part in rebuilding")
        assert text.endswith("is N1")
        bench.view.earlier = set()
        assert len(bench.tick(1)) == 2

    def test_a_dead_node_takes_no_part_for_certain(self) -> None:
        bench = Bench()
        bench.view.earlier = bench.view.dead = {4}
        bench.tick()
        assert bench.tick(10)

    def test_where_the_file_asks_for_rebuilding_all_do(self) -> None:
        bench = Bench()
        bench.config = replace(bench.config, settings={"rebuilding": {"enabled": True}})
        bench.view.earlier = {1}
        bench.view.dead = {4}
        bench.tick()
        assert bench.tick(10)

    def test_one_that_takes_no_part_does_not_lead(self) -> None:
        bench = Bench(node=1)
        bench.view.earlier = {0}
        assert bench.supervisor.is_leader(bench.config)
        bench.view.earlier = set()
        assert not bench.supervisor.is_leader(bench.config)

    def test_the_leader_says_that_the_shard_of_one_is_back(self) -> None:
        bench = Bench()
        bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RESTORE, ALL))
        bench.view.earlier = {4}
        assert bench.tick() == [ShardAbortRebuild(SHARDS[4], FIRST, RebuildMode.RESTORE)]

    def test_not_where_its_disk_failed_nor_of_another_generation_nor_that_it_is_not_drained(self) -> None:
        bench = Bench()
        bench.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RESTORE, ALL))
        bench.apply(ShardNeedsRebuild(SHARDS[3], FIRST, RebuildMode.RELOCATE, ALL))
        bench.view.earlier = {3, 4}
        bench.view.failed = {SHARDS[4]}
        assert not bench.tick()
        bench.view.failed = set()
        bench.view.generations[SHARDS[4]] = 2
        assert not bench.tick()


class TestWhatLossesWaitFor:
    def test_nothing_is_gone(self) -> None:
        assert Bench().explain() == []

    def test_the_grace_period(self) -> None:
        bench = Bench()
        bench.view.dead = {4}
        bench.tick()
        assert bench.explain() == ["N4:S0: gone, and taken for lost when that has lasted for 10 s"]

    def test_the_event_log(self) -> None:
        bench = Bench()
        bench.view.dead = {4}
        bench.tick()
        (event,) = bench.tick(10)
        (text,) = bench.explain()
        assert text.startswith("N4:S0: to be taken for lost, which the event log does not take yet")
        bench.apply(event)
        assert bench.explain() == []

    def test_a_person(self) -> None:
        bench = Bench()
        bench.view.dead = {2, 3, 4}
        bench.tick()
        (text,) = bench.explain()
        assert text.startswith("N2:S0, N3:S0, N4:S0: too many shards are gone at once, so a person decides")
        bench = Bench(self_initiated_grace_period_us=0)
        bench.view.dead = {4}
        bench.tick()
        (text,) = bench.explain()
        assert text.startswith("N4:S0: gone, and rebuilt by command only")

    def test_nobody_misses_what_was_never_registered(self) -> None:
        bench = Bench()
        bench.registered[SHARDS[4]] = Generation(0)
        bench.view.dead = {4}
        bench.tick()
        bench.tick(10)
        assert bench.explain() == []

    def test_the_leader_alone_tells(self) -> None:
        bench = Bench(node=1)
        bench.view.dead = {4}
        bench.tick()
        assert bench.explain() == []
