"""Where the logs of an index log are in the log tree."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_RAW: Final = re.compile(r"(.+)/raw-\d+")


def commands_group(path: str) -> str:
    """Of the manifest's commands."""
    return f"{path}/commands"


def snapshots_group(path: str) -> str:
    """Of the manifest's snapshots."""
    return f"{path}/snapshots"


def raw_group(path: str, generation: int) -> str:
    """Of the raw logs of a generation."""
    return f"{path}/raw-{generation}"


def index_logs_of(paths: Iterable[str]) -> list[str]:
    """The index logs among what is in the log tree, also such as were made and not initialized."""
    there = set(paths)
    with_raw_logs = {found[1] for path in there if (found := _RAW.fullmatch(path)) is not None}
    return sorted(path for path in with_raw_logs if {commands_group(path), snapshots_group(path)} <= there)
