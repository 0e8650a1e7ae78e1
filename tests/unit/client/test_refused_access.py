"""What a client says that may not do something."""

from __future__ import annotations

from client.refused_access import access_text
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import LogId
from logdevice_py.core.principal import Permission
from logdevice_py.shell.proof import Principals
from tests.simulation.cluster_plan import ClusterPlan, NodePlan

CONFIG = load_cluster(ClusterPlan("node:1", 1, {}, {0: NodePlan(["sequencer", "storage"], 0)}).render())


def test_whoever_shows_nothing_is_told_how_to_show_something() -> None:
    principals = Principals()
    principals.own = "anonymous"
    for permission in (Permission.APPEND, None):
        assert "LOGDEVICE_IDENTITY" in access_text(principals, CONFIG, LogId(1), permission)
    principals.own = "svc-clicks"
    told = access_text(principals, CONFIG, LogId(1), Permission.APPEND)
    assert told.startswith("principal svc-clicks may not append to log 1")
    assert "LOGDEVICE_IDENTITY" not in told
