"""Verbs about logs that are made at run time: they change the log tree."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from client.cli.program import EXIT_OK
from client.replica.commands import StateVersion, version_field
from ldquery.ctl.groups import set_option, unset_option
from ldquery.ctl.verb import Verb, show
from logdevice_py.config.attributes import render_attribute
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status

if TYPE_CHECKING:
    from client.client import Client


def parse_version(text: str) -> StateVersion:
    """A version as it is printed, like e1n5+0."""
    lsn, _, offset = text.partition("+")
    try:
        return version_field(int(LSN.parse(lsn)), int(offset))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no version: logs list --json prints them, like e1n5+0") from None


def _expect_option(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--expect", metavar="VERSION", type=parse_version, help="change nothing unless it has this version"
    )


def _written(arguments: argparse.Namespace) -> dict[str, Any]:
    return dict(render_attribute(name, value) for name, value in arguments.attributes)


def _make_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("path", metavar="PATH", help="like /team/clicks")
    options.add_argument("--logs", metavar="N", type=int, default=1, help="how many logs the group has (default 1)")
    options.add_argument("--directory", action="store_true", help="make a directory, not a group")
    options.add_argument("--parents", action="store_true", help="make directories above it that are missing")
    set_option(options)


async def _make(client: Client, arguments: argparse.Namespace) -> int:
    path, sets, timeout = arguments.path, _written(arguments), arguments.timeout
    if arguments.directory:
        version = await client.make_directory(path, sets, parents=arguments.parents, timeout=timeout)
        show(arguments, {"path": path, "version": str(version)}, plain=f"{path}: made")
        return EXIT_OK
    made = await client.make_log_group(path, arguments.logs, sets, parents=arguments.parents, timeout=timeout)
    ids = str(made.lo) if made.lo == made.hi else f"{made.lo}..{made.hi}"
    show(arguments, {"path": path, "ids": ids, "version": str(made.version)}, plain=f"{path}: made, with ids {ids}")
    return EXIT_OK


def _set_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("path", metavar="PATH", help="of the group or directory; / for all logs of the tree")
    set_option(options)
    unset_option(options)
    _expect_option(options)


async def _set(client: Client, arguments: argparse.Namespace) -> int:
    if not arguments.attributes and not arguments.unset:
        raise LogDeviceError(Status.INVALID_PARAM, "nothing to change: give --set or --unset")
    version = await client.set_attributes(
        arguments.path,
        _written(arguments),
        unset=arguments.unset,
        expect=arguments.expect,
        timeout=arguments.timeout,
    )
    show(arguments, {"path": arguments.path, "version": str(version)}, plain=f"{arguments.path}: set")
    return EXIT_OK


def _rename_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("path", metavar="PATH", help="of the group or directory")
    options.add_argument("to", metavar="TO", help="a path that is free")
    _expect_option(options)


async def _rename(client: Client, arguments: argparse.Namespace) -> int:
    version = await client.rename(arguments.path, arguments.to, expect=arguments.expect, timeout=arguments.timeout)
    show(arguments, {"path": arguments.to, "version": str(version)}, plain=f"{arguments.path}: is {arguments.to} now")
    return EXIT_OK


def _remove_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("path", metavar="PATH", help="of the group, or of a directory that is empty")
    options.add_argument("--yes", action="store_true", help="really")
    _expect_option(options)


async def _remove(client: Client, arguments: argparse.Namespace) -> int:
    entry = await client.get_log_group(arguments.path, timeout=arguments.timeout)
    if entry.logs and not arguments.yes:
        raise LogDeviceError(
            Status.INVALID_PARAM,
            f"{arguments.path}: its {len(entry.logs)} logs could never be written or read again, and nodes delete their records a while later "
            "(removed_logs_grace_us in [settings.storage]). Give --yes to do it",
        )
    await client.remove(arguments.path, expect=arguments.expect, timeout=arguments.timeout)
    show(arguments, {"path": arguments.path, "removed": True}, plain=f"{arguments.path}: removed")
    return EXIT_OK


_TREE: Final = "All nodes and clients hear of it at once; the cluster file does not change. Needs enabled = true in [settings.log_tree]."
VERBS: tuple[Verb, ...] = (
    Verb(
        "logs make",
        "make a group of logs, or a directory, at run time",
        f"Make a group of logs and print its ids, which no log ever had. {_TREE}",
        _make_options,
        _make,
    ),
    Verb(
        "logs set",
        "change attributes of logs that were made at run time",
        f"Change what a group or directory sets itself. {_TREE}",
        _set_options,
        _set,
    ),
    Verb(
        "logs rename",
        "move a group or directory that was made at run time",
        f"Move a group, or a directory with all that is in it. Ids stay. {_TREE}",
        _rename_options,
        _rename,
    ),
    Verb(
        "logs remove",
        "remove a group or directory that was made at run time",
        "Remove a group with all its logs, or a directory that is empty. When it returns, no append that begins later is acknowledged by any node. With "
        f"exit status 4 it goes on: call it again to wait for it. {_TREE}",
        _remove_options,
        _remove,
    ),
)
