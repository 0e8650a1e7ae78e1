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
    options.add_argument("--apply", action="store_true", help="write what was found into the cluster file")
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


def write_locations(path: Path, locations: Mapping[NodeId, Location]) -> ClusterConfig:
    """Change the cluster file; what it says then.

    Raises:
        LogDeviceError: INVALID_CONFIG: nodes would refuse it; nothing is written.
    """

    def edited(text: str) -> str:
        after = with_locations(text, locations)
        check_moves(load_cluster(text), load_cluster(after))
        return after

    return rewrite(path, edited)


async def _locations(client: Client, arguments: argparse.Namespace) -> int:
    config, settings = client.config, placement_settings(client.config)
    resolver = load_resolver(settings, partial(run_script, settings.resolver_script))
    if arguments.watch is not None:
        await _watch(arguments, settings, resolver)
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
        written = await asyncio.to_thread(write_locations, Path(arguments.config), changed)
        say(PROGRAM, f"version {written.version} of {arguments.config} has them; they count for new epochs")
    return EXIT_OK


async def _watch(arguments: argparse.Namespace, settings: PlacementSettings, resolver: RememberedLocations) -> None:
    path = Path(arguments.config)
    config = load_cluster(await asyncio.to_thread(path.read_text, "utf-8"))
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
                written = await asyncio.to_thread(write_locations, path, changed)
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
