"""What the console says is wrong: as ``ldctl status`` says, and always with what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ldquery.ctl import health
from logdevice_py.core.ids import EVENT_LOG_DELTAS, NodeId
from logdevice_py.tables.waits import WaitCause
from server.console.problems import QUIET, REMEDIES, Problem, problems_of
from server.console.state import cluster_state, in_steps
from tests.unit.ldquery.ctl.test_health import CONFIG, Cluster


def wait(cluster: Cluster, cause: WaitCause, seconds: float | None, *, kind: str = "APPEND") -> None:
    cells = {"kind": kind, "cause": cause.name, "log_id": 7, "shards": "N1:S0", "lsn": None, "waiting": 1}
    cluster.add("waits", 0, **cells, waited_seconds=seconds, shard=None, detail="")


def rebuilding(cluster: Cluster, mode: str, status: str) -> None:
    cells = {
        "mode": mode,
        "status": status,
        "generation": 1,
        "authoritative_status": "UNDERREPLICATION",
        "donors_left": "N0:S0",
    }
    cluster.add("shard_rebuildings", 0, rebuilding_shard="N1:S0", version=5, **cells)


def problems(cluster: Cluster) -> list[Problem]:
    return problems_of(CONFIG, cluster.found, cluster.silent)[0]


TROUBLES: dict[str, Callable[[Cluster], object]] = {
    "silent": lambda cluster: cluster.silent.update({NodeId(1): "CONNFAILED: refused"}),
    "not ready": lambda cluster: cluster.set("info", 1, readiness="ISOLATED"),
    "other file": lambda cluster: cluster.set("info", 1, config_version=CONFIG.version - 1),
    "disk failed": lambda cluster: cluster.set("shards", 1, status="FAILED"),
    "full": lambda cluster: cluster.set("shards", 1, no_space=1),
    "read-only": lambda cluster: cluster.set("shards", 1, accepting_writes=0),
    "damaged": lambda cluster: cluster.set("shards", 1, damaged_ranges=2),
    "lost": lambda cluster: rebuilding(cluster, "RESTORE", "rebuilding"),
    "uncertain": lambda cluster: (
        rebuilding(cluster, "RESTORE", "uncertain"),
        cluster.is_short(7, "N1:S0=1, N2:S0=1", state="GONE", first=None),
    ),
    "short": lambda cluster: cluster.is_short(7, "N1:S0=1"),
    "gone": lambda cluster: cluster.is_short(7, "N1:S0=1", state="GONE", first=None),
    "not looked": lambda cluster: cluster.set("info", 1, copies_reviewed=0),
    "leaving": lambda cluster: cluster.set("info", 1, logs_leaving_departed_shards=3),
    "waits": lambda cluster: wait(cluster, WaitCause.NODE_DEAD, 5.0),
}
FINE: dict[str, Callable[[Cluster], object]] = {
    "well": lambda cluster: None,
    "a new generation": lambda cluster: cluster.wipe(1),
    "drained": lambda cluster: rebuilding(cluster, "RELOCATE", "rebuilding"),
    "uncertain, and nothing is missed": lambda cluster: rebuilding(cluster, "RESTORE", "uncertain"),
    "rebuilt": lambda cluster: rebuilding(cluster, "RESTORE", "rebuilt"),
    "at the tail": lambda cluster: wait(cluster, WaitCause.TAIL, 500.0, kind="READ"),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_what_status_finds_wrong_is_a_problem_with_what_to_do(name: str) -> None:
    cluster = Cluster()
    TROUBLES[name](cluster)
    found = problems(cluster)
    assert cluster.judged().told()
    assert found
    assert min(len(each.do) for each in found) > 10


@pytest.mark.parametrize("name", FINE)
def test_what_status_finds_well_is_no_problem(name: str) -> None:
    cluster = Cluster()
    FINE[name](cluster)
    assert cluster.judged().told() == []
    assert problems(cluster) == []


def test_a_drain_is_told_and_no_problem() -> None:
    cluster = Cluster()
    rebuilding(cluster, "RELOCATE", "rebuilding")
    [note] = problems_of(CONFIG, cluster.found, cluster.silent)[1]
    assert note.startswith("N1:S0 ")


def test_the_worst_comes_first_and_a_node_that_others_see_alive_has_other_advice() -> None:
    cluster = Cluster()
    TROUBLES["damaged"](cluster)
    TROUBLES["silent"](cluster)
    found = problems(cluster)
    assert [each.severity for each in found] == ["bad", "warn"]
    assert "admin_port" in found[0].do
    for rows in cluster.found["cluster_state"].values():
        rows[1]["state"] = "DEAD"
    assert "Start it again" in problems(cluster)[0].do


def test_what_has_only_begun_to_wait_is_no_problem() -> None:
    cluster = Cluster()
    wait(cluster, WaitCause.EPOCH_STORE, 0.5)
    assert problems(cluster) == []
    wait(cluster, WaitCause.EPOCH_STORE, 2.5)
    [problem] = problems(cluster)
    assert (problem.severity, problem.where) == ("bad", "log 7")
    assert problem.what == "APPEND waits for EPOCH_STORE (N1:S0), for 2 s"


def test_every_cause_of_waiting_is_quiet_or_has_a_remedy() -> None:
    assert frozenset(WaitCause) - frozenset(REMEDIES) == QUIET
    assert {cause.name for cause in QUIET} == health.QUIET


def test_a_state_is_the_same_until_something_changes() -> None:
    cluster = Cluster()
    for node in range(3):
        cluster.set("info", node, start_time=5, version="1", python="3", pid=7)
        names = ("previous_stop", "logs", "read_streams", "partitions", "dirty_logs", "scrubbing_log", "verified_since")
        cluster.set("shards", node, **dict.fromkeys(names, 0))
    rates = [{"node_id": 1, "log_id": 7, "entries_1min": 2.5, "bytes_1min": 100.0}]
    rates.append({"node_id": 1, "log_id": 9, "entries_1min": 0.04, "bytes_1min": 0.4})  # shown as nothing

    def state() -> dict[str, object]:
        return cluster_state(CONFIG, NodeId(0), cluster.found, cluster.silent, rates)

    before = state()
    cluster.set("info", 1, uptime_seconds=99.0)
    cluster.set("shards", 1, stored_bytes=2001)
    assert state() == before
    cluster.set("shards", 1, stored_bytes=5_000_000)
    assert state() != before
    assert before["busiest"] == [{"log": "7", "path": "/from1/7", "node": 1, "entries": 2.5, "bytes": 100}]
    wait(cluster, WaitCause.TAIL, 500.0, kind="READ")
    assert state()["waits"] == [], "a reader at the tail waits for ever"


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, 0), (499, 0), (1_499, 1_000), (48_600, 49_000), (1_234_567, 1_230_000), (98_765_432_109, 98_800_000_000)],
)
def test_what_is_stored_is_shown_to_three_digits(size: int, shown: int) -> None:
    assert in_steps(size) == shown


def test_an_internal_log_has_a_name_and_an_id_that_a_browser_can_hold() -> None:
    rates = [{"node_id": 1, "log_id": EVENT_LOG_DELTAS, "entries_1min": 2.5, "bytes_1min": 100.0}]
    cluster = Cluster()
    for node in range(3):
        cluster.set("info", node, start_time=5, version="1", python="3", pid=7)
        names = ("previous_stop", "logs", "read_streams", "partitions", "dirty_logs", "scrubbing_log", "verified_since")
        cluster.set("shards", node, **dict.fromkeys(names, 0))
    (shown,) = cluster_state(CONFIG, NodeId(0), cluster.found, cluster.silent, rates)["busiest"]
    assert (shown["log"], shown["path"]) == (str(EVENT_LOG_DELTAS), "event log")
