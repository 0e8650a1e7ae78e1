"""Settings of all tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import uvloop


def pytest_asyncio_loop_factories(config: Any, item: Any) -> dict[str, Callable[[], Any]]:
    """The loop that production runs on."""
    return {"uvloop": uvloop.new_event_loop}
