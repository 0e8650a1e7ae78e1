from __future__ import annotations

from client.reach import Reach
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import TRAITS, LogDeviceError, Status

NODES = tuple(map(NodeId, range(3)))
SILENT = LogDeviceError(Status.CONNFAILED, "nobody listens there")
OTHER = LogDeviceError(Status.INVALID_CLUSTER, "this is a node of cluster b")


def reach(*connected: int, **troubles: LogDeviceError) -> Reach:
    named = {NodeId(int(node[1:])): error for node, error in troubles.items()}
    return Reach("c.toml", NODES, tuple(map(NodeId, connected)), named)


def test_nodes_that_fail_alike_are_named_together() -> None:
    assert str(reach(n0=SILENT, n1=OTHER, n2=SILENT)) == (
        "no node of c.toml answers (3 of 3 addresses tried: N0, N2: nobody listens there; N1: this is a node of cluster b)"
    )
    assert str(reach(1, n2=SILENT)) == "connected to N1 of 3 nodes (N2: nobody listens there)"
    assert str(reach()) == "no node of c.toml has answered yet"


def test_a_cluster_is_another_one_when_nobody_else_is_left_to_say_so() -> None:
    error = reach(n0=SILENT, n1=OTHER, n2=SILENT).foreign()
    assert error is not None
    assert error.status is Status.INVALID_CLUSTER
    assert not error.retriable
    assert "N1: this is a node of cluster b" in str(error)


def test_one_wrong_address_is_not_the_whole_cluster() -> None:
    assert reach(0, n1=OTHER, n2=OTHER).foreign() is None
    assert reach(n0=OTHER, n1=OTHER).foreign() is None  # N2 was not tried
    assert reach(n0=SILENT, n1=SILENT, n2=SILENT).foreign() is None


def test_what_a_status_means_is_told_once() -> None:
    known = reach(1)
    meaning = TRAITS[Status.ISOLATED].meaning
    for detail in ("", "tail of log 2", f"ISOLATED from N1: {meaning}"):
        assert known.explain(LogDeviceError(Status.ISOLATED, detail)).count(meaning) == 1
    assert known.explain(LogDeviceError(Status.ISOLATED, "")).endswith(str(known))
