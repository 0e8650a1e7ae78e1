from __future__ import annotations

from itertools import combinations

import pytest

from logdevice_py.config.location import Location, Scope
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, ShardId, node_of, shard_id
from logdevice_py.placement import survival as module
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.survival import Survival, copies_survive, domains_among, in_words, survival

S = [shard_id(NodeId(node)) for node in range(9)]
PLACES = [Location.parse(f"{region}....{rack}") for region in ("ap", "eu", "us") for rack in ("p", "p", "q")]


def domain(scope: Scope):  # type: ignore[no-untyped-def]
    return lambda shard: PLACES[node_of(shard)].domain(scope, node_of(shard))


def test_the_least_loss_of_domains_that_is_too_much_is_found_and_named() -> None:
    domains = FailureDomains.by_file(S, ReplicationProperty.parse("region:2,node:3"), lambda s: PLACES[node_of(s)])
    regions = domains_among(S, domain(Scope.REGION))
    found = survival(regions, lambda lost: domains.can_replicate([s for s in S if s not in lost]))
    assert found == Survival(1, ("ap", "eu"))
    proved = survival(regions, lambda lost: domains.f_majority([s for s in S if s not in lost]).is_authoritative)
    assert proved == Survival(1, ("ap", "eu"))


@pytest.mark.parametrize("scope", [Scope.REGION, Scope.RACK, Scope.NODE])
def test_as_many_domains_are_survived_as_trying_all_losses_says(scope: Scope) -> None:
    for text in ("node:2", "rack:2,node:4", "region:3,node:5", "region:2,rack:4"):
        domains = FailureDomains.by_file(S, ReplicationProperty.parse(text), lambda s: PLACES[node_of(s)])
        names = domains_among(S, domain(scope))

        def holds(lost: frozenset[ShardId], domains: FailureDomains = domains) -> bool:
            return domains.can_replicate([s for s in S if s not in lost])

        found = survival(names, holds)
        expected = 0
        while all(holds(frozenset().union(*each)) for each in combinations(names.values(), expected + 1)):
            expected += 1
        assert found.any_of == expected
        assert not holds(frozenset().union(*(names[name] for name in found.fatal)))


def test_what_does_not_hold_now_survives_nothing() -> None:
    assert survival({"a": frozenset(S)}, lambda lost: False) == Survival(-1)
    assert survival({"a": frozenset(S)}, lambda lost: True) == Survival(1)


def test_where_too_many_losses_would_have_to_be_tried_the_answer_is_a_lower_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOSSES_MAX", 9 + 20)
    names = domains_among(S, domain(Scope.NODE))
    assert survival(names, lambda lost: len(lost) < 4) == Survival(1, is_exact=False)


def test_copies_survive_what_the_narrowest_copyset_does() -> None:
    copysets = [(S[0], S[3], S[6]), (S[0], S[1], S[3])]
    assert copies_survive(copysets, domain(Scope.REGION)) == Survival(1, ("ap", "eu"))
    assert copies_survive(copysets, domain(Scope.NODE)) == Survival(2, ("N0", "N1", "N3"))
    assert copies_survive([*copysets, ()], domain(Scope.NODE)) == Survival(-1)
    assert copies_survive([], domain(Scope.NODE)) is None


@pytest.mark.parametrize(
    ("survived", "words"),
    [
        ({"region": Survival(1), "rack": Survival(1), "node": Survival(2)}, "any one region, or any two nodes"),
        ({"region": Survival(0), "node": Survival(2, is_exact=False)}, "any two nodes or more"),
        ({"region": Survival(-1), "node": Survival(0)}, ""),
        ({"node": Survival(12)}, "any 12 nodes"),
    ],
)
def test_what_is_survived_in_words(survived: dict[str, Survival], words: str) -> None:
    assert in_words(survived) == words
