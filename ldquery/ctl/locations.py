"""``ldctl locations``: where nodes stand by the resolver that is configured, and by the cluster file."""

from __future__ import annotations

import argparse
import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from client.cli.program import EXIT_OK, parse_timeout, say
from ldquery.ctl.configuration_change import edit_stored
from ldquery.ctl.groups import rewrite
from ldquery.ctl.verb import PROGRAM, Verb, show_rows
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.edit import with_locations
from logdevice_py.config.location import Location
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.placement.cluster_placement import placement_settings
from logdevice_py.placement.moves import check_moves
from logdevice_py.placement.resolvers import RememberedLocations, StableLocations, load_resolver
from logdevice_py.placement.settings import PlacementSettings
from logdevice_py.runtime.clock import monotonic_us

if TYPE_CHECKING:
    from client.client import Client

_SHOWN: Final = ("node", "host", "location", "found", "remark")
_SCRIPT_SECONDS: Final = 60.0


def _options(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--apply",
        action="store_true",
        help="write what was found into the stored configuration, or into the cluster file where there is none",
    )
    options.add_argument(
        "--watch",
        metavar="T",
        type=parse_timeout,
        help="write it there every so often, like 30s, once it was found for topology_stabilize_period; until interrupted",
    )


def run_script(program: str, names: Sequence[str]) -> str:
    """What a resolver's program prints for these names.

    Raises:
        OSError: it cannot be started.
        subprocess.SubprocessError: it failed, or took a minute.
    """
    return subprocess.run([program, *names], capture_output=True, text=True, check=True, timeout=_SCRIPT_SECONDS).stdout


def found_locations(
    config: ClusterConfig, settings: PlacementSettings, resolver: RememberedLocations
) -> dict[NodeId, Location]:
    """Where the nodes stand by the resolver; without those that it does not know, unless there is a default location."""
    hosts = {node: member.host for node, member in config.nodes.items()}
    resolved = dict(zip(hosts, resolver.resolve(list(hosts.values())), strict=True))
    if settings.default_location:
        return resolved
    return {node: location for node, location in resolved.items() if hosts[node] not in resolver.failures}


def moved(locations: Mapping[NodeId, Location], text: str) -> str:
    """The text of the next version, in which nodes stand elsewhere.

    Raises:
        LogDeviceError: INVALID_CONFIG: nodes would refuse it.
    """
    after = with_locations(text, locations)
    check_moves(load_cluster(text), load_cluster(after))
    return after


async def write_locations(
    client: Client, arguments: argparse.Namespace, locations: Mapping[NodeId, Location]
) -> ClusterConfig:
    """Change the stored configuration, or the cluster file where there is none; what it says then.

    Raises:
        LogDeviceError: INVALID_CONFIG: nodes would refuse it; nothing is written.
    """
    edited = partial(moved, locations)
    stored = await edit_stored(client, arguments, edited, "locations")
    if stored is not None:
        return stored
    return await asyncio.to_thread(rewrite, Path(arguments.config), edited)


async def _locations(client: Client, arguments: argparse.Namespace) -> int:
    config, settings = client.config, placement_settings(client.config)
    resolver = load_resolver(settings, partial(run_script, settings.resolver_script))
    if arguments.watch is not None:
        await _watch(client, arguments, settings, resolver)
    found = await asyncio.to_thread(found_locations, config, settings, resolver)
    rows = [
        {
            "node": f"N{node}",
            "host": member.host,
            "location": str(member.location),
            "found": str(found[node]) if node in found else None,
            "remark": resolver.failures.get(member.host, "" if found.get(node) == member.location else "differs"),
        }
        for node, member in config.nodes.items()
    ]
    show_rows(arguments, rows, _SHOWN)
    changed = {node: location for node, location in found.items() if location != config.nodes[node].location}
    if arguments.apply and changed:
        written = await write_locations(client, arguments, changed)
        say(PROGRAM, f"configuration version {written.version} has them; they count for new epochs")
    return EXIT_OK


async def _watch(
    client: Client, arguments: argparse.Namespace, settings: PlacementSettings, resolver: RememberedLocations
) -> None:
    config = await client.newest_config()
    stable = StableLocations(
        settings.topology_stabilize_period_us, {node: member.location for node, member in config.nodes.items()}
    )
    while True:
        resolver.reload()
        found = await asyncio.to_thread(found_locations, config, settings, resolver)
        changed = stable.on_found(found, monotonic_us())
        for name, why in resolver.failures.items():
            say(PROGRAM, f"{name}: {why}")
        if changed:
            told = ", ".join(f"N{node} in {location or 'no place'}" for node, location in changed.items())
            try:
                written = await write_locations(client, arguments, changed)
            except LogDeviceError as error:
                if error.status is not Status.INVALID_CONFIG:
                    raise
                say(PROGRAM, f"{told}: not written: {error.detail}")
            else:
                say(PROGRAM, f"{told}, in version {written.version}")
        await asyncio.sleep(arguments.watch)


VERBS: tuple[Verb, ...] = (
    Verb(
        "locations",
        "where nodes stand by the resolver, and by the cluster file",
        "Asks the resolver that [settings.placement] names where the hosts of all nodes stand, and prints that beside what the cluster file says. Nodes that keep metadata "
        "logs cannot be moved to another failure domain; other moves count for new epochs, and no copy is moved.",
        _options,
        _locations,
    ),
)
