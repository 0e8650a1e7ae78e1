"""A pytest plugin, ``-p tests.simulation.mark_recorder``: prints at the end which marks the tests reached."""

from __future__ import annotations

from logdevice_py.core.marks import HITS


def pytest_unconfigure() -> None:
    """Called when everything has run."""
    print("marks reached:", *sorted(HITS))
