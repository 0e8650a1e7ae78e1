"""The short version of ``make placement-proof``, the faults that it must notice, and how many acknowledgements promise how many regions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest

from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import ShardId
from logdevice_py.placement.copyset import CopysetSelector
from logdevice_py.placement.failure_domains import FailureDomains, FMajority
from logdevice_py.placement.policies import RegionAware
from logdevice_py.placement.settings import PlacementSettings
from logdevice_py.placement.topology import Topology
from tests.property.acknowledgement import fewest_acknowledgements, refused_acknowledgement
from tests.property.every_cluster import built, check_all, partitions, properties, shapes, span_classes


def test_every_small_cluster_keeps_what_it_promises() -> None:
    checked = check_all(8, 5)
    print(checked)
    assert checked.wrong == []
    assert (checked.clusters, checked.properties) == (85, 1278)
    assert checked.sets > 100_000
    assert checked.picks > 25_000


def test_one_set_of_all_that_span_as_much_shows_the_same() -> None:
    alone, spanned = check_all(0, 5), check_all(0, 0, 5)
    print(spanned)
    assert spanned.wrong == []
    assert (spanned.clusters, spanned.properties, spanned.sets) == (alone.clusters, alone.properties, alone.sets)
    assert spanned.classes < alone.classes
    assert spanned.picks > 1_000


def test_one_set_stands_for_all_that_span_as_much_and_each_is_as_likely() -> None:
    shape, rng = ((2, 1), (2,)), random.Random(3)
    drawn: Counter[tuple[int, ...]] = Counter()
    for _ in range(300):
        found = dict(span_classes(shape, rng))
        assert sum(found.values()) == 2**5
        drawn.update(counts for counts in found if sum(counts) == 2 and counts[2] == 1)
    # two nodes in two regions and racks: a shard of the second region beside one of two, or the one, of the first
    assert 0.5 < drawn[1, 0, 1] / (2 * drawn[0, 1, 1]) < 2


def _one_domain_more(original: Callable[..., FMajority]) -> Any:
    def f_majority(self: FailureDomains, shards: frozenset[ShardId]) -> FMajority:
        found = original(self, shards)
        more = {*shards, *self.shards[:1]}
        return original(self, more) if found is FMajority.NONE and len(more) < len(self.shards) else found

    return f_majority


def _one_region_less(original: Callable[..., Any]) -> Any:
    def pick(self: CopysetSelector, available: Callable[[ShardId], bool]) -> Any:
        usable = [shard for shard in self.nodeset if available(shard)]
        return tuple(usable[: self.replication.copies]) if original(self, available) is not None else None

    return pick


@pytest.mark.parametrize(
    ("cls", "name", "wrong", "text"),
    [
        (FailureDomains, "f_majority", _one_domain_more, "beside an f-majority"),
        (CopysetSelector, "pick", _one_region_less, "picks"),
        (
            FailureDomains,
            "can_replicate",
            lambda _: lambda self, shards: len(shards) >= self.replication.copies,
            "promised=False",
        ),
    ],
)
@pytest.mark.parametrize("sizes", [(5, 0, 0), (0, 0, 5)])
def test_what_breaks_a_promise_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    sizes: tuple[int, int, int],
    cls: type[Any],
    name: str,
    wrong: Callable[[Any], Any],
    text: str,
) -> None:
    monkeypatch.setattr(cls, name, wrong(getattr(cls, name)))
    found = check_all(*sizes).wrong
    assert any(text in each for each in found)


def test_the_clusters_and_properties_are_all_of_them() -> None:
    assert list(shapes(4, racked=False)) == [
        ((4,),),
        ((3,), (1,)),
        ((2,), (2,)),
        ((2,), (1,), (1,)),
        ((1,), (1,), (1,), (1,)),
    ]
    assert list(shapes(3, racked=True)) == [((2, 1),), ((1, 1, 1),), ((1, 1), (1,))]
    assert [str(each) for each in properties(((2,), (1,)))] == [
        "node:1",
        "node:2",
        "node:3",
        "region:2",
        "region:2,node:3",
    ]


def placements(copies: int, regions: int, alive_min: int) -> Iterator[tuple[int, ...]]:
    """How copies may be spread, as equally as it goes, over any of the regions that are left, at least so many."""
    for alive in range(alive_min, regions + 1):
        for spread in partitions(copies, alive):
            if len(spread) == alive and spread[0] - spread[-1] <= 1:
                yield spread


def proves(spread: tuple[int, ...], acknowledgements: int, domains: int) -> bool:
    """No acknowledging set lies in fewer regions: the fullest ones hold fewer copies."""
    return sum(sorted(spread, reverse=True)[: domains - 1]) < acknowledgements


def test_fifteen_copies_in_three_regions_acknowledged_by_eight_are_refused_and_by_nine_accepted() -> None:
    spreads = list(placements(15, 3, 2))
    assert spreads == [(8, 7), (5, 5, 5)]
    assert [proves(spread, 8, 2) for spread in spreads] == [False, True]
    assert all(proves(spread, 9, 2) for spread in spreads)
    assert refused_acknowledgement(15, 9, 2) == ""
    assert refused_acknowledgement(15, 8, 2) == (
        "8 acknowledgements of 15 copies do not prove that an entry is in 2 regions: while only 2 regions are left, 1 may hold 8 of them. Ask for 9 or more"
    )


def test_the_fewest_acknowledgements_are_what_every_spread_of_copies_allows() -> None:
    cases = 0
    for regions in range(1, 6):
        for domains in range(1, regions + 1):
            for copies in range(domains, 25):
                spreads = list(placements(copies, regions, domains))
                enough = [n for n in range(1, copies + 1) if all(proves(spread, n, domains) for spread in spreads)]
                assert enough[0] == fewest_acknowledgements(copies, domains), (regions, domains, copies)
                cases += len(spreads) * copies
    print(f"{cases:,} spreads and numbers of acknowledgements")
    assert cases > 9_000


def test_with_five_regions_and_a_minimum_of_three_any_two_may_be_lost() -> None:
    config, racks, _ = built(((2,),) * 5)
    domains = FailureDomains.by_file(
        config.storage_shards(), ReplicationProperty.parse("region:3,node:3"), config.location
    )
    policy = RegionAware(PlacementSettings())
    policy.on_cluster_changed(Topology.of(config))
    source = policy.copysets(domains, None, random.Random(5))
    outcomes: dict[int, list[tuple[bool, bool]]] = {2: [], 3: []}
    for count, found in outcomes.items():
        for lost in combinations(range(5), count):
            left = frozenset(shard for region, shards in enumerate(racks) if region not in lost for shard in shards)
            copyset = source.pick(left.__contains__)
            assert copyset is None or domains.can_replicate(copyset)
            found.append((copyset is not None, domains.f_majority(left).is_authoritative))
    assert outcomes == {2: [(True, True)] * 10, 3: [(False, False)] * 10}
