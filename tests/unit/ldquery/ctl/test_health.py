"""What ``ldctl status`` makes of what nodes say, and how it ends."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from client.cli.program import EXIT_DATA_LOSS, EXIT_OK, EXIT_UNANSWERED, EXIT_UNHEALTHY
from ldquery.ctl.health import ASKED, Found, Health, ask_in_turn, judge, look_twice
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId
from tests.simulation.cluster_plan import ClusterPlan, NodePlan

ROLES = ["sequencer", "storage"]
CONFIG = load_cluster(ClusterPlan("node:2", 3, {}, {node: NodePlan(ROLES, node) for node in range(3)}).render())
TABLES = ("info", "cluster_state", "sequencers", "shards", "waits", "shard_rebuildings", "under_replicated_logs")


class Cluster:
    """Tables of three nodes that are well, to be changed."""

    def __init__(self) -> None:
        self.found: dict[str, Found] = {name: {NodeId(node): [] for node in range(3)} for name in TABLES}
        self.silent: dict[NodeId, str] = {}
        for node in range(3):
            info = {
                "readiness": "OK",
                "config_version": CONFIG.version,
                "uptime_seconds": 5.0,
                "copies_reviewed": 1,
                "logs_leaving_departed_shards": 0,
            }
            self.add("info", node, **info)
            self.add(
                "shards",
                node,
                shard=0,
                generation=1,
                status="OK",
                no_space=0,
                accepting_writes=1,
                damaged_ranges=0,
                metadata_awaited=None,
                stored_bytes=2000,
            )
            for other in range(3):
                self.add("cluster_state", node, observed_node_id=other, state="ALIVE", generations="1")

    def add(self, table: str, node: int, **cells: Any) -> None:
        self.found[table][NodeId(node)].append({"node_id": node, **cells})

    def set(self, table: str, node: int, **cells: Any) -> None:
        for row in self.found[table][NodeId(node)]:
            row.update(cells)

    def wipe(self, node: int) -> None:
        """It began anew, and everybody knows."""
        self.set("shards", node, generation=2)
        for rows in self.found["cluster_state"].values():
            rows[node]["generations"] = "2"

    def is_short(self, log: int, lost: str, *, state: str = "SHORT", first: int | None = (1 << 32) + 5) -> None:
        row = {"shard": 0, "log_id": log, "state": state, "since_epoch": 1, "until_epoch": 1, "first_lsn": first}
        self.add("under_replicated_logs", 0, **row, lost_shards=lost)

    def judged(self, *, rebuilding: bool = False) -> Health:
        config = dataclasses.replace(CONFIG, settings={"rebuilding": {"enabled": rebuilding}})
        return judge(config, self.found, self.silent)


def test_a_cluster_that_is_well() -> None:
    health = Cluster().judged()
    assert (health.told(), health.notes, health.exit_status) == ([], [], EXIT_OK)
    assert [row["shards"] for row in health.rows] == [["S0 OK 2.0 kB"]] * 3


@pytest.mark.parametrize("rebuilding", [False, True])
def test_a_wiped_node_and_what_is_short_of_its_copies_are_told(rebuilding: bool) -> None:
    cluster = Cluster()
    cluster.wipe(1)
    cluster.is_short(7, "N1:S0=1", first=(1 << 32) + 9)
    cluster.is_short(7, "N1:S0=1")
    cluster.is_short(8, "N1:S0=1")
    health = cluster.judged(rebuilding=rebuilding)
    [text] = health.told()
    assert text.startswith(
        "N1: S0 began anew, empty; the copies that its generation 1 held are missing in log 7 from e1n5 on, log 8 from e1n5 on; rebuilding is "
    )
    assert ("stores them again" if rebuilding else "enabled = false is taken out of [settings.rebuilding]") in text
    assert health.rows[1]["shards"] == ["S0 OK 2.0 kB generation 2"]
    assert health.exit_status == EXIT_UNHEALTHY


def test_the_summary_counts_logs_and_names_shards() -> None:
    cluster = Cluster()
    none = "short of copies: 0 logs; records may be gone: 0 logs; generations above 1: none; rebuildings: none; drains: none"
    assert cluster.judged().summary() == none
    cluster.silent = {NodeId(0): "CONNFAILED", NodeId(1): "CONNFAILED"}
    assert cluster.judged().summary() == none, "the others know"
    cluster.silent[NodeId(2)] = "CONNFAILED"
    assert cluster.judged().summary().startswith("not known, as no node answers: ")
    assert cluster.judged().exit_status == EXIT_UNANSWERED
    cluster.silent.clear()
    cluster.wipe(1)
    cluster.is_short(7, "N1:S0=1")
    cluster.is_short(7, "N1:S0=1")
    cluster.is_short(8, "N1:S0=1, N2:S0=1", state="GONE", first=None)
    for shard, mode in (("N1:S0", "RESTORE"), ("N2:S0", "RELOCATE")):
        row = {"mode": mode, "status": "rebuilding", "authoritative_status": "UNDERREPLICATION", "donors_left": ""}
        cluster.add("shard_rebuildings", 0, rebuilding_shard=shard, version=5, **row)
    assert cluster.judged().summary() == (
        "short of copies: 1 logs; records may be gone: 1 logs; generations above 1: N1:S0 (2); rebuildings: N1:S0; drains: N2:S0"
    )


def test_a_later_generation_alone_is_no_trouble() -> None:
    cluster = Cluster()
    cluster.wipe(1)
    assert (cluster.judged().told(), cluster.judged().exit_status) == ([], EXIT_OK)


@pytest.mark.parametrize("reviewed", [0, 1])
def test_nobody_says_that_nothing_is_missing_before_he_has_looked(reviewed: int) -> None:
    cluster = Cluster()
    cluster.wipe(1)
    cluster.set("info", 2, copies_reviewed=reviewed)
    if reviewed:  # before it heard of the new generation
        cluster.found["cluster_state"][NodeId(2)][1]["generations"] = "1"
    health = cluster.judged()
    assert health.told() == ["N2: it has not looked through its logs yet for copies that lost shards held"]
    assert (health.passing, health.exit_status) == (1, EXIT_UNHEALTHY)


def test_a_node_that_just_started_does_not_know_yet_whether_anything_is_missing() -> None:
    cluster = Cluster()
    cluster.set("info", 2, copies_reviewed=0)
    health = cluster.judged()
    assert health.told() == ["N2: it has not looked through its logs yet for copies that lost shards held"]
    assert (health.passing, health.exit_status) == (1, EXIT_UNHEALTHY)


class Nodes:
    """Answers from what a cluster says."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.asked: list[str] = []

    async def ask_each(self, table: Any, nodes: Sequence[NodeId], *_: Any) -> tuple[list[tuple[Any, ...]], list[Any]]:
        self.asked.append(table.name)
        rows = [row for node in nodes for row in self.cluster.found[table.name][node]]
        await asyncio.sleep(0)  # others are asked meanwhile
        names = ("node_id", *(column.name for column in table.columns))
        return [tuple(row.get(name) for name in dict.fromkeys(names)) for row in rows], []


