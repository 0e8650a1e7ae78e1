"""Maintenances as a state: what commands may do when, and rules that are left out are noticed."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest

from client.maintenance.commands import (
    AbandonRestart,
    ApplyMaintenance,
    BeginRestart,
    EndCause,
    EndMaintenance,
    GrantMaintenance,
    MaintenanceCommand,
    MaintenanceKind,
    NodeRestarted,
    RestartNode,
    ShardsDrained,
    ShardsReturned,
    TakeRestart,
    WithdrawMaintenance,
    decode,
    encode,
)
from client.maintenance.state import ENDED_KEPT, LIVE_MAX, MaintenancePhase, MaintenancesState
from client.replica.commands import CommandRefused, StateVersion, refusal
from logdevice_py.core.ids import NodeId, ShardId, shard_id
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Timestamp

HOUR = 3600 * SECOND
AWAY, DRAIN = MaintenanceKind.AWAY, MaintenanceKind.DRAIN


class Maintained:
    """A state that takes commands, one second after the other."""

    def __init__(self) -> None:
        self.state = MaintenancesState()
        self.at = 0

    def __call__(self, command: MaintenanceCommand, *, time: int | None = None) -> Any:
        self.at += 1
        before = self.state.encode()
        try:
            made = self.state.apply(
                encode(command),
                StateVersion(Lsn(self.at), 0),
                Timestamp(self.at * SECOND if time is None else time),
            )
        except CommandRefused:
            assert self.state.encode() == before, "what is refused changes nothing"
            raise
        assert MaintenancesState.decode(self.state.encode()).encode() == self.state.encode()
        return msgpack.unpackb(made) if made else None

    def refuses(self, command: MaintenanceCommand, status: Status, **options: Any) -> str:
        with pytest.raises(CommandRefused) as refused:
            self(command, **options)
        found, text = refusal(str(refused.value))
        assert found is status, text
        return text

    def apply(self, *nodes: int, kind: MaintenanceKind = AWAY, for_us: int = HOUR, restart: int = 0) -> int:
        shards = [shard_id(NodeId(node)) for node in nodes]
        number: int = self(ApplyMaintenance(kind, [NodeId(node) for node in nodes], shards, for_us, "ann", "", restart))
        return number

    def grant(self, number: int) -> None:
        self(GrantMaintenance(number, self.state.basis))

    def phase(self, number: int) -> str:
        return self.state.live[number].phase.name

    def version(self, number: int) -> StateVersion:
        return self.state.live[number].version


def test_two_that_were_judged_on_the_same_basis_are_not_both_granted() -> None:
    state = Maintained()
    first, second = state.apply(1), state.apply(2)
    basis = state.state.basis
    state(GrantMaintenance(first, basis))
    assert state.state.going() == {shard_id(NodeId(1))}
    assert state.state.going_nodes() == {1}
    text = state.refuses(GrantMaintenance(second, basis), Status.CONFLICT)
    assert text == "something was granted or ended since it was judged"
    assert state.phase(second) == "WAITING"
    state.grant(second)
    assert state.state.going_nodes() == {1, 2}


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state(WithdrawMaintenance(1, state.version(1))),
        lambda state: state(EndMaintenance(1, EndCause.DONE)),
        lambda state: state(ShardsDrained(2, state.version(2))),
        lambda state: state(EndMaintenance(2, EndCause.CANCELLED)),
        lambda state: state.grant(4),
    ],
)
def test_whatever_changes_what_may_be_away_or_empty_is_another_basis(change: Any) -> None:
    state = Maintained()
    state.apply(1)
    state.apply(2, kind=DRAIN)
    state.grant(1)
    state.grant(2)
    waits = state.apply(3)
    state.apply(4)
    basis = state.state.basis
    change(state)
    state.refuses(GrantMaintenance(waits, basis), Status.CONFLICT)


def test_who_only_waits_or_waits_no_more_changes_no_basis() -> None:
    state = Maintained()
    first = state.apply(1)
    basis = state.state.basis
    state(EndMaintenance(state.apply(2), EndCause.CANCELLED))
    state(GrantMaintenance(first, basis))
    assert state.phase(first) == "GRANTED"


def test_a_node_or_a_shard_is_in_one_maintenance() -> None:
    state = Maintained()
    state.apply(1, 2)
    assert "N1, N2 is in maintenance 1 of ann" in state.refuses(
        ApplyMaintenance(DRAIN, [], [shard_id(NodeId(2))], 0, "bob", ""), Status.EXISTS
    )
    state.refuses(ApplyMaintenance(AWAY, [NodeId(1)], [], 0, "bob", ""), Status.EXISTS)
    state(EndMaintenance(1, EndCause.CANCELLED))
    assert state.apply(2) == 2
    state.refuses(ApplyMaintenance(DRAIN, [NodeId(7)], [], 0, "bob", ""), Status.INVALID_PARAM)


def test_what_is_taken_back_waits_again_and_old_words_change_nothing() -> None:
    state = Maintained()
    number = state.apply(1)
    state.grant(number)
    version = state.version(number)
    state(WithdrawMaintenance(number, version))
    assert (state.phase(number), state.state.going()) == ("WAITING", frozenset())
    state.refuses(WithdrawMaintenance(number, version), Status.CONFLICT)
    state.grant(number)
    state.refuses(WithdrawMaintenance(number, version), Status.VERSION_MISMATCH)
    state.refuses(EndMaintenance(number, EndCause.DONE, version), Status.VERSION_MISMATCH)
    state.refuses(ShardsDrained(number, version), Status.CONFLICT)
    state.refuses(GrantMaintenance(number, state.state.basis), Status.CONFLICT)
    state(EndMaintenance(number, EndCause.DONE))
    assert state.state.live == {}
    assert [(each.number, each.phase.name, each.cause) for each in state.state.ended] == [(1, "OVER", EndCause.DONE)]
    state.refuses(EndMaintenance(number, EndCause.DONE), Status.NOTFOUND)
    state.refuses(GrantMaintenance(number, state.state.basis), Status.NOTFOUND)


def test_drained_shards_count_until_they_are_used_again() -> None:
    state = Maintained()
    number = state.apply(1, kind=DRAIN, for_us=0)
    state.grant(number)
    shard = shard_id(NodeId(1))
    assert (state.phase(number), state.state.going(), state.state.emptied()) == ("DRAINING", frozenset(), {shard})
    state(ShardsDrained(number, state.version(number)))
    assert (state.phase(number), state.state.going(), state.state.emptied()) == ("DRAINED", {shard}, {shard})
    state.refuses(WithdrawMaintenance(number, state.version(number)), Status.CONFLICT)
    state.refuses(ShardsReturned(number, state.version(number)), Status.CONFLICT)
    version = state.version(number)
    state(EndMaintenance(number, EndCause.CANCELLED))
    assert (state.phase(number), state.state.going(), state.state.emptied()) == ("ENDING", frozenset(), {shard})
    state.refuses(EndMaintenance(number, EndCause.DONE), Status.CONFLICT)
    state.refuses(ShardsReturned(number, version), Status.VERSION_MISMATCH)
    state(ShardsReturned(number, state.version(number)))
    assert (state.state.live, state.state.emptied()) == ({}, frozenset())
    assert state.state.ended[0].cause is EndCause.CANCELLED


@pytest.mark.parametrize("drained", [False, True])
def test_what_left_the_cluster_file_is_over_at_once(drained: bool) -> None:
    state = Maintained()
    number = state.apply(1, kind=DRAIN, for_us=0)
    state.grant(number)
    if drained:
        state(ShardsDrained(number, state.version(number)))
        state(EndMaintenance(number, EndCause.CANCELLED))
    state(EndMaintenance(number, EndCause.LEFT))
    assert (state.state.live, state.state.ended[0].cause) == ({}, EndCause.LEFT)


def test_nothing_expires_before_its_time() -> None:
    state = Maintained()
    number = state.apply(1)
    late = EndMaintenance(number, EndCause.EXPIRED)
    assert state.refuses(late, Status.CONFLICT, time=SECOND + HOUR - 1) == "maintenance 1 has time left"
    state(GrantMaintenance(number, state.state.basis), time=HOUR)
    state.refuses(late, Status.CONFLICT, time=2 * HOUR - 1)
    assert state.state.live[number].expires == 2 * HOUR, "granted, it has all of its time"
    state(late, time=2 * HOUR)
    assert state.state.ended[0].cause is EndCause.EXPIRED
    for_ever = state.apply(1, for_us=0)
    state.refuses(EndMaintenance(for_ever, EndCause.EXPIRED), Status.CONFLICT, time=1 << 60)


def test_the_time_of_what_is_drained_runs_from_when_that_began() -> None:
    state = Maintained()
    number = state.apply(1, kind=DRAIN)
    state(GrantMaintenance(number, state.state.basis), time=HOUR)
    state(ShardsDrained(number, state.version(number)), time=HOUR + HOUR // 2)
    state.refuses(EndMaintenance(number, EndCause.EXPIRED), Status.CONFLICT, time=2 * HOUR - 1)
    state(EndMaintenance(number, EndCause.EXPIRED), time=2 * HOUR)
    assert state.phase(number) == "ENDING"


def test_a_rolling_restart_goes_node_by_node_and_on_after_it_was_killed() -> None:
    state = Maintained()
    restart = state(BeginRestart([NodeId(2), NodeId(1)], "ann", "upgrade"))
    first = state(TakeRestart(restart, "ann"))
    state.refuses(BeginRestart([NodeId(3)], "bob", ""), Status.EXISTS)
    number = state.apply(2, restart=restart)
    told = RestartNode(restart, first, NodeId(2), 70)
    assert state.refuses(told, Status.CONFLICT) == "N2 may not disappear yet"
    state.grant(number)
    state(told)
    state(RestartNode(restart, first, NodeId(2), 71))
    second = state(TakeRestart(restart, "bob"))
    state.refuses(NodeRestarted(restart, first, NodeId(2)), Status.FENCED)
    assert state.state.restart is not None
    assert (state.state.restart.instance, state.state.restart.by) == (70, "bob"), "who goes on knows what was under way"
    state.refuses(NodeRestarted(restart, second, NodeId(1)), Status.CONFLICT)
    state(NodeRestarted(restart, second, NodeId(2)))
    assert state.state.ended[-1].number == number, "the maintenance is over in the same moment"
    assert (state.state.restart.left, state.state.restart.done, state.state.restart.instance) == ((1,), (2,), None)
    state.refuses(RestartNode(restart, second, NodeId(2), 71), Status.CONFLICT)
    state.refuses(RestartNode(restart, first, NodeId(1), 71), Status.FENCED)
    state.grant(state.apply(1, restart=restart))
    state(RestartNode(restart, second, NodeId(1), 71))
    state(NodeRestarted(restart, second, NodeId(1)))
    assert (state.state.restart, state.state.live) == (None, {})
    state.refuses(TakeRestart(restart, "ann"), Status.NOTFOUND)


def test_a_rolling_restart_obeys_no_maintenance_of_another_and_can_be_abandoned() -> None:
    state = Maintained()
    restart = state(BeginRestart([NodeId(2), NodeId(1)], "ann", "upgrade"))
    token = state(TakeRestart(restart, "ann"))
    other = state.apply(2)
    state.grant(other)
    state.refuses(RestartNode(restart, token, NodeId(2), 70), Status.CONFLICT)
    of_the_next_one = state.apply(1, restart=restart)
    state.grant(of_the_next_one)
    state.refuses(RestartNode(restart, token, NodeId(2), 70), Status.CONFLICT)
    state(AbandonRestart(restart))
    state.refuses(AbandonRestart(restart), Status.NOTFOUND)
    state.refuses(ApplyMaintenance(AWAY, [NodeId(5)], [shard_id(NodeId(5))], 0, "ann", "", restart), Status.NOTFOUND)
    assert set(state.state.live) == {other, of_the_next_one}


def test_states_stay_small() -> None:
    state = Maintained()
    for node in range(LIVE_MAX):
        command = ApplyMaintenance(AWAY, [NodeId(node)], [], 0, "ann", "")
        state.at += 1
        state.state.apply(encode(command), StateVersion(Lsn(state.at), 0), Timestamp(0))
    state.refuses(ApplyMaintenance(AWAY, [NodeId(LIVE_MAX)], [], 0, "ann", ""), Status.NOSPC)
    for number in range(1, ENDED_KEPT + 20):
        state.state.apply(
            encode(EndMaintenance(number, EndCause.DONE)), StateVersion(Lsn(state.at + number), 0), Timestamp(0)
        )
    assert [each.number for each in state.state.ended] == list(range(20, ENDED_KEPT + 20))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        msgpack.packb([2, 1]),
        msgpack.packb([1, 99]),
        msgpack.packb([1, 1, 1, [], [], 0, "", "", 0]),
        msgpack.packb([1, 1, 9, [1], [], 0, "", "", 0]),
        msgpack.packb([1, 1, 1, [1, 1], [], 0, "", "", 0]),
        msgpack.packb([1, 1, 1, [1], [], -1, "", "", 0]),
        msgpack.packb([1, 1, 1, [1], [], 0, "x" * 201, "", 0]),
        msgpack.packb([1, 2, 0, [1, 0]]),
        msgpack.packb([1, 5, 1, 9, None]),
        msgpack.packb([1, 7, [], "", ""]),
    ],
)
def test_what_is_no_command_is_refused(body: bytes) -> None:
    with pytest.raises(CommandRefused):
        MaintenancesState().apply(body, StateVersion(Lsn(1), 0), Timestamp(0))


@pytest.mark.parametrize("seed", range(20))
def test_any_commands_leave_a_state_that_comes_back_from_its_snapshot(seed: int) -> None:
    rng, state = random.Random(seed), Maintained()
    nodes = [NodeId(node) for node in range(4)]
    applied = 0

    def version() -> StateVersion:
        return rng.choice([StateVersion(Lsn(0), 0), *(each.version for each in state.state.live.values())])

    for _ in range(200):
        number, node = rng.choice([rng.randint(1, 12), *state.state.live]), rng.choice(nodes)
        kind = rng.choice([AWAY, DRAIN])
        command = rng.choice(
            [
                ApplyMaintenance(kind, [node], [ShardId(node << 8)], rng.choice([0, 5]), "a", "", rng.choice([0, 1])),
                GrantMaintenance(number, state.state.basis),
                WithdrawMaintenance(number, version()),
                ShardsDrained(number, version()),
                EndMaintenance(number, rng.choice(list(EndCause)), rng.choice([None, version()])),
                ShardsReturned(number, version()),
                BeginRestart(rng.sample(nodes, 2), "a", ""),
                TakeRestart(number, "b"),
                RestartNode(number, rng.randint(1, 12), node, 7),
                NodeRestarted(number, rng.randint(1, 12), node),
                AbandonRestart(number),
            ]
        )
        assert decode(encode(command)) == _tupled(command)
        try:
            state(command)
        except CommandRefused:
            continue
        applied += 1
        granted = [each for each in state.state.live.values() if each.phase is not MaintenancePhase.WAITING]
        shards = [shard for each in state.state.live.values() for shard in each.wanted.shards]
        assert len(set(shards)) == len(shards)
        assert all(each.version <= state.state.basis for each in granted)
    assert applied > 10


def _tupled(command: Any) -> Any:
    """As it is decoded: sequences are tuples."""
    if isinstance(command, ApplyMaintenance):
        nodes, shards = tuple(command.nodes), tuple(command.shards)
        return ApplyMaintenance(
            command.kind, nodes, shards, command.for_us, command.by, command.reason, command.restart
        )
    if isinstance(command, BeginRestart):
        return BeginRestart(tuple(command.nodes), command.by, command.reason)
    return command
