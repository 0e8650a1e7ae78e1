"""A pytest plugin: the fixture ``simulate`` runs an application on simulated clusters that break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def simulate() -> Callable[..., Any]:
    """`server.simulation.cluster.simulate`: ``simulate(application, seed=7, nodes=5, faults="all")`` runs ``await application(cluster)``, where
    `cluster` is a `SimCluster`, and returns what it returns. See docs/simulate-your-application.md."""
    from server.simulation.cluster import simulate as run

    return run