async def test_nodes_say_what_is_short_after_they_said_that_they_looked_and_that_after_what_they_heard() -> None:
    cluster = Cluster()
    nodes: Any = Nodes(cluster)
    found, silent = await ask_in_turn(nodes, [NodeId(node) for node in range(3)], ASKED, 1.0)
    assert (set(found), silent) == (set(TABLES), {})
    assert len(found["shards"]) == 3
    order = [nodes.asked.index(name) for name in ("shards", "cluster_state", "info", "under_replicated_logs")]
    assert order == sorted(order)
    assert nodes.asked[-3:] == ["cluster_state", "info", "under_replicated_logs"]


def test_logs_that_rely_on_shards_that_left_are_told_of_as_long_as_they_do() -> None:
    cluster = Cluster()
    cluster.set("info", 1, logs_leaving_departed_shards=3)
    health = cluster.judged()
    assert health.told() == [
        "N1: 3 logs are on their way to epochs without shards that departed: remove no further node before that is done"
    ]
    assert (health.passing, health.exit_status) == (1, EXIT_UNHEALTHY)


def test_records_without_a_copy_are_worse_than_nodes_that_do_not_answer() -> None:
    cluster = Cluster()
    cluster.is_short(7, "N1:S0=1, N2:S0=1", state="GONE", first=None)
    cluster.silent[NodeId(0)] = "CONNFAILED: Connection refused"
    health = cluster.judged()
    assert health.told()[-1].startswith("log 7: records may have no copy left")
    assert health.exit_status == EXIT_DATA_LOSS


