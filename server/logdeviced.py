"""``logdeviced``: the process of one node. It serves until SIGINT or SIGTERM, and then stops in order."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

from client.cli.options import version_option
from logdevice_py.config.admin import admin_settings
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from server.admin.start import open_admin
from server.configuration.begin import EpochStorePlace, known_configuration, parse_reach, write_cluster_file
from server.die_with_parent import die_with_parent
from server.duties.keeper import DutyKeeper
from server.epoch_report import report_epochs
from server.host import NodeHost
from server.log_lines import JSON, TEXT, formatter_of
from server.node_settings import NodeSettings
from server.open_files import allow_open_files, files_needed
from server.os_errors import explain
from server.private_files import keep_files_private
from storage_node.log_store.extents.opening import inspect_directory
from storage_node.log_store.identity import AcceptedLoss

SWITCH_INTERVAL = 0.0002
"""Seconds. With the default of 5 ms the thread that syncs starves beside a busy event loop: p99 of 41 ms instead of 11 ms, measured."""

GC_THRESHOLDS = (20_000, 20, 50)
"""Messages are freed by their reference counts; the default of 700 looks for cycles several times a millisecond under load."""

_ZOOKEEPER_AGAIN = 10.0
"""Seconds until a line of kazoo is written again that says the same."""

log = logging.getLogger("logdevice")


def main(argv: list[str] | None = None) -> int:
    """The program; its exit status."""
    parser = argparse.ArgumentParser(prog="logdeviced", description=__doc__)
    version_option(parser)
    parser.add_argument(
        "-c",
        "--config",
        type=Path,
        help="the cluster file. With --epoch-store it is written when it is missing (default then: cluster.toml in the data directory)",
    )
    parser.add_argument("-n", "--node", type=int, help="which node of it this is: 0 for N0")
    parser.add_argument("--data", type=Path, help="where its shards are (default: data_dir of the cluster file)")
    parser.add_argument(
        "--epoch-store",
        metavar="URL",
        help="where the configuration is stored, in place of what a cluster file says: zookeeper://HOST:PORT[,HOST:PORT][/ROOT] or sqlite:///PATH",
    )
    parser.add_argument("--cluster", metavar="NAME", help="name of the cluster, with --epoch-store")
    parser.add_argument(
        "--security",
        action="append",
        default=[],
        type=_reach,
        metavar="KEY=VALUE",
        help="how ZooKeeper is reached, with --epoch-store: settings of [settings.security] such as zookeeper_auth_file=FILE; relative names begin beside the "
        "cluster file (may be repeated)",
    )
    parser.add_argument(
        "--accept-data-loss",
        action="append",
        default=[],
        metavar="SHARD=GENERATION",
        help="start although that generation of a shard is missing; it begins as the next one, empty. "
        "Like N2:S0=1 (may be repeated), or all: for clusters whose data nobody needs",
    )
    parser.add_argument(
        "--inspect",
        type=Path,
        metavar="DIR",
        help="serve nothing: check and show the store in extents of a shard's directory, and change nothing. Exit status 3: some of it is damaged",
    )
    parser.add_argument(
        "--report-epochs",
        action="store_true",
        help="serve nothing: print what the disks of the node know of epochs, for ldctl epoch-store import. The node must not run",
    )
    parser.add_argument("--die-with", type=int, metavar="PID", help="end when this parent process is gone")
    parser.add_argument(
        "--stand-at",
        metavar="ADDRESS",
        help="for development only: listen here, and dial others from here, while somebody forwards what comes for the address of the cluster file",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log details")
    parser.add_argument(
        "--log-lines",
        choices=(TEXT, JSON),
        default=TEXT,
        help="what a line of the node's log is: text, or a JSON object for programs that collect logs (default: text)",
    )
    arguments = parser.parse_args(argv)
    if arguments.inspect is not None:
        return _inspect(arguments.inspect)
    place = _place(parser, arguments)
    if arguments.config is None or arguments.node is None:
        parser.error("the following arguments are required: -c/--config (or --epoch-store), -n/--node")
    try:
        accepted = AcceptedLoss.parse(arguments.accept_data_loss)
    except ValueError as error:
        parser.error(f"--accept-data-loss: {error}")
    if not __debug__:
        print("logdeviced: do not run it with -O: its assertions protect the data", file=sys.stderr)
        return 2
    if arguments.report_epochs:
        return _report_epochs(arguments.config, NodeId(arguments.node), arguments.data)
    if arguments.die_with is not None:
        die_with_parent(arguments.die_with)
    logging.basicConfig(stream=sys.stderr, level=logging.DEBUG if arguments.verbose else logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter_of(arguments.log_lines, NodeId(arguments.node)))
    keep_files_private()
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(ZooKeeperLines())
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            opened = _open(
                arguments.config, NodeId(arguments.node), arguments.data, accepted, place, arguments.stand_at
            )
            return runner.run(_serve(opened))
    except LogDeviceError as error:
        why = str(error.detail or error)
    except OSError as error:
        why = explain(error)
    if arguments.log_lines == JSON:
        log.critical("%s", why)
    else:
        print(f"logdeviced: {why}", file=sys.stderr)
    return 1


def _reach(text: str) -> tuple[str, Any]:
    """For `argparse`."""
    try:
        return parse_reach(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _place(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> EpochStorePlace | None:
    """The epoch store that the node is told, and where its cluster file is then."""
    if arguments.epoch_store is None:
        if arguments.cluster is not None or arguments.security:
            parser.error("--cluster and --security stand with --epoch-store; else the cluster file says both")
        return None
    if arguments.cluster is None:
        parser.error("--epoch-store: --cluster says of which cluster the configuration is")
    if arguments.config is None:
        if arguments.data is None:
            parser.error("--epoch-store: --data says where the node's shards are")
        arguments.config = arguments.data / "cluster.toml"
    return EpochStorePlace(arguments.epoch_store, arguments.cluster, dict(arguments.security))


class ZooKeeperLines:
    """A filter: lines of kazoo do not say with whom a connection failed, and it says the same several times a second while it tries."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._told: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
        if record.name.partition(".")[0] != "kazoo":
            return True
        if not str(record.msg).startswith("ZooKeeper: "):
            record.msg = f"ZooKeeper: {record.msg}"
        text, now = record.getMessage(), self._now()
        self._told = {each: at for each, at in self._told.items() if now - at < _ZOOKEEPER_AGAIN}
        return self._told.setdefault(text, now) == now


