"""``ld-dev-cluster``: a cluster of real processes on this machine, to try things and to break them.

``up`` stays until SIGINT or SIGTERM; the other commands talk to it from another terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import re
import signal
import sys
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from client.admin_access import AdminAccess
from client.cli.options import ProgramParser, Words, complete_directories, complete_words, program_options
from client.cli.program import EXIT_OK, EXIT_UNHEALTHY, discard_output
from ldquery.ctl.health import cluster_health
from logdevice_py.config.admin import console_url
from logdevice_py.config.cluster import ClusterConfig, MetadataLogConfig, NodeConfig, default_metadata_nodeset
from logdevice_py.config.location import Areas, Location
from logdevice_py.config.logs import Durability, LogTree
from logdevice_py.config.parse import load_cluster, render_cluster
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError
from server.dev import layout
from server.dev.current_config import current_config
from server.dev.identities import OPERATOR_ONLY, SECURITY, is_secure, make_identities
from server.dev.node_logs import show_logs
from server.dev.node_restarts import restart_in_turn
from server.dev.readiness import wait_until_acquainted, wait_until_writable
from server.dev.region_cluster import REGIONS_MAX, PlayedRegions, RegionSupervisor, regions_of, zookeeper_url
from server.dev.region_network import Distances, why_no_regions
from server.dev.supervisor import REGION_COMMANDS, CommandError, Supervisor, ask, write_cluster_file
from server.dev.zookeeper_server import why_no_zookeeper
from server.node_settings import NodeSettings
from server.os_errors import explain
from server.private_files import keep_files_private
from storage_node.log_store.settings import STORE_KINDS

READY_TIMEOUT = 120.0
"""Seconds that all logs together get to become writable."""
HEALTH_TIMEOUT = 5.0
"""Seconds that nodes get to say how they are."""
NODES = 5
LOGS = 8
RACKS = 3
NODES_OF_A_REGION = 3
RTT = "80ms"
_REGION = re.compile(r"[A-Za-z0-9_-]+")


def default_replication(nodes: int, racks: int, regions: int = 0) -> str:
    """Three copies in two regions or racks, or as near to it as the nodes allow."""
    if nodes >= 3 and regions >= 2:
        return "region:2,node:3"
    if nodes >= 3 and racks >= 2:
        return "rack:2,node:3"
    return f"node:{min(nodes, 3)}"


def make_config(
    directory: Path,
    *,
    nodes: int,
    logs: int,
    replicate: str,
    racks: int,
    epoch_store: str | None,
    durability: Durability = Durability.SYNC,
    rebuilding: bool = False,
    log_tree: bool = False,
    store: str = STORE_KINDS[0],
    secure: bool = False,
    regions: Sequence[str] = (),
    forwarded: bool = False,
) -> ClusterConfig:
    """The first version of a development cluster's file.

    Args:
        regions: nodes take them in turn, and the logs' sequencers are in the first one; none: all nodes are in one, and regions are not played.
        forwarded: regions are played without namespaces.

    Raises:
        LogDeviceError: INVALID_CONFIG, when the nodes cannot satisfy the replication property.
        ValueError: an argument is malformed.
    """
    if not 1 <= nodes <= layout.NODES_MAX:
        raise ValueError(f"--nodes: 1 to {layout.NODES_MAX} are possible")
    if logs < 1:
        raise ValueError("--logs: at least one")
    if racks < 1:
        raise ValueError("--racks: at least one")
    nodes_max = layout.FORWARDED_NODES_MAX if forwarded else layout.REGION_NODES_MAX
    if regions and nodes > nodes_max:
        raise ValueError(f"--nodes: {nodes_max} at most are possible with regions")
    replication = ReplicationProperty.parse(replicate)
    count = max(1, len(regions))

    def location(index: int) -> Location:
        region = regions[index % count] if regions else "dev"
        return Location.parse(f"{region}.dc.cluster.row.rack{index // count % racks}")

    has_namespaces = bool(regions) and not forwarded
    host_of = layout.region_host if has_namespaces else layout.node_host
    members = {
        NodeId(index): NodeConfig(
            node=NodeId(index),
            host=host_of(directory, NodeId(index)),
            port=layout.NODE_PORT,
            admin_port=layout.ADMIN_PORT,
            location=location(index),
        )
        for index in range(nodes)
    }
    config = ClusterConfig(
        name="dev",
        uuid=uuid.uuid4().bytes,
        version=1,
        nodes=members,
        logs=LogTree.build(
            defaults={
                "replication": replication,
                "durability": durability,
                **({"permit": OPERATOR_ONLY} if secure else {}),
                **({"sequencer_affinity": Areas.parse(f"{regions[0]}....")} if regions else {}),
            },
            groups=[("/logs", 1, logs, {})],
        ),
        metadata_log=MetadataLogConfig(nodeset=default_metadata_nodeset(members), replication=replication),
        epoch_store=epoch_store or f"sqlite://{(directory / 'epochs.sqlite').resolve()}",
        settings={
            # to look into it with whatever speaks HTTP; addresses of namespaces are no loopback addresses, so a token is needed there
            "admin": {"expose": True} if has_namespaces else {"open_reads": True},
            "maintenance": {"enabled": True},
            "rebuilding": {"enabled": rebuilding},
            **({"log_tree": {"enabled": True}} if log_tree else {}),
            **({"storage": {"store": store}} if store != STORE_KINDS[0] else {}),
            **({"security": SECURITY} if secure else {}),
        },
    )
    return load_cluster(render_cluster(config))


def _node(text: str) -> int:
    try:
        return int(text.removeprefix("N"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no node: write it like N0, or 0") from None


def _regions(text: str) -> list[str]:
    found = [name.strip() for name in text.split(",")]
    if len(found) < 2 or len(set(found)) < len(found) or not all(_REGION.fullmatch(name) for name in found):
        raise argparse.ArgumentTypeError(f"{text!r}: write two or more regions like us,eu,ap")
    if len(found) > REGIONS_MAX:
        raise argparse.ArgumentTypeError(f"{len(found)} regions are too many: {REGIONS_MAX} are possible")
    return found


def _node_or_region(text: str) -> int | str:
    """A number, or the name of a region."""
    try:
        return int(text.removeprefix("N"))
    except ValueError:
        return text


def _lines(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines")
    return int(text)


def _directory(
    options: argparse.ArgumentParser, text: str = "where the cluster lives", default: Any = argparse.SUPPRESS
) -> None:
    """``--dir``. Behind the command it has no default, so that what stands before it holds."""
    complete_directories(options.add_argument("--dir", type=Path, default=default, help=text))


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    options = ProgramParser(prog="ld-dev-cluster", description=__doc__)
    program_options(options)
    _directory(options, "where the cluster lives; here or behind the command", default=None)
    commands = options.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start a cluster and stay until interrupted")
    _directory(up, "where the cluster lives; one that is there already is started again")
    # no defaults here: what was not given cannot contradict a cluster that exists
    up.add_argument("--nodes", type=int, help=f"how many nodes (default {NODES})")
    up.add_argument("--logs", type=int, help=f"logs 1 to LOGS exist (default {LOGS})")
    up.add_argument("--replicate", help=f"replication property (default {default_replication(NODES, RACKS)})")
    up.add_argument("--racks", type=int, help=f"nodes are spread over so many racks (default {RACKS})")
    up.add_argument(
        "--regions",
        type=_regions,
        metavar="REGION,REGION,...",
        help=f"nodes stand in these, in turn ({NODES_OF_A_REGION} in each unless --nodes says otherwise), as far from each other as --rtt says; you type in the first "
        "one, where the sequencers are (default: no regions)",
    )
    up.add_argument(
        "--no-namespaces",
        action="store_true",
        help="with --regions: forward connections between nodes, not packets between namespaces of the network, as for who is not root",
    )
    up.add_argument(
        "--rtt",
        metavar="TIME",
        help=f"a round trip between two regions; us-eu:30ms for two of them, several between commas (default {RTT})",
    )
    up.add_argument(
        "--bandwidth",
        metavar="SIZE",
        help="bytes a second from one region to another one, like 100MiB (default: no limit)",
    )
    up.add_argument(
        "--epoch-store",
        help="zookeeper://HOST:PORT (default: a SQLite file in DIR; with --regions a server of ZooKeeper in each of them)",
    )
    up.add_argument(
        "--durability",
        choices=[d.name.lower() for d in Durability],
        help="when an append is acknowledged: sync, after it is on disk (default), or async",
    )
    up.add_argument(
        "--rebuilding",
        action=argparse.BooleanOptionalAction,
        help="re-replicate what nodes lose, and drain nodes when ldctl says so (default), or not",
    )
    up.add_argument(
        "--log-tree",
        action=argparse.BooleanOptionalAction,
        help="have logs that are made at run time (ldctl logs make), or not (default)",
    )
    up.add_argument("--store", choices=STORE_KINDS, help=f"what shards are stored in (default {STORE_KINDS[0]})")
    up.add_argument(
        "--secure",
        action=argparse.BooleanOptionalAction,
        help="TLS, certificates from an authority of the cluster's own, and permissions, or not (default)",
    )
    for name, text in [
        ("kill", "SIGKILL a node"),
        ("stop", "stop a node in order"),
        ("start", "start a node again, and wait until it serves"),
        ("restart", "stop a node in order, start it again, and wait until it serves"),
        ("pause", "SIGSTOP a node"),
        ("resume", "SIGCONT a node"),
        (
            "wipe",
            "kill a node, delete its data, start it again, and wait until it serves: it begins empty, as a new generation",
        ),
        ("remove", "take a node out of the cluster"),
    ]:
        command = commands.add_parser(name, help=text)
        if name in REGION_COMMANDS:
            argument = command.add_argument(
                "node", type=_node_or_region, metavar="NODE", help="like N0, or 0; or a region, for all nodes in it"
            )
        else:
            argument = command.add_argument("node", type=_node, metavar="NODE", help="like N0, or 0")
        complete_words(argument, Words.NODES)
        _directory(command)
        if name == "remove":
            command.add_argument(
                "--without-drain",
                action="store_true",
                help="also when it was not drained, or records may have no copy elsewhere",
            )
    cut_off = commands.add_parser(
        "cut-off", help="lose all that passes between a region and the others; see up --regions"
    )
    cut_off.add_argument("region", metavar="REGION")
    cut_off.add_argument("--to", metavar="REGION", help="only what it sends to this one")
    _directory(cut_off)
    reconnect = commands.add_parser("reconnect", help="end what cut-off does to a region")
    reconnect.add_argument("region", metavar="REGION")
    _directory(reconnect)
    add = commands.add_parser("add", help="a further node")
    _directory(add)
    add.add_argument("--location", help="region.datacenter.cluster.row.rack (default: where fewest nodes are)")
    logs = commands.add_parser("logs", help="print what nodes log, also of a cluster that does not run")
    complete_words(
        logs.add_argument("nodes", type=_node, nargs="*", metavar="NODE", help="like N0, or 0 (default: all nodes)"),
        Words.NODES,
    )
    _directory(logs)
    logs.add_argument("-f", "--follow", action="store_true", help="go on with what they log, until interrupted")
    logs.add_argument(
        "-n",
        "--lines",
        type=_lines,
        default=10,
        metavar="N",
        help="how many lines of each node to begin with (default: 10)",
    )
    rolling = commands.add_parser(
        "rolling-restart",
        help="restart nodes one after the other, each when it is safe; run again it goes on, as ldctl rolling-restart",
    )
    complete_words(
        rolling.add_argument("nodes", type=_node, nargs="*", metavar="NODE", help="like N0, or 0 (default: all nodes)"),
        Words.NODES,
    )
    _directory(rolling)
    rolling.add_argument("--abandon", action="store_true", help="end the rolling restart under way")
    status = commands.add_parser(
        "status", help="the nodes, their processes and what is wrong; exit status as of ldctl status"
    )
    _directory(status)
    status.add_argument("--json", action="store_true", help="one JSON array")
    return options


def main(argv: list[str] | None = None) -> int:
    """The program; its exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    if arguments.dir is None:
        options.error("say where the cluster lives: --dir DIR")
    directory: Path = arguments.dir
    try:
        if arguments.command == "up":
            return asyncio.run(_up(arguments))
        if arguments.command == "status":
            return _status(directory, as_json=arguments.json)
        if arguments.command == "rolling-restart":
            return asyncio.run(restart_in_turn(directory, arguments.nodes, abandon=arguments.abandon))
        if arguments.command == "logs":
            show_logs(directory, arguments.nodes, count=arguments.lines, follow=arguments.follow)
        elif arguments.command == "add":
            print(ask(directory, "add", location=arguments.location))
        elif arguments.command == "remove":
            print(ask(directory, "remove", node=arguments.node, without_drain=arguments.without_drain))
        elif arguments.command in ("cut-off", "reconnect"):
            target = {"to": arguments.to} if arguments.command == "cut-off" and arguments.to else {}
            print(ask(directory, arguments.command, region=arguments.region, **target))
        else:
            whom = "region" if isinstance(arguments.node, str) else "node"
            print(ask(directory, arguments.command, **{whom: arguments.node}))
        return 0
    except BrokenPipeError:  # who reads has enough
        discard_output()
        return 0
    except CommandError as error:
        print(f"ld-dev-cluster: {error}", file=sys.stderr)
        return error.exit_status
    except LogDeviceError as error:
        print(f"ld-dev-cluster: {error.detail or error}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"ld-dev-cluster: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"ld-dev-cluster: {explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _status(directory: Path, *, as_json: bool) -> int:
    """Print the processes, and what is wrong with the cluster: not healthy, too, while a node does not run."""
    rows = ask(directory, "status")
    running = [NodeId(row["node"]) for row in rows if row["state"] == "running"]
    config = current_config(directory)
    access = AdminAccess.of_program(layout.cluster_file(directory))
    asked = [node for node in running if node in config.nodes]
    health = asyncio.run(cluster_health(config, access, HEALTH_TIMEOUT, asked))
    troubles = {row["node"]: row["troubles"] for row in health.rows}
    for row in rows:
        row["troubles"] = troubles.get(f"N{row['node']}", [])
    if as_json:
        print(json.dumps(rows))
    else:
        for row in rows:
            process = f"process {row['process']}" if row["process"] else ""
            print(f"N{row['node']:<3} {row['state']:<20} {row['address']:<22} {row['location']:<28} {process}")
    for text in health.told():
        print(f"ld-dev-cluster: {text}", file=sys.stderr)
    if health.exit_status == EXIT_OK and len(running) < len(rows):
        return EXIT_UNHEALTHY
    return health.exit_status


def _new_config(directory: Path, arguments: argparse.Namespace, played: PlayedRegions | None) -> ClusterConfig:
    regions: list[str] = arguments.regions or []
    usual = NODES_OF_A_REGION * len(regions) if regions else NODES
    nodes = usual if arguments.nodes is None else arguments.nodes
    racks = RACKS if arguments.racks is None else arguments.racks
    brought = zookeeper_url(directory, played.servers) if played is not None and played.servers else None
    return make_config(
        directory,
        nodes=nodes,
        logs=LOGS if arguments.logs is None else arguments.logs,
        replicate=arguments.replicate or default_replication(nodes, racks, len(regions)),
        racks=racks,
        epoch_store=arguments.epoch_store or brought,
        durability=Durability[(arguments.durability or "sync").upper()],
        rebuilding=arguments.rebuilding is not False,
        log_tree=arguments.log_tree is True,
        store=arguments.store or STORE_KINDS[0],
        secure=arguments.secure is True,
        regions=regions,
        forwarded=played is not None and played.forwarded,
    )


def _options_of(config: ClusterConfig) -> dict[str, object]:
    """The options that would make the cluster."""
    return {
        "nodes": len(config.nodes),
        "logs": len(config.logs),
        "replicate": str(config.logs.defaults.get("replication")),
        "racks": len({member.location.labels[-1] for member in config.nodes.values()}),
        "epoch-store": config.epoch_store,
        "durability": Durability(config.logs.defaults.get("durability", Durability.SYNC)).name.lower(),
        "rebuilding": NodeSettings.of(config.settings).rebuilding.enabled,
        "log-tree": config.has_log_tree,
        "store": NodeSettings.of(config.settings).log_store.store,
        "secure": is_secure(config),
        "regions": regions_of(config),
    }


def _described(config: ClusterConfig) -> str:
    has = _options_of(config)
    regions = regions_of(config)
    where = f"{len(regions)} regions ({', '.join(regions)})" if len(regions) > 1 else f"{has['racks']} racks"
    return (
        f"{has['nodes']} nodes in {where}, {has['logs']} logs, "
        f"replicated {has['replicate']}, durability {has['durability']}, rebuilding {'on' if has['rebuilding'] else 'off'}"
    )


def _existing_config(directory: Path, arguments: argparse.Namespace) -> ClusterConfig:
    """The cluster that is in the directory.

    Raises:
        LogDeviceError: its file cannot be read.
        ValueError: an option says otherwise, or the file was made for another directory.
    """
    config = current_config(directory)
    hosts = {member.host for member in config.nodes.values()}
    played = PlayedRegions.read(directory)
    host_of = partial(layout.node_host, directory) if played is None else partial(played.host_of, directory)
    if not any(member.host == host_of(node) for node, member in config.nodes.items()):
        was = config.epoch_store.removeprefix("sqlite://").removesuffix("/epochs.sqlite")
        where = (
            f"{was} (its nodes are at {min(hosts)}, ...)"
            if was != config.epoch_store
            else f"nodes at {min(hosts)}, ..."
        )
        raise ValueError(
            f"the cluster in {directory} was made for {where}: it would get in the way of the one there. "
            "Move it back, or name an empty directory"
        )
    has = _options_of(config)
    asked = {name: getattr(arguments, name.replace("-", "_")) for name in has}
    if asked["replicate"] is not None:
        asked["replicate"] = str(ReplicationProperty.parse(asked["replicate"]))
    wrong = [
        f"--{'' if value else 'no-'}{name} (it is {'on' if has[name] else 'off'})"
        if isinstance(has[name], bool)
        else f"--{name} {value} (it has {has[name]})"
        for name, value in asked.items()
        if value not in (None, has[name])
    ]
    if wrong:
        raise ValueError(
            f"there is a cluster in {directory} already, which is not changed by {', '.join(wrong)}. "
            "Leave that out to start the cluster as it is, edit its cluster.toml, or name another directory"
        )
    return config


def _played(directory: Path, arguments: argparse.Namespace, *, exists: bool) -> PlayedRegions | None:
    """What regions are played; None: there are none.

    Raises:
        ValueError: an option is malformed, or regions cannot be played.
    """
    known = PlayedRegions.read(directory) if exists else None
    if known is None and (exists or not arguments.regions):
        if arguments.rtt or arguments.bandwidth or arguments.no_namespaces:
            raise ValueError(
                "--rtt, --bandwidth and --no-namespaces are between regions: say which, like --regions us,eu,ap"
            )
        return None
    distances = Distances.parse(
        arguments.rtt or (RTT if known is None else str(known.distances)),
        arguments.bandwidth or (None if known is None else known.distances.bandwidth_text),
    )
    unknown = () if known is not None else distances.regions.difference(arguments.regions)
    if unknown:
        raise ValueError(f"--rtt: there is no region {min(unknown)}")
    problem = why_no_regions()
    if known is None:
        forwarded = arguments.no_namespaces or problem is not None
        servers = () if arguments.epoch_store or forwarded else tuple(arguments.regions)
        known = PlayedRegions(distances, servers, forwarded)
    if known.forwarded:
        why = "" if problem is None else f": {problem}"
        print(f"connections between regions are forwarded, not packets{why}", file=sys.stderr)
    else:
        problem = problem or (why_no_zookeeper() if known.servers else None)
        if problem is not None:
            raise ValueError(f"--regions: {problem}")
    return dataclasses.replace(known, distances=distances)


async def _listen(supervisor: Supervisor, directory: Path) -> None:
    try:
        await supervisor.listen()
    except OSError as error:
        try:
            await asyncio.to_thread(ask, directory, "status")
        except CommandError:
            address = f"{layout.control_host(directory)}:{layout.CONTROL_PORT}"
            why = os.strerror(error.errno) if error.errno else str(error)
            raise CommandError(f"cannot listen at {address}, where commands come in: {why}") from None
        raise CommandError(
            f"a cluster runs in {directory} already; ld-dev-cluster status --dir {directory} shows it"
        ) from None


async def _until_ready(supervisor: Supervisor, path: Path) -> None:
    await wait_until_acquainted(
        supervisor.config, supervisor.running, timeout=READY_TIMEOUT, access=supervisor.admin_access
    )
    await wait_until_writable(path, timeout=READY_TIMEOUT)


async def _up(arguments: argparse.Namespace) -> int:
    directory: Path = arguments.dir.resolve()
    path = layout.cluster_file(directory)
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"--dir: {directory} is no directory")
    exists = path.exists()
    played = _played(directory, arguments, exists=exists)
    config = _existing_config(directory, arguments) if exists else _new_config(directory, arguments, played)
    keep_files_private()
    directory.mkdir(parents=True, exist_ok=True)
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted.set)
    supervisor = Supervisor(directory, config) if played is None else RegionSupervisor(directory, config, played)
    await _listen(supervisor, directory)
    if exists:
        print(f"starting the cluster in {directory} again: {_described(config)}", file=sys.stderr)
    else:
        print(f"a cluster in {directory}: {_described(config)}", file=sys.stderr)
        write_cluster_file(directory, config)
    if played is not None:
        played.write(directory)
    make_identities(directory, config)
    status = 0
    try:
        await supervisor.start_all()
        ready = asyncio.create_task(_until_ready(supervisor, path))
        stop = asyncio.create_task(interrupted.wait())
        alone = asyncio.create_task(supervisor.wait_until_none_runs())
        await asyncio.wait([ready, stop, alone], return_when=asyncio.FIRST_COMPLETED)
        problem = None
        if ready.done():
            problem = ready.exception()
        elif alone.done():
            problem = CommandError("every node ended")
        if problem is not None:
            text = problem.detail if isinstance(problem, LogDeviceError) else str(problem)
            print(f"ld-dev-cluster: {text}; see {directory}/n*.log", file=sys.stderr)
            status = 1
        elif ready.done():
            print(f"ready {path}", flush=True)
            print(f"console {console_url(supervisor.config)}", file=sys.stderr)
            await stop
        for task in (ready, stop, alone):
            task.cancel()
        await asyncio.gather(ready, stop, alone, return_exceptions=True)
    finally:
        print("stopping", file=sys.stderr)
        await supervisor.stop_all()
    return status


if __name__ == "__main__":
    sys.exit(main())
