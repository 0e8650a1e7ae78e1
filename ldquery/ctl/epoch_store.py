"""``ldctl epoch-store``: copies of the epoch store, and restoring it without giving an epoch twice."""

from __future__ import annotations

import argparse
import secrets
import socket
import time
from pathlib import Path
from typing import Final

from client.cli.program import EXIT_FAILED, EXIT_OK, say
from ldquery.ctl.private_file import read_text, write_text
from ldquery.ctl.verb import PROGRAM, Verb, show, show_rows
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import InstanceId, NodeId, ShardId, format_shard, parse_shard
from logdevice_py.core.status import LogDeviceError, Status

_DIAL_SECONDS: Final = 1.0


def _cluster(arguments: argparse.Namespace) -> ClusterConfig:
    try:
        return load_cluster(Path(arguments.config).read_text())
    except OSError as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"{arguments.config}: {error.strerror}") from None


def _export_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("file", type=Path, metavar="FILE", help="the copy; replaced when it is there")


async def _export(_: None, arguments: argparse.Namespace) -> int:
    from epoch_store.all_cells import read_cells
    from epoch_store.backup import EpochStoreCopy
    from epoch_store.zookeeper_access import zookeeper_access_of_tool
    from logdevice_py.core.units import Timestamp

    config = _cluster(arguments)
    access = zookeeper_access_of_tool(Path(arguments.config), config)
    taken = Timestamp(time.time_ns() // 1_000)
    copy = EpochStoreCopy(config.name, config.uuid, taken, read_cells(config.epoch_store, config.name, access))
    write_text(arguments.file, copy.to_text())
    show(
        arguments,
        {"file": str(arguments.file), "cells": len(copy.cells), "taken_time": taken},
        plain=f"{arguments.file}: {len(copy.cells)} cells",
    )
    return EXIT_OK


def _shard(text: str) -> ShardId:
    try:
        return parse_shard(text if ":" in text else f"{text}:S0")
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no shard: write N3:S0") from None


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) > 1_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of epochs: 0 to 1000")
    return int(text)


def _import_options(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="the copy; none where there is no copy at all: everything is from the disks",
    )
    options.add_argument(
        "--disks",
        type=Path,
        nargs="+",
        default=[],
        metavar="REPORT",
        help="what logdeviced --report-epochs printed on each machine",
    )
    options.add_argument(
        "--missing",
        type=_shard,
        action="append",
        default=[],
        metavar="SHARD",
        help="a shard whose disk is lost or out of reach, like N3:S0; may be given several times",
    )
    options.add_argument(
        "--beyond", type=_count, metavar="N", help="how many epochs are left out where shards are missing (default: 16)"
    )
    options.add_argument("--dry-run", action="store_true", help="say what would be stored, and store nothing")


async def _import(_: None, arguments: argparse.Namespace) -> int:
    from epoch_store.all_cells import write_cells
    from epoch_store.backup import BEYOND_MISSING, DiskReport, EpochStoreCopy, restore
    from epoch_store.cells import WriteId
    from epoch_store.interface import WriterIdentity
    from epoch_store.zookeeper_access import zookeeper_access_of_tool
    from logdevice_py.core.units import Timestamp

    config = _cluster(arguments)
    if str(arguments.file) == "none":
        copy = EpochStoreCopy(config.name, config.uuid, Timestamp(0), {})
    else:
        copy = EpochStoreCopy.parse(read_text(arguments.file))
    if copy.uuid != config.uuid or copy.cluster != config.name:
        raise LogDeviceError(
            Status.INVALID_CLUSTER, f'{arguments.file} is a copy of the cluster "{copy.cluster}" ({copy.uuid.hex()})'
        )
    reports = [DiskReport.parse(line) for path in arguments.disks for line in read_text(path).splitlines()]
    running = _running(config)
    if running and not arguments.dry_run:
        say(
            PROGRAM,
            f"{', '.join(running)}: something listens there: stop all nodes first, or an epoch may be given twice",
            alarm=True,
        )
        return EXIT_FAILED
    writer = WriteId(WriterIdentity(NodeId(-1), InstanceId(secrets.randbits(62))), 1)
    beyond = BEYOND_MISSING if arguments.beyond is None else arguments.beyond
    missing = frozenset(arguments.missing)
    restored = restore(copy, reports, writer, missing=missing, beyond=beyond)
    if not arguments.dry_run:
        access = zookeeper_access_of_tool(Path(arguments.config), config)
        write_cells(config.epoch_store, config.name, restored.cells, access)
    rows = [
        {"log_id": log, "copied": before or None, "next": after}
        for log, (before, after) in sorted(restored.moved.items())
    ]
    if rows:
        show_rows(arguments, rows)
    for shard in restored.generations:
        say(PROGRAM, f"{format_shard(shard)}: its generation is that of its disk")
    say(
        PROGRAM,
        f"{len(restored.cells)} cells {'would be' if arguments.dry_run else 'are'} in {config.epoch_store}; "
        f"{len(rows)} logs go on further than the copy says",
    )
    return EXIT_OK


def _running(config: ClusterConfig) -> list[str]:
    """Nodes at whose addresses something listens."""
    found = []
    for node, member in sorted(config.nodes.items()):
        try:
            with socket.create_connection((member.host, member.port), timeout=_DIAL_SECONDS):
                found.append(f"N{node}")
        except (OSError, UnicodeError):  # UnicodeError: the host is no name
            continue
    return found


VERBS: tuple[Verb, ...] = (
    Verb(
        "epoch-store export",
        "copy the epoch store into a file",
        "Copy all that the epoch store holds of this cluster into a file, for its owner alone. Nodes may run, and do not notice. Do it daily, and after nodes were added or removed.",
        _export_options,
        _export,
        needs_client=False,
    ),
    Verb(
        "epoch-store import",
        "restore the epoch store from a copy and from what the disks know",
        "Fill an empty epoch store from a copy and from the reports of all disks, so that no epoch is given twice although the copy is older than the last activations. No node may run, from the reports on. "
        "Prints the logs that go on further than the copy says.",
        _import_options,
        _import,
        needs_client=False,
    ),
)
