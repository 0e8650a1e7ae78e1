"""``ld-dev-cluster``: a cluster of real processes on this machine, to try things and to break them.

``up`` stays until SIGINT or SIGTERM; the other commands talk to it from another terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import uuid
from pathlib import Path

from logdevice_py.config.cluster import ClusterConfig, MetadataLogConfig, NodeConfig, default_metadata_nodeset
from logdevice_py.config.location import Location
from logdevice_py.config.logs import Durability, LogTree
from logdevice_py.config.parse import load_cluster, render_cluster
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError
from server import layout
from server.readiness import wait_until_writable
from server.supervisor import CommandError, Supervisor, ask, write_cluster_file

READY_TIMEOUT = 120.0
"""Seconds that all logs together get to become writable."""


def make_config(
    directory: Path,
    *,
    nodes: int,
    logs: int,
    replicate: str,
    racks: int,
    epoch_store: str | None,
    durability: Durability = Durability.SYNC,
) -> ClusterConfig:
    """The first version of a development cluster's file.

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
    replication = ReplicationProperty.parse(replicate)
    members = {
        NodeId(index): NodeConfig(
            node=NodeId(index),
            host=layout.node_host(directory, NodeId(index)),
            port=layout.NODE_PORT,
            location=Location.parse(f"dev.dc.cluster.row.rack{index % racks}"),
        )
        for index in range(nodes)
    }
    config = ClusterConfig(
        name="dev",
        uuid=uuid.uuid4().bytes,
        version=1,
        nodes=members,
        logs=LogTree.build(
            defaults={"replication": replication, "durability": durability}, groups=[("/logs", 1, logs, {})]
        ),
        metadata_log=MetadataLogConfig(nodeset=default_metadata_nodeset(members), replication=replication),
        epoch_store=epoch_store or f"sqlite://{(directory / 'epochs.sqlite').resolve()}",
    )
    return load_cluster(render_cluster(config))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ld-dev-cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start a cluster and stay until interrupted")
    up.add_argument(
        "--dir", type=Path, required=True, help="where the cluster lives; an existing one is started again as it is"
    )
    up.add_argument("--nodes", type=int, default=5, help="how many nodes (default 5)")
    up.add_argument("--logs", type=int, default=8, help="logs 1 to LOGS exist (default 8)")
    up.add_argument("--replicate", default="rack:2,node:3", help="replication property (default rack:2,node:3)")
    up.add_argument("--racks", type=int, default=3, help="nodes are spread over so many racks (default 3)")
    up.add_argument("--epoch-store", help="zookeeper://HOST:PORT (default: a SQLite file in DIR)")
    up.add_argument(
        "--durability",
        choices=[d.name.lower() for d in Durability],
        default="sync",
        help="when an append is acknowledged",
    )
    for name, text in [
        ("kill", "SIGKILL a node"),
        ("stop", "stop a node in order"),
        ("start", "start a node again"),
        ("pause", "SIGSTOP a node"),
        ("resume", "SIGCONT a node"),
        ("remove", "take a node out of the cluster"),
    ]:
        command = commands.add_parser(name, help=text)
        command.add_argument("node", type=int, metavar="NODE", help="its number: 0 for N0")
        command.add_argument("--dir", type=Path, required=True)
    add = commands.add_parser("add", help="a further node")
    add.add_argument("--dir", type=Path, required=True)
    add.add_argument("--location", help="region.datacenter.cluster.row.rack (default: where fewest nodes are)")
    status = commands.add_parser("status", help="the nodes and their processes")
    status.add_argument("--dir", type=Path, required=True)
    status.add_argument("--json", action="store_true", help="one JSON array")
    return parser


def main(argv: list[str] | None = None) -> int:
    """The program; its exit status."""
    arguments = _parser().parse_args(argv)
    directory: Path = arguments.dir
    try:
        if arguments.command == "up":
            return asyncio.run(_up(arguments))
        if arguments.command == "status":
            rows = ask(directory, "status")
            if arguments.json:
                print(json.dumps(rows))
            else:
                for row in rows:
                    process = f"process {row['process']}" if row["process"] else ""
                    print(f"N{row['node']:<3} {row['state']:<20} {row['address']:<22} {row['location']:<28} {process}")
            return 0
        if arguments.command == "add":
            print(ask(directory, "add", location=arguments.location))
        else:
            print(ask(directory, arguments.command, node=arguments.node))
        return 0
    except CommandError as error:
        print(f"ld-dev-cluster: {error}", file=sys.stderr)
        return 1
    except (LogDeviceError, ValueError) as error:
        print(f"ld-dev-cluster: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"ld-dev-cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


async def _up(arguments: argparse.Namespace) -> int:
    directory: Path = arguments.dir.resolve()
    path = layout.cluster_file(directory)
    if path.exists():
        config = load_cluster(path.read_text())
        print(f"starting the cluster in {directory} again, as its file describes it", file=sys.stderr)
    else:
        config = make_config(
            directory,
            nodes=arguments.nodes,
            logs=arguments.logs,
            replicate=arguments.replicate,
            racks=arguments.racks,
            epoch_store=arguments.epoch_store,
            durability=Durability[arguments.durability.upper()],
        )
        directory.mkdir(parents=True, exist_ok=True)
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    status = 0

    def interrupt() -> None:
        interrupted.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    supervisor = Supervisor(directory, config)
    try:
        await supervisor.listen()
    except OSError as error:
        raise CommandError(f"another cluster runs in {directory}, or its addresses are taken: {error}") from None
    if not path.exists():
        write_cluster_file(directory, config)
    try:
        await supervisor.start_all()
        ready = asyncio.create_task(wait_until_writable(path, timeout=READY_TIMEOUT))
        stop = asyncio.create_task(interrupted.wait())
        await asyncio.wait([ready, stop], return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
        elif ready.exception() is not None:
            print(f"ld-dev-cluster: {ready.exception()}; see {directory}/n*.log", file=sys.stderr)
            status = 1
            interrupted.set()
        else:
            print(f"ready {path}", flush=True)
        await stop
    finally:
        print("stopping", file=sys.stderr)
        await supervisor.stop_all()
    return status


if __name__ == "__main__":
    sys.exit(main())
