from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from logdevice_py.config.cluster import ClusterConfig, Roles
from logdevice_py.config.location import Areas
from logdevice_py.core.ids import LogId, NodeId, metadata_log_of
from logdevice_py.placement.sequencer_locator import locate_sequencer
from tests.unit.logdevice_py.placement.clusters import cluster

LOGS = [LogId(log) for log in range(1, 10_001)]


def located(config: ClusterConfig, dead: tuple[int, ...] = ()) -> dict[LogId, NodeId]:
    nodes = {log: locate_sequencer(log, config, lambda node: node not in dead) for log in LOGS}
    return {log: node for log, node in nodes.items() if node is not None}


def test_the_answer_is_the_same_in_every_process() -> None:
    config = cluster([""] * 7)
    assert [locate_sequencer(LogId(log), config, lambda _: True) for log in range(1, 9)] == [3, 0, 4, 3, 3, 5, 1, 5]


def test_logs_are_spread_evenly() -> None:
    counts = Counter(located(cluster([""] * 10)).values())
    assert all(count == pytest.approx(1000, rel=0.12) for count in counts.values())


def test_logs_are_spread_by_weight() -> None:
    weights: Mapping[int, Mapping[str, Any]] = {
        0: {"sequencer_weight": 4.0},
        1: {"sequencer_weight": 2.0},
        2: {"sequencer_weight": 0.0},
        3: {"sequencer_weight": 2.0},
        4: {"roles": Roles.STORAGE},
    }
    counts = Counter(located(cluster([""] * 5, nodes=weights)).values())
    assert set(counts) == {0, 1, 3}
    assert counts[NodeId(0)] == pytest.approx(5000, rel=0.07)
    assert counts[NodeId(1)] == pytest.approx(2500, rel=0.07)


def test_only_the_logs_of_a_dead_node_move_and_they_spread_over_the_others() -> None:
    config = cluster([""] * 8, nodes={0: {"sequencer_weight": 2.0}})
    for dead in (0, 5):
        before, after = located(config), located(config, dead=(dead,))
        moved = Counter(after[log] for log in LOGS if before[log] != after[log])
        assert all(before[log] == dead for log in LOGS if before[log] != after[log])
        assert len(moved) == 7
        assert sum(moved.values()) == Counter(before.values())[NodeId(dead)]


def test_a_node_more_takes_its_share_and_moves_nothing_else() -> None:
    before, after = located(cluster([""] * 8)), located(cluster([""] * 9))
    moved = [log for log in LOGS if before[log] != after[log]]
    assert len(moved) == pytest.approx(10_000 / 9, rel=0.12)
    assert all(after[log] == 8 for log in moved)


def test_nobody_is_found_when_nobody_may() -> None:
    assert locate_sequencer(LogId(1), cluster([""] * 3), lambda _: False) is None
    assert locate_sequencer(LogId(1), cluster([""], nodes={0: {"roles": Roles.STORAGE}}), lambda _: True) is None


def test_a_few_living_nodes_among_thousands_of_indices_are_found_and_share_evenly() -> None:
    counts = Counter(located(cluster({3: "", 9_000: "", 20_000: ""})).values())
    assert all(count == pytest.approx(3333, rel=0.1) for count in counts.values())


def test_a_metadata_log_is_sequenced_with_its_data_log() -> None:
    config = cluster([""] * 9)
    for log in LOGS[:100]:
        assert locate_sequencer(metadata_log_of(log), config, lambda _: True) == locate_sequencer(
            log, config, lambda _: True
        )


class TestAffinity:
    def test_logs_stay_within_their_area_while_any_node_there_can(self) -> None:
        places = ["eu.d.c.r.1", "us.d.c.r.1", "eu.d.c.r.2", "us.d.c.r.2"]
        config = cluster(places, sequencer_affinity=Areas.parse("eu...."))
        assert set(located(config).values()) == {0, 2}
        assert set(located(config, dead=(0,)).values()) == {2}

    def test_without_a_node_there_all_others_share(self) -> None:
        config = cluster(["a", "b", "c"], sequencer_affinity=Areas.parse("a"))
        assert set(located(config, dead=(0,)).values()) == {1, 2}


def test_the_places_of_an_affinity_are_tried_in_order() -> None:
    places = ["eu.d.c.r.1", "us.d.c.r.1", "ap.d.c.r.1", "us.d.c.r.2", "eu.d.c.r.2"]
    config = cluster(places, sequencer_affinity=Areas.parse("us...., eu...."))
    assert set(located(config).values()) == {1, 3}
    assert set(located(config, dead=(1,)).values()) == {3}
    assert set(located(config, dead=(1, 3)).values()) == {0, 4}
    assert set(located(config, dead=(0, 1, 3, 4)).values()) == {2}
