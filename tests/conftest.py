"""Settings of all tests."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import uvloop
from hypothesis import HealthCheck, settings

# the same examples in every run, so that a failure is met again; no deadline, because machines differ
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("repeatable")


def pytest_configure() -> None:
    """Programs under test are interrupted: whoever starts tests in the background makes them ignore that, and programs inherit it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_asyncio_loop_factories(config: Any, item: Any) -> dict[str, Callable[[], Any]]:
    """The loop that production runs on."""
    return {"uvloop": uvloop.new_event_loop}