def _inspect(directory: Path) -> int:
    try:
        report = inspect_directory(str(directory))
    except LogDeviceError as error:
        print(f"logdeviced: {error.detail}", file=sys.stderr)
        return 1
    for line in report.lines():
        print(line)
    return 3 if report.damaged else 1 if report.opens else 0


def _report_epochs(file: Path, node: NodeId, data: Path | None) -> int:
    keep_files_private()
    try:
        config, directory = known_configuration(file, node, data)
        if node not in config.nodes:
            raise LogDeviceError(Status.INVALID_CONFIG, f"there is no N{node} in {file}")
        if directory is None:
            raise LogDeviceError(Status.INVALID_CONFIG, f"N{node} has no data_dir in {file}: give --data")
        for report in report_epochs(config, node, directory):
            sys.stdout.write(report.to_text())
    except LogDeviceError as error:
        print(f"logdeviced: {error.detail}", file=sys.stderr)
        return 1
    return 0


def _allow_open_files(path: Path, node: NodeId, data: Path | None) -> None:
    config, _ = known_configuration(path, node, data)
    if node in config.nodes:  # that it is not is said when it is opened
        shards = len(config.nodes[node].shard_ids())
        allow_open_files(
            files_needed(NodeSettings.of(config.settings), admin_settings(config), shards, len(config.nodes))
        )


async def _open(
    config: Path,
    node: NodeId,
    data: Path | None,
    accepted: AcceptedLoss,
    place: EpochStorePlace | None,
    stand_at: str | None,
) -> NodeHost:
    if place is not None:
        await write_cluster_file(config, place, node)
    _allow_open_files(config, node, data)
    if stand_at is not None:
        log.warning("the node stands at %s and not at its address: this is for development only", stand_at)
    return await NodeHost.open(config, node, data, accepted, open_admin, place, stand_at)


async def _serve(opened: Coroutine[Any, Any, NodeHost]) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    stopping = asyncio.create_task(stop.wait())
    opening = asyncio.create_task(opened)
    await asyncio.wait([opening, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not opening.done():
        opening.cancel()  # it may wait for an epoch store that is away
        await asyncio.gather(opening, return_exceptions=True)
        return 0
    host = opening.result()
    loop.add_signal_handler(signal.SIGHUP, host.reload_config)
    gc.collect()
    gc.freeze()
    log.info("serving at %s:%d", *host.address)
    waiting: list[asyncio.Future[Any]] = [host.crashed, host.stop_wanted, stopping]
    async with DutyKeeper(host):
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if host.crashed.done():
        log.critical("the process ends at once so that nothing goes on half-way")
        return 1
    log.info("stopping")
    await host.close()
    log.info("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