def test_a_silent_node_and_a_node_that_is_ill() -> None:
    cluster = Cluster()
    cluster.set("shards", 1, status="FAILED")
    assert cluster.judged().exit_status == EXIT_UNHEALTHY
    cluster.silent[NodeId(0)] = "CONNFAILED: Connection refused"
    assert cluster.judged().exit_status == EXIT_UNANSWERED


def test_a_shard_that_left_the_cluster_file_is_told_beside_the_nodes() -> None:
    cluster = Cluster()
    cluster.is_short(7, "N9:S0=1")
    health = cluster.judged()
    [text] = health.elsewhere
    assert health.told() == [text]
    assert text.startswith("N9:S0 left the cluster file; the copies that its generation 1 held are missing in log 7")


def test_a_drain_that_was_asked_for_is_a_note_and_a_loss_is_none() -> None:
    row = {"authoritative_status": "FULLY_AUTHORITATIVE", "version": 5, "donors_left": "N0:S0", "status": "rebuilding"}
    cluster = Cluster()
    cluster.add("shard_rebuildings", 0, rebuilding_shard="N2:S0", mode="RELOCATE", **row)
    health = cluster.judged()
    assert (health.notes, health.told()) == (["N2:S0 is being drained; waits for N0:S0"], [])
    assert health.exit_status == EXIT_OK
    cluster.add("shard_rebuildings", 0, rebuilding_shard="N1:S0", mode="RESTORE", **row)
    assert cluster.judged().told() == ["N1: S0 is lost and being rebuilt; waits for N0:S0"]
    assert cluster.judged().exit_status == EXIT_UNHEALTHY


def test_a_loss_that_nobody_can_make_up_for_is_said_with_what_would_help() -> None:
    row = {"authoritative_status": "FULLY_AUTHORITATIVE", "version": 5, "donors_left": "", "status": "unplaced"}
    cluster = Cluster()
    cluster.add("shard_rebuildings", 0, rebuilding_shard="N1:S0", mode="RESTORE", **row)
    cluster.add("shard_rebuildings", 0, rebuilding_shard="N2:S0", mode="RESTORE", **row)
    [text] = cluster.judged().elsewhere
    assert text.endswith(
        '"node:2" cannot be restored without N1:S0, N2:S0: 2 nodes are needed and 1 is left. Bring the node back, add a storage node, or lower replicate'
    )


def test_waits_may_pass_and_quiet_ones_are_not_told() -> None:
    cluster = Cluster()
    cluster.add("waits", 0, kind="APPEND", cause="TAIL")
    assert cluster.judged().exit_status == EXIT_OK
    cluster.add("waits", 0, kind="APPEND", cause="NODE_DEAD")
    health = cluster.judged()
    assert health.told() == ["N0: APPEND waits for NODE_DEAD (1 row in table waits of ldquery)"]
    assert (health.passing, health.exit_status) == (1, EXIT_UNHEALTHY)


class Following(Nodes):
    """A reader waits for the release of an entry at each look: of the next one each time, or of the same."""

    def __init__(self, lsns: Iterable[int]) -> None:
        super().__init__(Cluster())
        self.lsns = iter(lsns)

    async def ask_each(self, table: Any, nodes: Sequence[NodeId], *_: Any) -> tuple[list[tuple[Any, ...]], list[Any]]:
        if table.name == "waits":
            self.cluster.found["waits"][NodeId(0)].clear()
            self.cluster.add("waits", 0, shard=0, log_id=3, kind="READ", cause="RELEASE", lsn=next(self.lsns))
        return await super().ask_each(table, nodes)


