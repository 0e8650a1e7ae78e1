"""A pytest plugin: the fixture ``simulate`` runs an application on simulated clusters that break, and its failures say how to have them again."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

_USED = pytest.StashKey[bool]()
"""The test ran an application."""
_EVENTS = "--simulation-events"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("logdevice_py")
    group.addoption(_EVENTS, action="store_true", help="simulated tests print every event of their runs")


@pytest.fixture
def simulate(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`server.simulation.cluster.simulate`: ``simulate(application, seed=7, nodes=5, faults="all")`` runs ``await application(cluster)``, where
    `cluster` is a `SimCluster`, and returns what it returns. See docs/simulate-your-application.md."""
    from server.simulation.cluster import SimulationFailed
    from server.simulation.cluster import simulate as run

    shows_events = request.config.getoption(_EVENTS)

    def simulate(*arguments: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        if shows_events:
            options.setdefault("echo", print)
        try:
            returned = run(*arguments, **options)
        except Exception as error:
            if isinstance(error, SimulationFailed):
                request.node.stash[_USED] = True
            raise  # else an argument is wrong, and there was no run
        except BaseException:
            request.node.stash[_USED] = True
            raise
        request.node.stash[_USED] = True
        return returned

    return simulate


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The command for a failed test again."""
    report = yield
    if report.failed and report.when == "call" and item.stash.get(_USED, False):
        report.sections.append(("simulation", f"the same run again: pytest {item.nodeid!r} {_EVENTS}"))
    return report
