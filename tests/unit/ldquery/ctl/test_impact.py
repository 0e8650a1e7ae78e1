"""What ``ldctl check-impact`` makes of what nodes say."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from client.log_tree.commands import MakeLogGroup, Remove
from client.log_tree.view import LogTreeView
from client.node_tables import NodeFailure
from ldquery.ctl.impact import (
    METADATA_LOGS,
    ShardsKnown,
    Survey,
    going_shards,
    impact_on,
    is_cramped,
    is_trimmed,
    placed_epochs,
    report,
    survey,
)
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import (
    EVENT_LOG_DELTAS,
    EVENT_LOG_SNAPSHOTS,
    INTERNAL_LOGS,
    TREE_LOG_ID_MIN,
    LogId,
    NodeId,
    shard_id,
)
from logdevice_py.core.lsn import ESN_MAX, Epoch, Lsn, compose_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.placement.impact import Loss, PlacedEpochs, ShardsNow
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.declare import TableDeclaration
from tests.simulation.cluster_plan import ClusterPlan, NodePlan
from tests.unit.client.log_tree.trees import Commands

ROLES = ["sequencer", "storage"]
CONFIG = load_cluster(ClusterPlan("node:2", 4, {}, {node: NodePlan(ROLES, node) for node in range(4)}).render())
S = [shard_id(NodeId(node)) for node in range(5)]


def shards(**changed: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of table `shards`; `N1={...}` changes one."""
    rows = []
    for node in range(4):
        row = {"node_id": node, "shard": 0, "generation": 1, "status": "OK", "no_space": 0, "accepting_writes": 1}
        rows.append({**row, "metadata_awaited": None, **changed.get(f"N{node}", {})})
    return rows


def event(shard: str, mode: str, status: str, *, generation: int = 1, recoverable: int = 1, version: int = 5) -> Any:
    told = {"rebuilding_shard": shard, "generation": generation, "mode": mode, "status": status}
    return {**told, "recoverable": recoverable, "version": version}


def interval(since: int, epoch: int, storage_set: str, domains: str | None = "") -> dict[str, Any]:
    return {
        "since": since,
        "epoch": epoch,
        "replication": "node:2",
        "storage_set": storage_set,
        "failure_domains": domains,
    }


def placed(history: list[Any], *, lce: int | None = 0, copies: Any = None, known: ShardsKnown | None = None) -> Any:
    return placed_epochs(CONFIG, known or ShardsKnown(CONFIG, shards(), []), history, lce, copies)


def test_epochs_follow_from_the_rows_of_a_log() -> None:
    old, current = placed([interval(5, 6, "N1:S0=1, N2:S0=1"), interval(1, 4, "N0:S0=1, N1:S0=1")], lce=4)
    assert (old.since, old.until, old.shards, old.is_current, old.is_open) == (1, 4, (S[0], S[1]), False, False)
    assert (current.since, current.is_current, current.is_open, current.copysets) == (5, True, True, None)
    assert placed([{"since": None, "epoch": None}]) == []


def test_earlier_epochs_count_until_all_their_shards_have_trimmed_them() -> None:
    narrow, wide, current = placed(
        [
            interval(1, 4, "N0:S0=1, N1:S0=1"),
            interval(5, 6, "N0:S0=1, N1:S0=1, N2:S0=1"),
            interval(7, 8, "N0:S0=1, N1:S0=1"),
        ]
    )
    assert [is_cramped(each) for each in (narrow, wide, current)] == [True, False, False]
    last = compose_lsn(Epoch(4), ESN_MAX)
    assert is_trimmed(narrow, {S[0]: last, S[1]: Lsn(last + 1)})
    assert not is_trimmed(narrow, {S[0]: last}), "retention trims one shard alone"
    assert not is_trimmed(narrow, {S[0]: last, S[1]: Lsn(last - 1)})
    later = compose_lsn(Epoch(9), ESN_MAX)
    assert not is_trimmed(current, {S[0]: later, S[1]: later}), "appends go there"


