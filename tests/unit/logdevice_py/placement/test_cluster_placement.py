"""A policy proposes; what it proposes is judged outside of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from logdevice_py.config.attributes import LogAttributes
from logdevice_py.config.cluster import ClusterConfig, ShardState
from logdevice_py.config.location import Location
from logdevice_py.config.validate import validate_cluster
from logdevice_py.core.ids import LogId, NodeId, ShardId, node_of, shard_id
from logdevice_py.core.machine import Rng
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.placement.cluster_placement import ClusterPlacement, check_policy
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.reading_order import ReadHealth
from logdevice_py.placement.settings import PlacementSettings
from logdevice_py.placement.topology import Topology
from tests.unit.logdevice_py.placement.clusters import attributes, cluster

HERE = "tests.unit.logdevice_py.placement.test_cluster_placement"
S = [shard_id(NodeId(node)) for node in range(9)]


class Scripted:
    """A policy that does what `PROPOSED` says."""

    PROPOSED: Any = None
    COPYSETS: Any = None
    ORDER: Any = None
    calls: list[str] = []  # noqa: RUF012  (shared by instances on purpose: the placement makes its own)

    def __init__(self, settings: PlacementSettings) -> None:
        self.calls.append(f"made {settings.policy_options}")

    def on_cluster_changed(self, topology: Topology) -> frozenset[ShardId]:
        self.calls.append(f"changed {len(topology.writable)}")
        return frozenset()

    def select_nodeset(self, log: LogId, attributes: LogAttributes) -> tuple[ShardId, ...] | None:
        return _said(self.PROPOSED)  # type: ignore[no-any-return]

    def copysets(self, domains: FailureDomains, at: Location | None, rng: Rng) -> Any:
        return _said(self.COPYSETS)

    def reading_order(self, shards: Sequence[ShardId], *_: Any) -> Any:
        return _said(self.ORDER)

    def close(self) -> None:
        self.calls.append("closed")


class Source:
    """Copysets that do what they are told."""

    def __init__(self, said: Any) -> None:
        self.nodeset = ()
        self._said = said

    def pick(self, available: Callable[[ShardId], bool]) -> Any:
        return _said(self._said)

    def replace(self, kept: Sequence[ShardId], available: Callable[[ShardId], bool]) -> Any:
        return _said(self._said)


def _said(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


class Unmade:
    def __init__(self, settings: PlacementSettings) -> None:
        raise ValueError("no map of racks")


def with_policy(config: ClusterConfig, policy: str, options: str = "") -> ClusterConfig:
    return replace(config, settings={"placement": {"policy": policy, "policy_options": options}})


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "PROPOSED", None)
    monkeypatch.setattr(Scripted, "COPYSETS", None)
    monkeypatch.setattr(Scripted, "ORDER", None)
    monkeypatch.setattr(Scripted, "calls", [])


SIX = cluster([f"rack{index % 3}" for index in range(6)], nodes={5: {"shard_state": ShardState.DISABLED}})
WANTED = attributes("rack:2,node:3", nodeset_size=5)


def scripted(told: list[str], config: ClusterConfig = SIX) -> ClusterPlacement:
    return ClusterPlacement(with_policy(config, f"{HERE}:Scripted", "x=1"), told.append)


def test_a_nodeset_that_satisfies_the_property_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(Scripted, "PROPOSED", (S[4], S[0], S[1]))
    assert scripted(told).select_nodeset(LogId(1), WANTED) == (S[0], S[1], S[4])
    assert told == []


@pytest.mark.parametrize(
    ("proposed", "why"),
    [
        ((S[0], S[1]), "has 2 writable shards, which cannot satisfy"),
        ((S[0], S[3]), "cannot satisfy"),
        ((S[0], S[1], S[1]), "lists a shard twice"),
        ((S[0], S[1], S[5]), "not eligible"),
        ((S[0], S[1], S[8]), "not eligible"),
        (7, "is no sequence of shards"),
        (("N0", "N1", "N2"), "is no sequence of shards"),
        (tuple(range(200)), "at most 127"),
        (None, "finds no nodeset where there is one"),
        (ZeroDivisionError("oops"), "select_nodeset failed: ZeroDivisionError: oops"),
    ],
)
def test_a_nodeset_that_would_not_do_is_refused_and_weighted_chooses(
    monkeypatch: pytest.MonkeyPatch, proposed: Any, why: str
) -> None:
    told: list[str] = []
    monkeypatch.setattr(Scripted, "PROPOSED", proposed)
    placement = scripted(told)
    assert placement.select_nodeset(LogId(1), WANTED) == ClusterPlacement(SIX).select_nodeset(LogId(1), WANTED)
    assert placement.refusals == len(told) == 1
    assert why in told[0]


NODESET = S[:5]
DOMAINS = FailureDomains.by_file(NODESET, WANTED.replication, SIX.location)


def source(monkeypatch: pytest.MonkeyPatch, told: list[str], said: Any) -> Any:
    monkeypatch.setattr(Scripted, "COPYSETS", Source(said))
    return scripted(told).copysets(DOMAINS, None, random.Random(1))


@pytest.mark.parametrize(
    ("picked", "why"),
    [
        ((S[0], S[3]), 'does not satisfy "rack:2,node:3"'),
        ((S[0], S[0], S[1]), "lists a shard twice"),
        ((S[0], S[1], S[7]), "N7:S0, which is not available"),
        ((S[0], S[1], S[2]), "N2:S0, which is not available"),
        ((S[0], S[1], S[3], S[4]), "has 4 shards instead of 3"),
        (None, "no copyset is found where there is one"),
        (KeyError("rack"), "choosing a copyset failed: KeyError"),
        (12, "choosing a copyset failed: TypeError"),
    ],
)
def test_a_copyset_that_would_not_do_is_refused_and_weighted_chooses(
    monkeypatch: pytest.MonkeyPatch, picked: Any, why: str
) -> None:
    told: list[str] = []
    chosen = source(monkeypatch, told, picked).pick(lambda shard: shard != S[2])
    assert DOMAINS.can_replicate(chosen)
    assert S[2] not in chosen
    assert len(told) == 1
    assert why in told[0]


def test_a_copyset_that_satisfies_the_property_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    assert source(monkeypatch, told, (S[3], S[0], S[1])).pick(lambda _: True) == (S[3], S[0], S[1])
    assert source(monkeypatch, told, (S[0], S[3], S[4])).replace([S[0], S[3]], lambda _: True) == (S[0], S[3], S[4])
    assert told == []


def test_nothing_is_refused_where_nothing_can_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    silent = source(monkeypatch, told, None)
    assert silent.pick(lambda shard: shard in S[:2]) is None
    assert silent.replace([S[0]], lambda shard: False) is None
    assert told == []


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ((S[0], S[1], S[3]), "does not begin with what is kept"),
        ((S[0], S[3], S[1], S[4]), "adds 2 shards where 1 do"),
        ((S[0], S[3]), "does not satisfy"),
        (ValueError("no"), "ValueError"),
    ],
)
def test_what_replaces_a_lost_copy_is_checked_too(monkeypatch: pytest.MonkeyPatch, chosen: Any, why: str) -> None:
    told: list[str] = []
    added = source(monkeypatch, told, chosen).replace([S[0], S[3]], lambda _: True)
    assert list(added[:2]) == [S[0], S[3]]
    assert len(added) == 3
    assert DOMAINS.can_replicate(added)
    assert why in told[0]


def test_a_policy_that_gives_no_copysets_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(Scripted, "COPYSETS", OSError("gone"))
    assert scripted(told).copysets(DOMAINS, None, random.Random(1)).pick(lambda _: True) is not None
    assert "copysets failed: OSError: gone" in told[0]


def test_a_policy_hears_of_changes_and_is_closed_when_another_one_follows() -> None:
    told: list[str] = []
    placement = scripted(told)
    fewer = replace(SIX, excluded=frozenset({S[0]}))
    placement.set_config(with_policy(fewer, f"{HERE}:Scripted", "x=1"))
    assert placement.lost == {S[0]}
    placement.set_config(fewer)
    placement.close()
    assert Scripted.calls == ["made x=1", "changed 5", "changed 4", "closed"]
    assert told == []


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("heaviest", "none of .*weighted.*module:Class"),
        ("no.such.module:Policy", "cannot be imported here"),
        (f"{HERE}:NoSuch", "cannot be imported here"),
        (f"{HERE}:Unmade", "cannot be made: ValueError: no map of racks"),
    ],
)
def test_a_policy_that_is_not_there_is_refused_at_start_and_weighted_chooses_in_a_node_that_runs(
    policy: str, why: str
) -> None:
    config, told = with_policy(SIX, policy), []
    with pytest.raises(LogDeviceError, match=why) as caught:
        check_policy(config)
    assert caught.value.status is Status.INVALID_CONFIG
    placement = ClusterPlacement(config, told.append)  # type: ignore[arg-type]
    assert placement.select_nodeset(LogId(1), WANTED) == ClusterPlacement(SIX).select_nodeset(LogId(1), WANTED)
    assert len(told) == 1


def test_a_setting_that_is_none_is_refused() -> None:
    with pytest.raises(LogDeviceError, match=r"\[settings.placement\] polizy"):
        check_policy(replace(SIX, settings={"placement": {"polizy": "weighted"}}))


def test_too_few_shards_are_an_error_that_counts_what_is_there_and_what_is_needed() -> None:
    with pytest.raises(
        LogDeviceError,
        match=r"the 5 writable .*\(3 racks are needed, they are in 3; 6 nodes are needed, they are in 5\)",
    ):
        ClusterPlacement(SIX).select_nodeset(LogId(1), attributes("rack:3,node:6"))


class TestDisabledRegions:
    PLACES = [f"{region}.d.c.r.k" for region in ("us", "eu", "ap") for _ in range(3)]  # noqa: RUF012

    def config(self, disabled: str) -> ClusterConfig:
        return replace(cluster(self.PLACES), settings={"placement": {"disabled_regions": disabled}})

    def test_no_nodeset_has_shards_of_a_disabled_region_and_none_takes_records(self) -> None:
        config = self.config("us, ap")
        assert ClusterPlacement(config).select_nodeset(LogId(1), attributes("node:3")) == tuple(S[3:6])
        assert config.writable_shards() == tuple(S[3:6])
        assert not config.is_writable(S[0])

    @pytest.mark.parametrize(
        ("disabled", "why"),
        [
            ("mars", "no storage stands in a region 'mars'; there are ap, eu, us"),
            ("us,eu", '"region:2,node:3" needs storage in 2 different regions, there is storage in 1'),
        ],
    )
    def test_a_switch_that_would_stop_appends_is_refused(self, disabled: str, why: str) -> None:
        config = replace(
            cluster(self.PLACES, replicate="region:2,node:3"), settings={"placement": {"disabled_regions": disabled}}
        )
        with pytest.raises(LogDeviceError, match=f"settings.placement.disabled_regions: {why}"):
            validate_cluster(config)

    def test_one_region_of_three_can_be_taken_out_where_two_suffice(self) -> None:
        config = replace(
            cluster(self.PLACES, replicate="region:2,node:3"), settings={"placement": {"disabled_regions": "eu"}}
        )
        validate_cluster(config)
        assert ClusterPlacement(config).select_nodeset(LogId(1), attributes("region:2,node:3")) == (*S[:3], *S[6:])


@pytest.mark.parametrize(
    ("proposed", "refused"),
    [
        ([S[2], S[0], S[1]], 0),
        ([S[2], S[0]], 1),
        ([S[2], S[0], S[0], S[1]], 1),
        ([S[2], S[0], S[5]], 1),
        (["N2", S[0], S[1]], 1),
        (7, 1),
        (ValueError("no"), 1),
    ],
)
def test_an_order_of_reading_has_all_shards_and_no_others(
    monkeypatch: pytest.MonkeyPatch, proposed: Any, refused: int
) -> None:
    told: list[str] = []
    monkeypatch.setattr(Scripted, "ORDER", proposed)
    found = scripted(told).reading_order(S[:3], None, lambda _: ReadHealth.WELL, random.Random(1))
    assert sorted(found) == S[:3]
    assert (found == proposed, len(told)) == (not refused, refused)


def test_built_in_policies_choose_the_order_of_reading() -> None:
    places = ["us.d.c.r.p", "us.d.c.r.p", "us.d.c.r.q", "eu.d.c.r.p"]
    health = dict.fromkeys(S, ReadHealth.WELL)
    orders = {}
    for policy in ("weighted", "rack-aware", "region-aware"):
        placement = ClusterPlacement(with_policy(cluster(places), policy))
        order = placement.reading_order(S[:4], Location.parse("us.d.c.r.p"), health.__getitem__, random.Random(1))
        orders[policy] = [int(node_of(shard)) for shard in order]
    assert orders["weighted"][1:3] == orders["rack-aware"][1:3] == [2, 3]
    assert sorted(orders["region-aware"][:2]) == [0, 1]
    assert orders["region-aware"][2:] == [3, 2]
