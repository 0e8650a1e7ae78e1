"""Quotas of appends: what is refused, what it is told, and what stays true of order, repetitions and guards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logdevice_py.config.quotas import PrincipalQuota
from logdevice_py.core.ids import LogId, PeerId
from logdevice_py.core.principal import Principal
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.protocol.messages import AppendedFlags, AppendFlags, GuardFlags
from logdevice_py.shell.principal_quotas import PrincipalQuotas
from logdevice_py.shell.proof import Principals
from tests.simulation import deliberate_sequencer  # noqa: F401 (plants)
from tests.simulation.deliberate_fault import FAULTS
from tests.unit.sequencer.fakes import LOG, World, active, make_config

KB = b"x" * 1000
OTHER_LOG = LogId(2)


def filled(**attributes: int) -> World:
    """A log that is active, with as much saved up as fits."""
    world = active(config=make_config(**attributes))
    append(world, b"")
    world.run(60 * SECOND)
    return world


def append(world: World, payload: bytes = KB, **options: int) -> Status:
    """One append in a turn of its own."""
    request = world.append(payload, **options)  # type: ignore[arg-type]
    world.run()
    return world.answer_to(request).status


def come_back(world: World) -> None:
    """Another node takes the log over, then it is sequenced here again."""
    world.store.take_over(LOG)
    world.sequencer.activate(world.now)
    world.run()
    append(world, b"", flags=int(AppendFlags.NO_REDIRECT | AppendFlags.REACTIVATE_IF_PREEMPTED))


class TestRefusals:
    def test_what_is_over_the_quota_is_refused_and_not_applied_and_told_when(self) -> None:
        world = filled(append_bytes_per_s=2000)
        assert [append(world), append(world)] == [Status.OK, Status.OK]
        stores, throttled = len(world.stores), world.node.metrics.appends_throttled
        request = world.append(KB)
        world.run()
        answer = world.answer_to(request)
        assert answer.status is Status.THROTTLED
        assert answer.flags & AppendedFlags.NOT_REPLICATED
        assert answer.lsn == 0
        assert answer.there == SECOND // 2
        assert len(world.stores) == stores
        assert world.node.metrics.appends_throttled == throttled + 1
        world.run(answer.there)
        assert append(world) is Status.OK

    def test_records_count_too(self) -> None:
        world = filled(append_records_per_s=3)
        assert [append(world, b"x") for _ in range(4)] == [Status.OK] * 3 + [Status.THROTTLED]

    def test_a_new_sequencer_has_saved_up_nothing(self) -> None:
        world = World(config=make_config(append_bytes_per_s=2000))
        assert append(world) is Status.THROTTLED
        world.run(SECOND // 2)
        assert append(world) is Status.OK

    def test_a_log_that_comes_back_has_saved_up_nothing(self) -> None:
        """Two nodes that have a log in turn must not give what each of them saved up."""
        world = filled(append_bytes_per_s=2000)
        come_back(world)
        assert world.sequencer.epoch > 2
        assert append(world) is Status.THROTTLED

    def test_an_epoch_that_follows_at_once_keeps_what_was_saved_up(self) -> None:
        world = filled(append_bytes_per_s=2000)
        world.sequencer.activate(world.now)
        world.run()
        assert append(world) is Status.OK

    def test_other_logs_are_not_asked_to_wait(self) -> None:
        world = filled(append_bytes_per_s=2000)
        append(world, b"", log=OTHER_LOG)
        world.run(60 * SECOND)
        outcomes = [(append(world), append(world, b"y" * 10, log=OTHER_LOG)) for _ in range(50)]
        assert sum(status is Status.THROTTLED for status, _ in outcomes) == 48
        assert {status for _, status in outcomes} == {Status.OK}

    def test_without_a_quota_nothing_is_counted(self) -> None:
        world = active()
        assert world.sequencer.meter is None
        assert {append(world) for _ in range(100)} == {Status.OK}

    def test_an_append_larger_than_a_full_bucket_passes_and_is_owed(self) -> None:
        world = filled(append_bytes_per_s=500)
        assert append(world) is Status.OK
        request = world.append(b"y")
        world.run()
        assert world.answer_to(request).there == SECOND + SECOND // 500

    def test_what_finds_no_room_behind_the_quota_is_not_charged(self) -> None:
        world = filled(append_bytes_per_s=2000, max_writes_in_flight=2)
        world.answer = lambda store: None
        requests = []
        for _ in range(6):
            requests.append(world.append(b"x"))
            world.run()
        refused = [each for each in requests if world.is_answered(each)]
        assert {world.answer_to(each).status for each in refused} == {Status.SEQNOBUFS}
        assert len(refused) == 4
        meter = world.sequencer.meter
        assert meter is not None
        assert meter.bytes_available(world.now) == 1998


class TestChanges:
    def use(self, world: World, **attributes: int) -> None:
        config = make_config(version=world.config.version + 1, **attributes)
        world.config = config
        world.node.on_config(config, world.now)
        world.run()

    def test_a_quota_that_is_set_raised_or_taken_away_holds_at_once(self) -> None:
        world = active()
        self.use(world, append_bytes_per_s=1000)
        assert append(world) is Status.THROTTLED
        world.run(SECOND)
        assert [append(world), append(world)] == [Status.OK, Status.THROTTLED]
        self.use(world, append_bytes_per_s=100_000)
        world.run(SECOND // 10)
        assert [append(world) for _ in range(10)] == [Status.OK] * 10
        assert append(world) is Status.THROTTLED
        self.use(world)
        assert world.sequencer.meter is None
        assert {append(world) for _ in range(100)} == {Status.OK}

    def test_what_was_saved_up_fits_the_new_quota(self) -> None:
        world = filled(append_bytes_per_s=100_000)
        self.use(world, append_bytes_per_s=1000)
        assert [append(world), append(world)] == [Status.OK, Status.THROTTLED]


class TestWriteStreams:
    def test_nothing_overtakes_a_frame_that_is_refused(self) -> None:
        world = filled(append_bytes_per_s=1000)
        requests = [world.stream_append(1, resume=True, payload=b"a" * 900)]
        requests += [world.stream_append(2, payload=b"b" * 900), world.stream_append(3, payload=b"c")]
        world.run()
        assert [world.answer_to(each).status for each in requests] == [
            Status.OK,
            Status.THROTTLED,
            Status.WRITE_STREAM_BROKEN,
        ]
        world.run(world.answer_to(requests[1]).there)
        again = world.stream_append(2, payload=b"b" * 900)
        world.run(SECOND)
        last = world.stream_append(3, payload=b"c")
        world.run()
        assert [world.answer_to(each).status for each in (again, last)] == [Status.OK, Status.OK]

    def test_a_frame_that_was_taken_is_answered_again_and_not_charged_again(self) -> None:
        world = filled(append_bytes_per_s=1000)
        first = world.stream_append(1, resume=True, payload=KB)
        world.run()
        repeated = world.stream_append(1, payload=KB)
        world.run()
        assert world.answer_to(repeated).status is Status.OK
        assert world.answer_to(repeated).lsn == world.answer_to(first).lsn


class TestGuards:
    def test_a_guard_that_does_not_hold_is_told_and_costs_nothing(self) -> None:
        world = filled(append_bytes_per_s=1000)
        world.guarded_append(b"", records=0, token=7, guards=GuardFlags.RAISE)
        world.run(10 * SECOND)
        refused = [world.guarded_append(KB, token=3) for _ in range(3)]
        world.run()
        taken = world.guarded_append(KB, token=7)
        over = world.guarded_append(KB, token=7)
        world.run()
        assert {world.answer_to(each).status for each in refused} == {Status.FENCED}
        assert world.answer_to(taken).status is Status.OK
        assert world.answer_to(over).status is Status.THROTTLED


class TestPrincipals:
    def world(self) -> World:
        config = replace(
            make_config(),
            quotas={"slow": PrincipalQuota(append_bytes_per_s=1000), "*": PrincipalQuota(append_records_per_s=5)},
        )
        world = active(config=config)
        principals = Principals()
        for peer, name in ((-1, "slow"), (-2, "slow"), (-3, "other")):
            principals.add(PeerId(peer), Principal(name))
        quotas = PrincipalQuotas(config, principals)
        world.node.context.quotas = quotas
        world.node._appends._quotas = quotas
        for peer in (-1, -3, -4):
            append(world, b"", peer=peer)
        world.run(60 * SECOND)
        return world

    def test_a_principal_has_one_quota_over_all_its_connections_and_logs(self) -> None:
        world = self.world()
        assert append(world, peer=-1) is Status.OK
        assert append(world, peer=-2) is Status.THROTTLED
        assert append(world, peer=-2, log=OTHER_LOG) is Status.THROTTLED

    def test_others_have_their_own(self) -> None:
        world = self.world()
        outcomes = [append(world, peer=-1) for _ in range(20)]
        assert outcomes.count(Status.OK) == 1
        assert [append(world, peer=-3) for _ in range(6)] == [Status.OK] * 5 + [Status.THROTTLED]
        assert [append(world, peer=-4) for _ in range(6)] == [Status.OK] * 5 + [Status.THROTTLED]

    def test_nodes_have_none(self) -> None:
        world = self.world()
        assert {append(world, b"x", peer=3) for _ in range(20)} == {Status.OK}

    def test_a_newer_file_changes_them(self) -> None:
        world = self.world()
        config = replace(world.config, version=9, quotas={"slow": PrincipalQuota(append_bytes_per_s=3000)})
        world.node.context.quotas.on_config(config, world.now)
        world.run(SECOND)
        assert [append(world, peer=-1) for _ in range(4)] == [Status.OK] * 3 + [Status.THROTTLED]
        assert {append(world, peer=-4) for _ in range(20)} == {Status.OK}

    def test_what_one_of_two_quotas_refuses_the_other_one_is_not_charged_for(self) -> None:
        world = self.world()
        world.sequencer.on_attributes(replace(world.sequencer.attributes, append_bytes_per_s=10_000), world.now)
        append(world, b"", peer=3)
        world.run(10 * SECOND)
        assert append(world, peer=-1) is Status.OK
        assert [append(world, peer=-1) for _ in range(5)] == [Status.THROTTLED] * 5
        meter = world.sequencer.meter
        assert meter is not None
        assert meter.bytes_available(world.now) == 9000

    def test_whose_meter_is_forgotten_begins_empty(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("logdevice_py.shell.principal_quotas._METERS_MAX", 2)
        quotas = PrincipalQuotas(
            replace(make_config(), quotas={"*": PrincipalQuota(append_bytes_per_s=10)}), principals := Principals()
        )
        for number in range(1, 4):
            principals.add(PeerId(-number), Principal(f"p{number}"))
        now = Micros(0)
        first = quotas.appends(PeerId(-1))
        assert first is not None
        assert first.wait(10, 1, now) == SECOND
        assert quotas.appends(PeerId(-2)) is not quotas.appends(PeerId(-3))
        again = quotas.appends(PeerId(-1))
        assert again is not None
        assert again is not first
        assert again.wait(10, 1, Micros(60 * SECOND)) == SECOND


def flood(world: World, seconds: int) -> list[tuple[int, int]]:
    """Whoever appends ten times his quota: when he got an answer OK, and for how much."""
    taken = []
    for _ in range(100 * seconds):
        if append(world) is Status.OK:
            taken.append((int(world.now), len(KB)))
        world.run(SECOND // 100)
    return taken


def test_a_flood_through_a_takeover_gets_no_more_than_its_quota() -> None:
    rate = 10_000
    world = filled(append_bytes_per_s=rate)
    taken = flood(world, 5)
    come_back(world)
    taken += flood(world, 10)
    most = max(sum(size for at, size in taken if begin <= at < begin + 10 * SECOND) for begin, _ in taken)
    assert 0.9 * 10 * rate <= most <= 1.05 * 10 * rate + rate


def test_a_quota_that_is_not_charged_is_noticed() -> None:
    with FAULTS["quota_not_charged"].planted(), pytest.raises(AssertionError):
        test_a_flood_through_a_takeover_gets_no_more_than_its_quota()


def test_a_bucket_that_keeps_what_it_saved_while_others_had_the_log_is_noticed() -> None:
    with FAULTS["quota_saved_up_elsewhere"].planted(), pytest.raises(AssertionError):
        TestRefusals().test_a_log_that_comes_back_has_saved_up_nothing()