@pytest.mark.parametrize(
    ("known", "what"),
    [
        (ShardsKnown(CONFIG, shards()[:1], []), "away unwritable"),
        (ShardsKnown(CONFIG, shards(N1={"status": "FAILED"}), []), "away"),
        (ShardsKnown(CONFIG, shards(N1={"generation": 2}), []), "lost"),
        (
            ShardsKnown(CONFIG, shards(N1={"generation": 2}), [event("N1:S0", "RESTORE", "rebuilt")]),
            "emptied unwritable",
        ),
        (ShardsKnown(CONFIG, shards(), [event("N1:S0", "RELOCATE", "rebuilt")]), "emptied unwritable"),
        (ShardsKnown(CONFIG, shards(), [event("N1:S0", "RELOCATE", "rebuilding")]), "unwritable"),
        (ShardsKnown(CONFIG, shards(), [event("N1:S0", "RESTORE", "unplaced", recoverable=0)]), "lost unwritable"),
        (
            ShardsKnown(CONFIG, shards(), [event("N1:S0", "RESTORE", "rebuilt"), event("N2:S0", "X", "y", version=6)]),
            "",
        ),
        (ShardsKnown(CONFIG, shards(N1={"no_space": 1}), []), "unwritable"),
        (ShardsKnown(CONFIG, shards(), []), ""),
    ],
)
def test_what_is_known_of_a_shard(known: ShardsKnown, what: str) -> None:
    now = known.of([(S[1], 1)])
    states = {"away": now.away, "lost": now.lost, "emptied": now.emptied, "unwritable": now.unwritable}
    assert " ".join(name for name, members in states.items() if S[1] in members) == what


@pytest.mark.parametrize("status", ["rebuilding", "rebuilt", "unplaced"])
def test_a_shard_that_began_anew_is_used_whatever_became_of_what_it_held_before(status: str) -> None:
    rows = [event("N1:S0", "RESTORE", status, recoverable=0)]
    known = ShardsKnown(CONFIG, shards(N1={"generation": 2}), rows)
    assert known.of([(S[1], 2)]) == ShardsNow(), "epochs that list its generation of now"
    assert known.of_metadata_logs() == ShardsNow(), "it has got back what it held of them"
    assert known.rebuildings == {}
    assert ShardsKnown(CONFIG, shards(), rows).rebuildings == {S[1]: rows[0]}, "it has not begun anew yet"
    assert ShardsKnown(CONFIG, [], rows).rebuildings == {S[1]: rows[0]}, "as far as anybody knows"


def test_a_shard_that_left_the_cluster_file_is_lost_and_one_without_its_metadata_logs_for_these_alone() -> None:
    known = ShardsKnown(CONFIG, shards(N1={"metadata_awaited": "N0:S0"}), [])
    assert known.of([(S[4], 1)]).lost == {S[4]}
    assert known.of([(S[1], 1)]).lost == frozenset()
    assert known.of_metadata_logs().lost == {S[1]}


def test_copies_count_where_most_of_a_copyset_is() -> None:
    def row(node: int, copyset: str, entries: int) -> dict[str, Any]:
        return {"node_id": node, "shard": 0, "copyset": copyset, "entries": entries, "lsn": compose_lsn(Epoch(1), 1)}

    copies = [
        row(0, "N0:S0, N1:S0", 5),
        row(1, "N0:S0, N1:S0", 4),
        row(1, "N1:S0, N2:S0", 1),
        row(2, "N1:S0, N2:S0", 1),
    ]
    [epochs] = placed([interval(1, 3, "N0:S0=1, N1:S0=1, N2:S0=1")], copies=copies)
    assert epochs.copysets == {frozenset({S[0]}), frozenset({S[1], S[2]})}
    elsewhere = [{**each, "lsn": compose_lsn(Epoch(9), 1)} for each in copies]
    first, second = placed([interval(1, 3, "N0:S0=1, N1:S0=1"), interval(4, 9, "N0:S0=1, N1:S0=1")], copies=elsewhere)
    assert (first.copysets, len(second.copysets)) == (frozenset(), 2)


def found(*, silent: dict[NodeId, str] | None = None, unknown: list[str] | None = None) -> Survey:
    def epochs(*members: int) -> list[PlacedEpochs]:
        made: list[PlacedEpochs] = placed([interval(1, 1, ", ".join(f"N{node}:S0=1" for node in members))])
        return made

    logs = {METADATA_LOGS: epochs(0, 1, 2, 3), "/a": epochs(0, 1, 2), "/b": epochs(1, 2, 3)}
    return Survey(logs, frozenset(map(NodeId, range(4))), silent or {}, unknown or [])


def told(*names: str, one_by_one: bool = False, **survey: Any) -> dict[str, Any]:
    return report(CONFIG, found(**survey), going_shards(CONFIG, names), one_by_one=one_by_one)


