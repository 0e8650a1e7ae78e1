"""Deliberate faults of nodes that follow a stored configuration, and change it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from logdevice_py.config.parse import load_cluster
from logdevice_py.config.stored import StoredConfiguration, ToNextConfiguration
from server.configuration.keeper import ConfigurationKeeper
from server.node import Node
from tests.simulation.deliberate_fault import Place, deliberate
from tests.simulation.run_mode import RunMode

Change = Callable[..., Any]
APPLICATION = "configurations"


def of_configurations(breaks: str, *places: Place) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Looked for in runs of this application alone."""
    return deliberate(breaks, *places, mode=RunMode.FEATURES, likely=APPLICATION)


@of_configurations("a node takes what the epoch store holds, also when it is older", (ConfigurationKeeper, "look"))
def older_configuration_taken(original: Change) -> Change:
    async def look(self: ConfigurationKeeper, *arguments: Any, **named: Any) -> Any:
        found, stored = await original(self, *arguments, **named), self.in_force.stored
        if found is not None or stored is None or stored.version >= self.in_force.config.version:
            return found
        older = load_cluster(stored.current.text)
        await self.use(older, stored.current.text)
        return older

    return look


@of_configurations("a node uses a stored configuration and does not keep it on its disk", (ConfigurationKeeper, "use"))
def configuration_not_kept(original: Change) -> Change:
    async def use(self: ConfigurationKeeper, config: Any, text: str) -> None:
        self.in_force.config, self.in_force.is_stored = config, True

    return use


@of_configurations(
    "a node uses nodes and settings of a later version with the logs of the one before", (Node, "on_config")
)
def part_of_a_configuration_used(original: Change) -> Change:
    return lambda self, config, now: original(self, replace(config, logs=self.config.logs), now)


@of_configurations("a change replaces what somebody else stored since it was made", (ToNextConfiguration, "__call__"))
def change_of_others_overwritten(original: Change) -> Change:
    def to_next(self: ToNextConfiguration, stored: StoredConfiguration | None) -> Any:
        versions = () if stored is None else tuple(each for each in stored.versions if each.version <= self.base)
        return original(self, StoredConfiguration(versions) if versions else None)

    return to_next
