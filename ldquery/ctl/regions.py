"""``ldctl region``: what there is in a region, and what is done to all of its nodes at once."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from client.cli.program import EXIT_OK, EXIT_UNANSWERED, say
from ldquery.ctl.configuration import change, change_options, check_is_stored
from ldquery.ctl.configuration_change import ConfigurationEditor
from ldquery.ctl.shards import attended, drain, undrain, what_is_so
from ldquery.ctl.verb import PROGRAM, Verb, access_of, show_rows
from logdevice_py.config.cluster import ClusterConfig, Roles
from logdevice_py.config.edit import with_disabled_regions, without_node
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId, ShardId, format_shard, node_of
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.event_log.events import RebuildMode

if TYPE_CHECKING:
    from client.client import Client
    from logdevice_py.event_log.rebuilding_set import RebuildingShard

_SECONDS: Final = 5.0
_SHOWN: Final = ("region", "nodes", "silent", "sequencers", "storage", "capacity", "new records", "logs sequenced")


def regions_of(config: ClusterConfig) -> dict[str, list[NodeId]]:
    """Nodes by region, of those that stand in one."""
    found: dict[str, list[NodeId]] = {}
    for node, member in sorted(config.nodes.items()):
        if member.location.region:
            found.setdefault(member.location.region, []).append(node)
    return dict(sorted(found.items()))


def nodes_in(config: ClusterConfig, region: str) -> list[NodeId]:
    """Of a region.

    Raises:
        LogDeviceError: NOTINCONFIG: no node stands there.
    """
    known = regions_of(config)
    if region not in known:
        there = f"there are {', '.join(known)}" if known else "no location begins with a region"
        raise LogDeviceError(Status.NOTINCONFIG, f"there is no region {region}; {there}")
    return known[region]


def _list_options(options: argparse.ArgumentParser) -> None:
    del options


async def _list(client: Client, arguments: argparse.Namespace) -> int:
    from ldquery.ctl.health import cluster_health

    config = client.config
    health = await cluster_health(config, access_of(arguments), arguments.timeout or _SECONDS)
    logs = {row["node"]: row["logs"] for row in health.rows}
    rows: list[dict[str, Any]] = []
    for region, nodes in regions_of(config).items():
        storage = [node for node in nodes if Roles.STORAGE in config.nodes[node].roles]
        rows.append(
            {
                "region": region,
                "nodes": ", ".join(f"N{node}" for node in nodes),
                "silent": ", ".join(f"N{node}" for node in nodes if node in health.silent) or "none",
                "sequencers": sum(Roles.SEQUENCER in config.nodes[node].roles for node in nodes),
                "storage": len(storage),
                "capacity": sum(config.nodes[node].storage_capacity for node in storage),
                "new records": "no" if region in config.disabled_regions else "yes",
                "logs sequenced": sum(_number(logs.get(f"N{node}")) for node in nodes),
            }
        )
    show_rows(arguments, rows, _SHOWN)
    if not rows:
        say(PROGRAM, "no location begins with a region")
    return EXIT_UNANSWERED if health.silent else EXIT_OK


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _region(options: argparse.ArgumentParser) -> None:
    options.add_argument("region", metavar="REGION", help="like eu")


def _region_to_change(options: argparse.ArgumentParser) -> None:
    _region(options)
    change_options(options)


def _region_to_wait_for(options: argparse.ArgumentParser) -> None:
    _region(options)
    options.add_argument("--wait", action="store_true", help="until everything that its nodes hold is stored elsewhere")


def _use(*, disabled: bool) -> Callable[[Client, argparse.Namespace], Awaitable[int]]:
    async def run(client: Client, arguments: argparse.Namespace) -> int:
        region: str = arguments.region
        async with ConfigurationEditor.of_program(client, arguments) as editor:
            known = await editor.read()
            check_is_stored(known, arguments)
            config = load_cluster(known.text)
            nodes_in(config, region)
            regions = config.disabled_regions | {region} if disabled else config.disabled_regions - {region}
            text = with_disabled_regions(known.text, regions)
            return await change(
                editor, known, text, arguments, f"region {'disable' if disabled else 'enable'} {region}"
            )

    return run


async def _remove(client: Client, arguments: argparse.Namespace) -> int:
    region: str = arguments.region
    async with ConfigurationEditor.of_program(client, arguments) as editor:
        known = await editor.read()
        check_is_stored(known, arguments)
        config, text = load_cluster(known.text), known.text
        nodes = nodes_in(config, region)
        if len(nodes) == len(config.nodes):
            raise LogDeviceError(Status.INVALID_PARAM, f"all nodes stand in {region}")
        text = with_disabled_regions(text, config.disabled_regions - {region})
        for node in nodes:
            text = without_node(text, node)
        return await change(editor, known, text, arguments, f"region remove {region}")


async def _undrain(client: Client, shard: ShardId) -> tuple[RebuildingShard | None, bool]:
    """`ShardWork`: as `undrain`, but a shard that is neither lost nor drained stays as it is, so that the others of its region are seen to."""
    try:
        return await undrain(client, shard)
    except LogDeviceError as error:
        if error.status is not Status.NOTFOUND:
            raise
        return None, True


def _what_is_used(shard: ShardId, entry: RebuildingShard | None, *, already: bool = False) -> str:
    return f"{format_shard(shard)} is neither lost nor drained" if already else what_is_so(shard, entry)


def _shards(client: Client, arguments: argparse.Namespace) -> list[ShardId]:
    nodes = set(nodes_in(client.config, arguments.region))
    return [shard for shard in client.config.storage_shards() if node_of(shard) in nodes]


VERBS: tuple[Verb, ...] = (
    Verb(
        "region list",
        "the regions, and what stands in each",
        "Print a row for each region: its nodes, those of them that do not answer, what they can do, and whether new records go there. A further region begins with a "
        "node that stands there: ldctl nodes add N9 host=... location=ap....r1.",
        _list_options,
        _list,
    ),
    Verb(
        "region disable",
        "have no new record stored in a region",
        "New nodesets are without the shards of the region, and nothing new is stored there; what they have is read. Refused where the other regions cannot keep what "
        "logs promise. It is settings.placement.disabled_regions of the stored configuration.",
        _region_to_change,
        _use(disabled=True),
    ),
    Verb(
        "region enable",
        "store new records in a region again",
        "Ends what region disable did.",
        _region_to_change,
        _use(disabled=False),
    ),
    Verb(
        "region drain",
        "empty all shards of a region, so that it can be taken out",
        "As ldctl drain for each shard of the region; disable the region first, so that what leaves one of its shards does not go to another one of them.",
        _region_to_wait_for,
        attended(drain, "the event log to take the drains", RebuildMode.RELOCATE, chosen=_shards),
    ),
    Verb(
        "region undrain",
        "use the shards of a region again",
        "As ldctl undrain for each of them that is lost or drained.",
        _region,
        attended(_undrain, "the event log to call it off", sentence=_what_is_used, chosen=_shards),
    ),
    Verb(
        "region remove",
        "take all nodes of a region out of the stored configuration",
        "One change of the configuration takes all of them out. Their shards have to be drained: ldctl region drain REGION --wait.",
        _region_to_change,
        _remove,
    ),
)