def test_the_report_names_logs_reasons_and_what_would_be_safe() -> None:
    assert told("N1")["safe"]
    assert told("N1")["losses"] == told("N1")["advice"] == told("N1")["before"] == []
    unsafe = told("N0", "N3:S0")
    assert not unsafe["safe"]
    assert [(row["loses"], row["which"]) for row in unsafe["losses"]] == [
        ("DATA", METADATA_LOGS),
        ("READS", METADATA_LOGS),
        ("RECOVERY", METADATA_LOGS),
    ]
    assert unsafe["losses"][0]["means"] == Loss.DATA.value
    assert unsafe["advice"] == [
        "one after the other is safe: take the next one when the one before is back and ldctl status is well"
    ]
    assert told("N0", "N1", "N2", "N3", one_by_one=True)["safe"]
    assert {each.log for each in impact_on(found(), [S[1], S[2]])} == {METADATA_LOGS, "/a", "/b"}


def test_who_is_only_missing_where_copies_would_be_restored_may_be_started_again() -> None:
    known = ShardsKnown(CONFIG, shards(N1={"generation": 2}), [event("N1:S0", "RESTORE", "rebuilt", recoverable=0)])
    history = [interval(1, 1, "N0:S0=1, N1:S0=1, N2:S0=1"), interval(2, 2, "N0:S0=1, N1:S0=2, N2:S0=1")]
    seen = Survey({METADATA_LOGS: [], "/a": placed(history, known=known)}, frozenset(map(NodeId, range(4))), {}, [])
    told = report(CONFIG, seen, going_shards(CONFIG, ["N0"]), one_by_one=False)
    assert [row["loses"] for row in told["losses"]] == ["REBUILDING"]
    assert told["advice"][0].startswith("a restart does no harm")
    assert "ldctl maintenance apply N0 --may-disappear --for 10min" in told["advice"][0]


def test_what_nobody_tells_is_not_safe() -> None:
    assert not told("N1", unknown=["/c"])["safe"]
    assert "bring it back first" in told("N1", silent={NodeId(3): "CONNFAILED"})["advice"][0]
    assert not told("N3", silent={NodeId(3): "CONNFAILED"})["advice"], "it goes, and need not come back for that"
    everybody = told("N0", "N1", "N2", "N3")
    assert everybody["advice"][0] == "no node with the role sequencer would be left: nothing is appended then"


def test_too_little_room_for_copies_is_said_of_who_is_away_for_long() -> None:
    config = dataclasses.replace(CONFIG, settings={"rebuilding": {"enabled": True}})

    def said(*names: str, one_by_one: bool = False, config: ClusterConfig = config, **changed: Any) -> list[str]:
        survey = found()
        usual: dict[str, Any] = {"stored_bytes": 6 * 10**9, "spare_bytes": 2 * 10**9}
        rows = [{**row, **usual, **changed.get(f"N{row['node_id']}", {})} for row in shards()]
        survey.shards = {S[row["node_id"]]: row for row in rows}
        survey.rebuildings = {S[2]: event("N2:S0", "RELOCATE", "rebuilt")} if changed.get("drained") else {}
        told = report(config, survey, going_shards(config, names), one_by_one=one_by_one)
        return [line for line in told["advice"] if "room" in line]

    assert said("N1") == []
    assert said("N1", N3={"no_space": 1}) == [
        "N1: away for longer than 20min, 6.0 GB are to be stored elsewhere, and the other shards have room for 4.0 GB: "
        "bring it back before, or trim or add space first"
    ]
    assert "12.0 GB are to be stored elsewhere, and the other shards have room for 4.0 GB" in said("N0", "N1")[0]
    assert said("N0", "N1", one_by_one=True) == []
    assert said("N2", drained=True, N3={"no_space": 1}) == [], "it is empty"
    assert "room for 4.0 GB" in said("N1", drained=True)[0], "who is drained takes nothing"
    assert said("N1", config=CONFIG, N3={"no_space": 1}) == [], "without rebuilding nobody stores them elsewhere"
    assert said("N1", N3={"spare_bytes": None}) == [], "an earlier version does not tell"


@pytest.mark.parametrize("name", ["N9", "N1:S7", "3", "N1:", "rack1"])
def test_who_does_not_exist_cannot_go(name: str) -> None:
    with pytest.raises(LogDeviceError, match=r"N3:S0|no such node or shard"):
        going_shards(CONFIG, [name])


# Which logs there are


