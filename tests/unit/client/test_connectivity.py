from __future__ import annotations

from client.connectivity import Connectivity
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import TRAITS, LogDeviceError, Status

NODES = tuple(map(NodeId, range(3)))
SILENT = LogDeviceError(Status.CONNFAILED, "nobody listens there")
OTHER = LogDeviceError(Status.INVALID_CLUSTER, "this is a node of cluster b")


def connectivity(*connected: int, **troubles: LogDeviceError) -> Connectivity:
    named = {NodeId(int(node[1:])): error for node, error in troubles.items()}
    return Connectivity("c.toml", NODES, tuple(map(NodeId, connected)), named)


def test_nodes_that_fail_alike_are_named_together() -> None:
    assert str(connectivity(n0=SILENT, n1=OTHER, n2=SILENT)) == (
        "no node of c.toml answers (3 of 3 addresses tried: N0, N2: nobody listens there; N1: this is a node of cluster b)"
    )
    assert str(connectivity(1, n2=SILENT)) == "connected to N1 of 3 nodes (N2: nobody listens there)"
    assert str(connectivity()) == "no node of c.toml has answered yet"


def test_a_cluster_is_another_one_when_nobody_else_is_left_to_say_so() -> None:
    error = connectivity(n0=SILENT, n1=OTHER, n2=SILENT).wrong_cluster()
    assert error is not None
    assert error.status is Status.INVALID_CLUSTER
    assert not error.retriable
    assert "N1: this is a node of cluster b" in str(error)


def test_one_wrong_address_is_not_the_whole_cluster() -> None:
    assert connectivity(0, n1=OTHER, n2=OTHER).wrong_cluster() is None
    assert connectivity(n0=OTHER, n1=OTHER).wrong_cluster() is None  # N2 was not tried
    assert connectivity(n0=SILENT, n1=SILENT, n2=SILENT).wrong_cluster() is None


def test_what_a_status_means_is_told_once() -> None:
    known = connectivity(1)
    meaning = TRAITS[Status.ISOLATED].meaning
    for detail in ("", "tail of log 2", f"ISOLATED from N1: {meaning}"):
        assert known.explain(LogDeviceError(Status.ISOLATED, detail)).count(meaning) == 1
    assert known.explain(LogDeviceError(Status.ISOLATED, "")).endswith(str(known))


def test_where_nobody_answers_that_is_told_once() -> None:
    nobody = connectivity(n0=SILENT, n1=SILENT, n2=SILENT)
    detail = "tail of log 1: after 2.0 s it waited for the next try; NOSEQUENCER: nobody has it; CONNFAILED from N0: nothing was sent"
    assert nobody.explain(LogDeviceError(Status.NOSEQUENCER, detail)) == (
        f"tail of log 1: after 2.0 s it waited for the next try: {nobody}"
    )
    assert nobody.explain(LogDeviceError(Status.NOSEQUENCER, "")) == str(nobody)
    some = connectivity(n0=SILENT)
    assert some.explain(LogDeviceError(Status.NOSEQUENCER, detail)) == f"{detail}: {some}", "others were not tried"
