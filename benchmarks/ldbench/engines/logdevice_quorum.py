"""logdevice_py with one copy more than an append waits for: two of three synced, as systems with majorities acknowledge."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.ldbench.engine import DurabilityClass, StartOptions
from benchmarks.ldbench.engines.logdevice import LogDeviceEngine
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.logs import LogTree
from logdevice_py.config.replication import ReplicationProperty


class LogDeviceQuorumEngine(LogDeviceEngine):
    """The same clusters, whose logs replicate to one node less and have an extra copy."""

    name = "logdevice-2of3"
    title = "logdevice_py by its own client, acknowledged before the last copy"

    def unavailable(self, options: StartOptions) -> str | None:
        """With two copies at least."""
        if options.copies < 2:
            return "one copy has none that an append need not wait for"
        return super().unavailable(options)

    def acknowledgement(self, options: StartOptions) -> str:
        """All but one count."""
        what = "each synced" if options.durability is DurabilityClass.SYNC else "each in the page cache"
        return f"{options.copies - 1} of {options.copies} copies, {what}"

    def config(self, options: StartOptions) -> ClusterConfig:
        """Internal logs have as many copies as there are."""
        config = super().config(options)
        tree = config.logs
        defaults = {
            **tree.defaults,
            "replication": ReplicationProperty.parse(f"node:{options.copies - 1}"),
            "extra_copies": 1,
        }
        groups = [(group.path, group.lo, group.hi, group.overrides) for group in tree.groups]
        return replace(config, logs=LogTree.build(defaults=defaults, groups=groups))


ENGINE = LogDeviceQuorumEngine()
