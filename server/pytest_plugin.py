"""A pytest plugin: the fixture ``simulate`` runs an application on simulated clusters that break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def simulate() -> Callable[..., Any]:
    """`server.sim_application.simulate`: ``simulate(application, seed=7, nodes=5, faults="all")``."""
    from server.sim_application import simulate as run

    return run
