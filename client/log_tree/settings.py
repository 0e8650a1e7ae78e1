"""Settings of the log tree."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTreeSettings:
    """Section ``[settings.log_tree]`` of the cluster file."""

    enabled: bool = setting(
        False,
        unit="flag",
        doc="Logs can be made at run time. The same in all nodes' and clients' files; it cannot be switched off again.",
    )
    janitors: bool = setting(
        False,
        unit="flag",
        doc="A node is the janitor of all namespaces of streams that take one (`ldstream janitor`), unless another process is. It needs the stores of streams "
        "with `cold`, as all janitors do, and the extra `cold` there.",
    )
    snapshot_commands: int = setting(
        1000,
        unit="commands",
        lo=1,
        doc="A snapshot of the tree is written after so many commands, in a large tree after more.",
    )