class Nodes:
    """Four nodes: which of them have read the log tree, what a node that answers tells of all logs, and what is to be had when a log is named."""

    def __init__(self, told: Sequence[int], by_name: Sequence[int] = (), *, readers: Sequence[int] = ()) -> None:
        self.told = list(told)
        self.by_name = list(by_name)
        self.readers = readers
        self.keepers = list(range(4))
        """Those that keep the event log; others are of an earlier version."""
        self.named: list[int] = []

    async def ask_each(
        self, table: TableDeclaration, nodes: Sequence[NodeId], *_: Any
    ) -> tuple[list[Any], list[NodeFailure]]:
        if table.name == "shards":
            return [rendered(table, **row) for row in shards()], []
        if table.name == "info":
            return [
                rendered(table, node_id=node, keeps_event_log=1 if node in self.keepers else None) for node in nodes
            ], []
        if table.name == "log_tree_replicas":
            return [rendered(table, node_id=node, is_known=int(node in self.readers)) for node in nodes], []
        return [], []

    async def ask_any(
        self, table: TableDeclaration, nodes: Sequence[NodeId], constraints: Constraints, *_: Any
    ) -> tuple[list[Any], list[NodeFailure]]:
        log = constraints.log_id
        if log is not None and table.name == "historical_metadata":
            self.named.append(log)
        logs = self.told if log is None else [log] if log in self.by_name else []
        row = {**interval(1, 1, "N0:S0=1, N1:S0=1"), "status": "OK"}
        return [
            rendered(table, log_id=each, **(row if table.name == "historical_metadata" else {})) for each in logs
        ], []


def rendered(table: TableDeclaration, **cells: Any) -> list[Any]:
    return [cells.get(column.name) for column in table.columns]


def with_tree(*paths: str, is_known: bool = True) -> tuple[ClusterConfig, Commands]:
    """The cluster of someone who follows the log tree, in which there are groups of one log each."""
    tree, view = Commands(), LogTreeView()
    for path in paths:
        tree.make(MakeLogGroup(path))
    view.take(tree.state, is_known=is_known)
    return replace(CONFIG, settings={"log_tree": {"enabled": True}}, run_time_logs=view), tree


async def surveyed(config: ClusterConfig, nodes: Any) -> Survey:
    return await survey(config, nodes, 1.0)


OF_FILE = list(CONFIG.log_ids())
FIRST, SECOND = LogId(TREE_LOG_ID_MIN), LogId(TREE_LOG_ID_MIN + 1)


def internal(config: ClusterConfig) -> list[LogId]:
    return [log for log in INTERNAL_LOGS if config.log(log) is not None]


async def test_a_log_that_a_node_leaves_out_is_asked_for_by_its_id() -> None:
    config, _ = with_tree("/a", "/b")
    nodes = Nodes([*OF_FILE, FIRST], [*internal(config), SECOND])
    found = await surveyed(config, nodes)
    assert {"/a", "/b"} <= set(found.logs)
    assert found.unknown == []
    assert set(nodes.named) == {*internal(config), SECOND}


async def test_a_log_of_which_no_node_tells_anything_is_not_safe() -> None:
    config, tree = with_tree("/a", "/b")
    found = await surveyed(config, Nodes([*OF_FILE, FIRST], internal(config)))
    assert found.unknown == ["/b"]
    assert not report(config, found, going_shards(config, ["N3"]), one_by_one=False)["safe"]
    tree.apply(Remove("/b"))
    assert (await surveyed(config, Nodes([*OF_FILE, FIRST], internal(config)))).unknown == []


async def test_who_has_not_read_the_log_tree_goes_by_nodes_that_all_have() -> None:
    config, _ = with_tree(is_known=False)
    told = [*OF_FILE, FIRST]
    found = await surveyed(config, Nodes(told, internal(config), readers=range(4)))
    assert config.log_name(FIRST) in found.logs
    with pytest.raises(LogDeviceError, match="not read here, nor by N3") as refused:
        await surveyed(config, Nodes(told, internal(config), readers=range(3)))
    assert refused.value.status is Status.AGAIN


async def test_nobody_needs_the_nodesets_of_the_event_log_before_all_nodes_keep_it() -> None:
    config = replace(CONFIG, settings={})
    nodes = Nodes(OF_FILE)
    events = [str(log) for log in (EVENT_LOG_DELTAS, EVENT_LOG_SNAPSHOTS)]
    assert [name.rpartition("/")[2] for name in (await surveyed(config, nodes)).unknown] == events
    nodes.keepers.remove(2)
    assert (await surveyed(config, nodes)).unknown == []
    asked = replace(CONFIG, settings={"rebuilding": {"enabled": True}})
    assert len((await surveyed(asked, nodes)).unknown) == 2, "nodes of any version keep it"