async def test_who_follows_a_log_that_is_written_to_waits_for_nothing_and_who_stalls_does() -> None:
    nodes = [NodeId(node) for node in range(3)]
    following: Any = Following(range(100))
    assert (await look_twice(CONFIG, following, nodes, 0.0)).exit_status == EXIT_OK
    standing: Any = Following([7, 7])
    health = await look_twice(CONFIG, standing, nodes, 0.0)
    assert health.told() == ["N0: READ waits for RELEASE (1 row in table waits of ldquery)"]


def test_an_uncertain_end_of_which_no_log_misses_anything_is_a_note() -> None:
    """Disks were replaced over the years, before the cluster rebuilt: what they held is trimmed."""
    cluster = Cluster()
    row = {"mode": "RESTORE", "status": "uncertain", "authoritative_status": "UNDERREPLICATION", "donors_left": ""}
    for shard in ("N1:S0", "N2:S0"):
        cluster.add("shard_rebuildings", 0, rebuilding_shard=shard, version=5, **row)
    health = cluster.judged(rebuilding=True)
    assert (health.told(), health.exit_status) == ([], EXIT_OK)
    assert all(note.endswith("there is nothing to do") for note in health.notes)
    cluster.set("info", 2, copies_reviewed=0)
    assert len(cluster.judged(rebuilding=True).rebuilding) == 2, "not all nodes have looked"
    cluster.set("info", 2, copies_reviewed=1)
    cluster.is_short(7, "N1:S0=1, N2:S0=1", state="GONE", first=None)
    health = cluster.judged(rebuilding=True)
    assert (health.rebuilding, health.exit_status) == ({"N1:S0", "N2:S0"}, EXIT_DATA_LOSS)


def test_what_shards_that_are_gone_wait_for_is_a_note_beside_the_node_that_is_gone() -> None:
    cluster = Cluster()
    for observer in (0, 1):
        cluster.found["cluster_state"][NodeId(observer)][2]["state"] = "DEAD"
    cluster.found["cluster_state"][NodeId(2)] = []
    cluster.silent[NodeId(2)] = "CONNFAILED: Connection refused"
    cluster.set("info", 0, rebuilding_awaits="N2:S0: gone, and taken for lost when that has lasted for 1200 s")
    health = cluster.judged(rebuilding=True)
    assert health.notes == ["N2:S0: gone, and taken for lost when that has lasted for 1200 s"]
    assert health.told() == ["N2: it does not answer: CONNFAILED: Connection refused"]
    health = cluster.judged(rebuilding=False)
    assert health.notes == ["N2:S0: gone, and nobody re-replicates what was held there, as rebuilding is off"]


def test_copies_that_have_no_place_are_told_of_before_anybody_is_taken_for_lost() -> None:
    cluster = Cluster()
    for observer in (0, 1):
        cluster.found["cluster_state"][NodeId(observer)][2]["state"] = "DEAD"
    cluster.found["cluster_state"][NodeId(2)] = []
    cluster.set("shards", 1, status="FAILED")
    [text] = cluster.judged(rebuilding=True).elsewhere
    assert '"node:2" cannot be restored without N1:S0, N2:S0: 2 nodes are needed and 1 is left' in text


@pytest.mark.parametrize(("generation", "notes"), [(1, 1), (2, 0)])
def test_a_node_that_is_gone_and_rebuilt_is_to_be_taken_out(generation: int, notes: int) -> None:
    cluster = Cluster()
    for observer in (0, 1):
        state = cluster.found["cluster_state"][NodeId(observer)][2]
        state["state"], state["generations"] = "DEAD", str(generation)
    cluster.found["cluster_state"][NodeId(2)] = cluster.found["info"][NodeId(2)] = []
    cluster.silent[NodeId(2)] = "CONNFAILED: Connection refused"
    row = {"mode": "RESTORE", "status": "rebuilt", "authoritative_status": "AUTHORITATIVE_EMPTY", "donors_left": ""}
    cluster.add("shard_rebuildings", 0, rebuilding_shard="N2:S0", generation=1, version=5, **row)
    found = cluster.judged(rebuilding=True).notes
    assert len(found) == notes, "what it took in a later generation nobody made up for"
    assert all(text.startswith("N2: gone, and others have what was held there") for text in found)
    cluster.set("shard_rebuildings", 0, status="rebuilding")
    assert not any("take it out" in text for text in cluster.judged(rebuilding=True).notes)
