"""Sees to maintenances as long as there are any: what `ldctl maintenance manage` does, by a node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from ldquery.maintenance.manager import MaintenanceLog, MaintenanceManager
from logdevice_py.core.status import LogDeviceError

PAUSE: Final = 5.0
"""Seconds between two looks while something waits, at least."""
QUIET_PAUSE: Final = 15.0
"""Seconds between two looks at the time while all that is wanted is granted."""
_SHARE_OF_TIME: Final = 5
"""A look that takes long is made rarely: pauses are so many times as long."""
_FAILURES_MAX: Final = 5
_REASONS_SAID: Final = 5


async def see_to_maintenances(
    log: MaintenanceLog,
    manager: MaintenanceManager,
    *,
    say: Callable[[str], None] = lambda text: None,
    pause: float = PAUSE,
) -> None:
    """Until there are none. Nodes and the cluster are asked only while something waits, is drained, or is over its time.

    Raises:
        LogDeviceError: what does not pass by itself, or does not for some time.
    """
    failures = 0
    while True:
        began, rest = time.monotonic(), pause
        try:
            if not (await log.current()).live:
                return
            if manager.has_work:
                for number, reasons in (await manager.look()).reasons.items():
                    if reasons:
                        say(f"maintenance {number} waits: {_some_of(reasons)}")
            else:
                rest = QUIET_PAUSE if pause else 0.0
            failures = 0
        except LogDeviceError as error:
            failures += 1
            if not error.retriable or failures > _FAILURES_MAX:
                raise
            say(f"maintenances cannot be seen to: {error}")
        await asyncio.sleep(max(rest, _SHARE_OF_TIME * (time.monotonic() - began)) if rest else 0)


def _some_of(reasons: Sequence[str]) -> str:
    """The first ones, and how many there are beside: there may be one for each nodeset."""
    more = len(reasons) - _REASONS_SAID
    said = "; ".join(reasons[:_REASONS_SAID])
    return f"{said}; and {more} more reasons (ldctl maintenance list)" if more > 0 else said
