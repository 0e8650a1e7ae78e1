"""Whether a maintenance is safe: every small cluster and order of steps, and each reason to wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from client.maintenance.commands import GrantMaintenance, encode
from client.maintenance.state import Maintenance, MaintenancePhase, MaintenancesState
from client.replica.commands import CommandRefused, StateVersion
from ldquery.ctl.impact import Survey
from ldquery.maintenance.safety import has_left, is_back, restartable, why_not
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import NodeId, shard_id
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import SECOND, Timestamp
from tests.unit.ldquery.maintenance.fakes import GB, SeenCluster, wanted

Judge = Callable[[ClusterConfig, Survey, MaintenancesState, Maintenance], list[str]]
CLUSTERS = [
    (3, "node:2", 0),
    (3, "node:3", 0),
    (4, "node:2", 0),
    (4, "rack:2,node:3", 2),
    (5, "node:3", 0),
    (5, "rack:2,node:3", 3),
]


def applied(*maintenances: Any) -> MaintenancesState:
    """A state in which they wait, with numbers from 1 on."""
    state = MaintenancesState()
    for at, each in enumerate(maintenances, 1):
        state.apply(encode(each), StateVersion(Lsn(at), 0), Timestamp(SECOND))
    return state


def granted(state: MaintenancesState, number: int, basis: StateVersion | None = None) -> MaintenancesState:
    """Another state, after a grant; CommandRefused when it is refused."""
    changed = MaintenancesState.decode(state.encode())
    at = 1 + max(int(each.version.lsn) for each in changed.live.values())
    command = GrantMaintenance(number, changed.basis if basis is None else basis)
    changed.apply(encode(command), StateVersion(Lsn(at), 0), Timestamp(SECOND))
    return changed


class Explorer:
    """Two managers that grant what they find safe, each as of a state that it read some time before: every order of their steps."""

    def __init__(self, cluster: SeenCluster, judge: Judge) -> None:
        self.cluster = cluster
        self.found = cluster.seen()
        self.judge = judge
        self.granted_most = 0
        self.refused = 0
        self.lost: list[str] = []
        self._seen: set[tuple[bytes, ...]] = set()
        self._judged: dict[tuple[frozenset[int], int], bool] = {}

    def _is_safe(self, view: MaintenancesState, each: Maintenance) -> bool:
        key = (frozenset(view.going()), each.number)
        if key not in self._judged:
            self._judged[key] = not self.judge(self.cluster.config, self.found, view, each)
        return self._judged[key]

    def explore(self, state: MaintenancesState, views: tuple[MaintenancesState, ...]) -> None:
        """Every step from here on."""
        key = (state.encode(), *(view.encode() for view in views))
        if key in self._seen:
            return
        self._seen.add(key)
        going = [each.number for each in state.live.values() if each.phase is MaintenancePhase.GRANTED]
        self.granted_most = max(self.granted_most, len(going))
        self.lost += [f"{going}: {what}" for what in self.cluster.loses(state.going())]
        for who, view in enumerate(views):
            others = [*views]
            others[who] = state
            self.explore(state, tuple(others))
            for each in view.live.values():
                if each.phase is MaintenancePhase.WAITING and self._is_safe(view, each):
                    try:
                        self.explore(granted(state, each.number, view.basis), views)
                    except CommandRefused:
                        self.refused += 1


def explored(shape: tuple[int, str, int], judge: Judge = why_not) -> Explorer:
    nodes, replicate, racks = shape
    cluster = SeenCluster(nodes, replicate, racks=racks)
    state = applied(*(wanted(node) for node in range(min(nodes, 4))))
    explorer = Explorer(cluster, judge)
    explorer.explore(state, (state, state))
    return explorer


@pytest.mark.parametrize("shape", CLUSTERS, ids=str)
def test_no_two_managers_grant_together_what_loses_something(shape: tuple[int, str, int]) -> None:
    explorer = explored(shape)
    assert explorer.lost == []
    possible = SeenCluster(shape[0], shape[1], racks=shape[2])
    alone = [node for node in range(shape[0]) if not possible.loses([shard_id(NodeId(node))])]
    assert (explorer.granted_most > 0) == bool(alone), "what is safe is granted"
    assert (explorer.refused > 0) == bool(alone), "managers overtook each other"


@pytest.mark.parametrize("shape", CLUSTERS[2:4], ids=str)
def test_without_the_safety_check_something_is_lost(shape: tuple[int, str, int]) -> None:
    assert explored(shape, lambda config, found, state, each: []).lost


def test_without_the_basis_of_grants_something_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    original = MaintenancesState._change

    def change(self: MaintenancesState, command: Any, at: Any, time: Any) -> None:
        original(self, GrantMaintenance(command.number, self.basis), at, time)

    monkeypatch.setattr(MaintenancesState, "_change", change)
    assert explored((4, "node:2", 0)).lost


def test_what_others_may_take_away_counts_whether_they_did_or_not() -> None:
    cluster = SeenCluster(4, "node:2")
    state = granted(applied(wanted(0), wanted(1)), 1)
    [reason, *_] = why_not(cluster.config, cluster.seen(), state, state.live[2])
    assert reason.startswith("DATA: metadata logs, /a (2 logs): records may have no copy left")
    assert "away would be N0:S0, N1:S0" in reason


def reasons(cluster: SeenCluster, each: Any, state: MaintenancesState | None = None) -> list[str]:
    state = applied(each) if state is None else state
    return why_not(cluster.config, cluster.seen(), state, max(state.live.values(), key=lambda each: each.number))


def test_a_node_that_is_down_or_not_well_counts_as_away() -> None:
    for change in ({"down": {0}}, {"rows": {0: {"dirty_logs": 3}}}, {"rows": {0: {"metadata_awaited": "N2:S0"}}}):
        cluster = SeenCluster(4, "node:2")
        assert reasons(cluster, wanted(1)) == []
        for name, value in change.items():
            setattr(cluster, name, value)
        assert reasons(cluster, wanted(1))[0].startswith("DATA")
        assert reasons(cluster, wanted(0)) == [], "the one that is away may be in maintenance"
    starting = SeenCluster(4, "node:2")
    starting.info[0] = {"readiness": "NOTREADY"}
    assert reasons(starting, wanted(1))[0].startswith("DATA")


def test_what_is_not_known_is_not_safe() -> None:
    cluster = SeenCluster(4, "node:2")
    cluster.unknown = ["/b"]
    assert reasons(cluster, wanted(1)) == ["nobody tells the nodesets of 1 logs: /b"]
    cluster.unknown = []
    cluster.info[2] = {"config_version": 7}
    assert reasons(cluster, wanted(1)) == ["N2 do not use version 1 of the cluster file, which this is"]


def test_shares_of_the_cluster_that_are_away_are_bounded() -> None:
    cluster = SeenCluster(8, "node:4", percent=34)
    state = applied(wanted(0), wanted(1), wanted(2))
    for number in (1, 2):
        assert why_not(cluster.config, cluster.seen(), state, state.live[number]) == []
        state = granted(state, number)
    told = why_not(cluster.config, cluster.seen(), state, state.live[3])
    assert told == [
        "38% of the storage capacity would be away; away_percent_max is 34",
        "38% of the sequencers' weights would be away; away_percent_max is 34",
    ]
    small = SeenCluster(3, "node:2", percent=0)
    assert reasons(small, wanted(0)) == [], "one node may always be away"


def test_the_last_node_that_sequences_stays() -> None:
    cluster = SeenCluster(4, "node:2")
    state = applied(wanted(1))
    found = cluster.seen()
    found.sequencing = frozenset({NodeId(1)})
    told = why_not(cluster.config, found, state, state.live[1])
    assert told == ["no node would be left that sequences: nothing could be appended"]


def test_a_drain_needs_room_and_places_for_copies() -> None:
    cluster = SeenCluster(4, "node:3")
    assert reasons(cluster, wanted(1, drain=True)) == []
    cluster.rows = {node: {"spare_bytes": GB // 4} for node in range(4)}
    assert reasons(cluster, wanted(1, drain=True)) == [
        "1.0 GB are to be stored elsewhere, and the other shards have room for 750.0 MB"
    ]
    assert reasons(SeenCluster(4, "node:3", nodeset=(0, 2, 3)), wanted(1, drain=True)) == []
    assert reasons(SeenCluster(4, "node:3", nodeset=(0, 1, 2)), wanted(1, drain=True)) == [
        "/a: copies lie on N0:S0, N1:S0, N2:S0 and may move to these alone, which are too few: wait until the records of those epochs are trimmed, "
        "or drain by hand (ldctl drain) and leave them a copy short"
    ]
    assert reasons(SeenCluster(3, "node:3"), wanted(1, drain=True))[0] == (
        '"node:3" could not be kept by the shards that are left: N0:S0, N2:S0'
    )
    assert "nobody drains" in reasons(SeenCluster(4, "node:3", rebuilding=False), wanted(1, drain=True))[0]


def test_who_is_away_so_long_that_others_restore_what_he_holds_needs_room_there() -> None:
    cluster = SeenCluster(4, "node:2")
    cluster.rows = {node: {"spare_bytes": 0} for node in range(4)}
    assert reasons(cluster, wanted(1, seconds=1200)) == []
    assert "room for 0 B" in reasons(cluster, wanted(1, seconds=1201))[0]
    assert reasons(SeenCluster(4, "node:2", rebuilding=False), wanted(1, seconds=1e6)) == []


def test_a_node_that_comes_back_before_its_copies_are_restored_elsewhere_needs_no_other_place_for_them() -> None:
    cluster = SeenCluster(3, "rack:2,node:2")
    cluster.earlier = (0, 2)
    assert reasons(cluster, wanted(2, seconds=1200)) == []
    assert reasons(cluster, wanted(2, seconds=1201)) == [
        "REBUILDING: /a: copies that are missing cannot be restored: too few shards are left to hold them; away would be N2:S0",
        "away for 20min at most, nothing would be stored elsewhere meanwhile: ask for that with --for, or wait until those epochs are trimmed",
    ]
    assert "may move to these alone" in reasons(cluster, wanted(2, drain=True))[0]
    cluster = SeenCluster(7, "node:3")
    cluster.earlier = (0, 1, 2, 3)
    assert reasons(cluster, wanted(2, seconds=1200)) == []
    cluster.down = {1}
    assert reasons(cluster, wanted(2, seconds=1200))[0].startswith("REBUILDING: /a"), (
        "what N1 holds may be restored now"
    )


def test_two_drains_need_a_place_for_both_and_what_is_drained_may_go() -> None:
    cluster = SeenCluster(4, "node:3")
    state = granted(applied(wanted(0, drain=True), wanted(1, drain=True), wanted(2)), 1)
    found = cluster.seen()
    assert any("could not be kept" in each for each in why_not(cluster.config, found, state, state.live[2]))
    told = why_not(cluster.config, found, state, state.live[3])
    assert told[0].startswith("APPENDS"), "what is being emptied takes nothing, whether it was told so yet or not"
    assert why_not(cluster.config, found, state, state.live[1]) == []
    cluster.drained[shard_id(NodeId(0))] = "rebuilt"
    assert reasons(cluster, wanted(0)) == [], "nothing is on it"


def test_a_shard_that_began_anew_after_it_was_lost_counts_as_any_other() -> None:
    cluster = SeenCluster(3, "node:2")
    cluster.earlier = cluster.nodeset
    cluster.began_anew = {1}
    assert reasons(cluster, wanted(0)) == []


def test_a_loss_that_is_there_already_excuses_no_further_one() -> None:
    cluster = SeenCluster(5, "node:3")
    cluster.down = {0, 1, 2}
    assert reasons(cluster, wanted(3))[0].startswith("DATA")


def test_who_is_back_and_what_left_the_file() -> None:
    cluster = SeenCluster(4, "node:2")
    state = applied(wanted(1, 2))
    each = state.live[1]
    assert is_back(cluster.config, cluster.seen(), each)
    cluster.down = {2}
    assert not is_back(cluster.config, cluster.seen(), each)
    cluster.down = set()
    cluster.rows[1] = {"damaged_ranges": 1}
    assert not is_back(cluster.config, cluster.seen(), each)
    del cluster.rows[1], cluster.plan.nodes[1]
    cluster.publish()
    assert is_back(cluster.config, cluster.seen(), each)
    assert not has_left(cluster.config, each)
    del cluster.plan.nodes[2]
    cluster.publish()
    assert has_left(cluster.config, each)
    assert restartable(cluster.config) == [0, 3]
