"""What ``ldctl doctor`` finds."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from client.maintenance import commands as maintenance
from client.maintenance.state import MaintenancesState
from client.replica.commands import StateVersion
from ldquery.ctl.doctor import DoctorFinding, NodeAnswers, NodeClock, examine, lines_of
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId, ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import SECOND, Timestamp
from tests.simulation.cluster_plan import ClusterPlan, NodePlan

BOTH = ["sequencer", "storage"]


def cluster(replicate: str = "node:2", nodes: int = 4, roles: list[str] = BOTH) -> ClusterConfig:
    plan = {node: NodePlan(BOTH if node == 0 else roles, node) for node in range(nodes)}
    config = load_cluster(ClusterPlan(replicate, nodes, {}, plan).render())
    return dataclasses.replace(config, settings={"rebuilding": {"enabled": True}})


def info(node: int, **changed: Any) -> dict[str, Any]:
    return {
        "node_id": node,
        "version": "1",
        "config_version": 1,
        "protocol_min": 3,
        "protocol_max": 7,
        "certificate_expires": None,
        "open_files": None,
        "open_files_max": None,
        **changed,
    }


def found(config: ClusterConfig | None = None, answers: NodeAnswers | None = None) -> list[DoctorFinding]:
    """Findings; that nodes of the plan have no admin API is not what tests are about."""
    return [each for each in examine(config or cluster(), answers or NodeAnswers()) if "admin_port" not in each.do]


def shard(**changed: Any) -> dict[str, Any]:
    usual = {"no_space": 0, "disk_bytes": 100, "available_bytes": 50, "previous_stop": "CLEAN", "dirty_logs": 0}
    return {"node_id": 1, "shard": 0, **usual, **changed}


def only(findings: list[DoctorFinding], words: str) -> DoctorFinding:
    matching = [each for each in findings if words in each.what]
    assert len(matching) == 1, findings
    assert len(matching[0].do) > 10
    return matching[0]


def test_a_cluster_that_is_well_has_no_findings_but_notes() -> None:
    answers = NodeAnswers(
        info=[info(node) for node in range(4)], clocks=[NodeClock(NodeId(n), n * 100, 50) for n in range(4)]
    )
    answers.tables["shards"].append(shard())
    assert found(answers=answers) == []


@pytest.mark.parametrize(
    ("replicate", "nodes", "severity", "words"),
    [
        ("node:1", 3, "bad", "one copy: a lost disk takes records"),
        ("node:3", 3, "bad", "no node may be away"),
    ],
)
def test_replication_that_survives_nothing(replicate: str, nodes: int, severity: str, words: str) -> None:
    assert only(found(cluster(replicate, nodes)), words).severity == severity


def test_copies_in_one_rack_are_a_note_where_racks_have_room_for_all_of_them() -> None:
    plan = {node: NodePlan(BOTH, node // 2) for node in range(4)}
    config = load_cluster(ClusterPlan("node:2", 4, {}, plan).render())
    finding = only(found(config), "all copies of a record may lie in one rack, though there are 2")
    assert (finding.severity, "rack:2,node:2" in finding.do) == ("note", True)


def test_nothing_is_said_to_be_found_where_nobody_could_look() -> None:
    assert lines_of(cluster(), NodeAnswers(), []) == []
    looked = NodeAnswers(info=[info(0)])
    assert lines_of(cluster(), looked, [])[0].startswith("nothing found: 1 nodes")
    assert lines_of(cluster(), looked, [DoctorFinding("note", "N0", "a", "b")]) == ["note  N0: a\n      -> b"]


def test_what_the_cluster_file_lacks() -> None:
    config = dataclasses.replace(cluster(), settings={"rebuilding": {"enabled": False}})
    assert only(found(config), "rebuilding is off").severity == "warn"
    assert not [each for each in found(dataclasses.replace(cluster(), settings={})) if "rebuilding" in each.what]
    assert only(found(cluster(roles=["storage"])), "one node alone sequences").about == "N0"
    assert any("admin_port" in each.do for each in examine(cluster(), NodeAnswers()))
    hosts = {node: dataclasses.replace(member, host=f"10.0.0.{node}") for node, member in cluster().nodes.items()}
    apart = dataclasses.replace(cluster(), nodes=hosts, epoch_store="sqlite:epochs.db")
    assert only(found(apart), "SQLite").severity == "bad"
    assert not [
        each for each in found(dataclasses.replace(cluster(), epoch_store="sqlite:e.db")) if "SQLite" in each.what
    ]


def test_a_clock_is_compared_with_most_others_and_slow_answers_prove_little() -> None:
    clocks = [NodeClock(NodeId(node), 3_600_000_000, 1000) for node in range(3)]
    assert found(answers=NodeAnswers(clocks=clocks)) == found(), "ours is wrong, or another zone: they agree"
    late = [*clocks, NodeClock(NodeId(3), 3_602_000_000, 1000)]
    assert only(found(answers=NodeAnswers(clocks=late)), "2.0 s ahead of most others'").about == "N3"
    assert found(answers=NodeAnswers(clocks=[*clocks, NodeClock(NodeId(3), 3_602_000_000, 1_900_000)])) == found()
    behind = only(found(answers=NodeAnswers(clocks=[NodeClock(NodeId(0), -90_000_000, 10)])), "behind this machine's")
    assert behind.severity == "bad"


def test_nodes_of_several_versions_are_named() -> None:
    rows = [info(0), info(1, version="2", config_version=2), info(2, protocol_min=8, protocol_max=9)]
    findings = found(answers=NodeAnswers(info=rows))
    assert only(findings, "versions of the program").what == "2 versions of the program: 1: N0, N2; 2: N1"
    assert only(findings, "versions of the configuration").severity == "warn"
    assert only(findings, "no protocol in common").severity == "bad"
    assert findings[0].severity == "bad", "the worst comes first"


def test_what_nodes_tell_of_themselves() -> None:
    answers = NodeAnswers()
    changed = {"section": "settings.storage", "name": "x", "current_value": "5", "from_operator": 1}
    answers.tables["settings"] += [{"node_id": node, **changed} for node in (1, 2)]
    answers.tables["settings"].append({"node_id": 3, **changed, "from_operator": 0})
    stale = {"node_id": 1, "shard": 0, "directory": "/d/old", "reason": "REPLACED", "stored_bytes": 5_000_000}
    answers.tables["quarantined_stores"].append(stale)
    answers.tables["shards"] += [shard(no_space=1), shard(previous_stop="CRASH", dirty_logs=3)]
    findings = found(answers=answers)
    assert only(findings, "settings.storage.x = 5 was set by an operator").about == "N1, N2"
    assert "5.0 MB in /d/old" in only(findings, "does not count (REPLACED)").what
    assert only(findings, "lack of space").about == "N1:S0"
    assert only(findings, "went down without a stop").severity == "note"


@pytest.mark.parametrize(("available", "severity"), [(20, None), (19, "warn"), (10, "warn"), (9, "bad")])
def test_a_disk_on_which_little_is_free(available: int, severity: str | None) -> None:
    answers = NodeAnswers()
    answers.tables["shards"].append(shard(disk_bytes=100 * 10**9, available_bytes=available * 10**9))
    findings = found(answers=answers)
    assert [each.severity for each in findings] == ([severity] if severity else [])
    if severity:
        assert f"{available}.0 GB of 100.0 GB are free" in only(findings, "are free").what


@pytest.mark.parametrize(
    ("used", "most", "told"), [(80, 100, 0), (81, 100, 1), (81, None, 0), (None, 100, 0), (None, None, 0)]
)
def test_a_process_that_may_open_few_further_files(used: int | None, most: int | None, told: int) -> None:
    findings = found(answers=NodeAnswers(info=[info(2, open_files=used, open_files_max=most)]))
    assert [(each.about, each.severity) for each in findings] == [("N2", "warn")] * told
    if told:
        only(findings, "81 of the 100 files and sockets")


@pytest.mark.parametrize(("days", "severity"), [(30, None), (20, "warn"), (6, "bad"), (-1, "bad")])
def test_a_certificate_that_expires_soon(days: int, severity: str | None) -> None:
    now = 1_700_000_000 * SECOND
    answers = NodeAnswers(info=[info(1, certificate_expires=now + days * 86_400 * SECOND)], asked_at=now)
    findings = found(answers=answers)
    assert [each.severity for each in findings] == ([severity] if severity else [])
    if severity:
        only(findings, "has expired" if days < 0 else f"expires in {days}.0 days")


@pytest.mark.parametrize(("host", "tls", "told"), [("127.0.0.1", "off", 0), ("db1", "off", 1), ("db1", "require", 0)])
def test_clear_text_between_machines(host: str, tls: str, told: int) -> None:
    config = cluster()
    nodes = {node: dataclasses.replace(member, host=host) for node, member in config.nodes.items()}
    config = dataclasses.replace(config, nodes=nodes, settings={**config.settings, "security": {"tls": tls}})
    assert sum("tls is off" in each.what for each in found(config)) == told


def test_maintenances_that_lasted_too_long_and_restarts_that_nobody_goes_on_with() -> None:
    def kept(*commands: maintenance.MaintenanceCommand) -> MaintenancesState:
        state = MaintenancesState()
        for at, command in enumerate(commands, 1):
            state.apply(maintenance.encode(command), StateVersion(Lsn(at), 0), Timestamp(SECOND))
        return state

    away = maintenance.ApplyMaintenance(maintenance.MaintenanceKind.AWAY, [NodeId(1)], [], 100 * SECOND, "ann", "")
    drain = maintenance.ApplyMaintenance(maintenance.MaintenanceKind.DRAIN, [], [ShardId(512)], 0, "ann", "")
    begin = maintenance.BeginRestart([NodeId(3)], "bob", "")
    answers = NodeAnswers(maintenances=kept(away, drain, begin), asked_at=101 * SECOND)
    assert found(answers=answers) == []
    answers.asked_at += 1
    finding = only(found(answers=answers), "its time is over, and it is waiting")
    assert (finding.severity, finding.about) == ("warn", "maintenance 1 of N1")
    answers.asked_at = 2 * 86_400 * SECOND
    assert only(found(answers=answers), "waiting for more than a day").about == "maintenance 2 of N2:S0"
    assert only(found(answers=answers), "under way for more than a day, with 1 nodes left").severity == "warn"
