"""What a client does when a log, or its own principal, is over its quota: it waits as long as the sequencer says, then tries one frame, then ever more.

A frame that is refused was sent in vain. Whoever sends all that he has whenever he may send something sends most of it many times.
"""

from __future__ import annotations

from typing import Final

from client.request_history import format_wait
from logdevice_py.core.machine import Rng
from logdevice_py.core.status import LogDeviceError, Status

_PAUSE_MAX: Final = 3_600_000_000
_STRETCH: Final = 10
"""Clients that were refused together come back within a tenth of their wait, not all at once."""


def quota_pause(wait_us: int, least_us: int, rng: Rng) -> int:
    """How long to wait.

    Args:
        wait_us: what the sequencer said.
        least_us: no shorter than this.
        rng: of the client.
    """
    wait = min(max(wait_us, least_us), _PAUSE_MAX)
    return wait + rng.randrange(wait // _STRETCH + 1)


def throttled_error(log_name: str, wait_us: int, *, maybe_applied: bool) -> LogDeviceError:
    """What an append fails with whose time ends before the quota takes it.

    Args:
        log_name: for people.
        wait_us: what the sequencer said.
        maybe_applied: an earlier try may be stored.
    """
    return LogDeviceError(
        Status.THROTTLED,
        f"{log_name} takes this append in {format_wait(wait_us)}: the log, or the principal of this client, is over its quota (append_bytes_per_s and "
        "append_records_per_s of the log, or of [quotas] in the cluster file). Wait so long, append less, or give it more time",
        maybe_applied=maybe_applied,
        retry_after_us=wait_us,
    )
