"""Verbs about groups of logs: they change the cluster file."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from client.cli.options import Words, complete_words
from client.cli.program import EXIT_OK, say
from ldquery.ctl.configuration_change import edit_stored
from ldquery.ctl.verb import PROGRAM, Verb, access_of, show, show_rows, without_unit
from logdevice_py.config.attributes import ATTRIBUTES, render_attribute
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.edit import LogTreeEdit, attribute, parse_assignment
from logdevice_py.config.logs import LogGroup, parse_ids
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.durable_file import write_durably

if TYPE_CHECKING:
    from client.admin_access import AdminAccess
    from client.client import Client

_SHOWN: Final = ("path", "ids", "replicate", "durability", "backlog")
_TAKEN_WITHIN: Final = 3.0
_LOOK_AGAIN: Final = 0.2
Change = Callable[[LogTreeEdit, argparse.Namespace], None]


def _ids_argument(text: str) -> tuple[int, int]:
    found = parse_ids(text)
    if found is None or found[0] > found[1]:
        raise argparse.ArgumentTypeError(f"{text!r}: write ids like 1..8, the lower one first, or a single number")
    return found


def _assignment_argument(text: str) -> tuple[str, Any]:
    try:
        return parse_assignment(text)
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def attribute_argument(text: str) -> str:
    """The key of an attribute that a person names."""
    try:
        return attribute(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# list


def _list_options(options: argparse.ArgumentParser) -> None:
    complete_words(
        options.add_argument("path", metavar="PATH", nargs="?", default="", help="only this group, or those below it"),
        Words.PATHS,
    )


async def _list(client: Client, arguments: argparse.Namespace) -> int:
    prefix = arguments.path.rstrip("/")
    if client.config.has_log_tree:
        await client.list_logs(timeout=arguments.timeout)  # after it this client knows what is there
    found = [group for group in client.config.groups() if f"{group.path}/".startswith(f"{prefix}/")]
    if prefix and not found:
        raise LogDeviceError(Status.NOTFOUND, f"{prefix}: there are no logs there; ldctl logs list shows all")
    rows = [_row(group) for group in found]
    if client.log_tree is not None:
        for row, group in zip(rows, found, strict=True):
            made = client.log_tree.group(group.lo)
            row["version"] = None if made is None else str(made.version)
    if not arguments.json:
        for group, row in zip(found, rows, strict=True):
            row["backlog"] = row["backlog"] if group.attributes.backlog_us else "for ever"
    show_rows(arguments, rows, _SHOWN)
    return EXIT_OK


def _row(group: LogGroup) -> dict[str, Any]:
    ids = str(group.lo) if group.lo == group.hi else f"{group.lo}..{group.hi}"
    held = (render_attribute(field.name, getattr(group.attributes, field.name)) for field in ATTRIBUTES.values())
    own = sorted(render_attribute(name, value)[0] for name, value in group.overrides.items())
    row = {without_unit(name): value for name, value in held}
    return {"path": group.path, "ids": ids, **row, "set here": [without_unit(name) for name in own]}


# Changes


@contextmanager
def _locked(path: Path) -> Iterator[TextIO]:
    """The file, open, while no other ldctl changes it."""
    while True:
        try:
            file = path.open(encoding="utf-8")
        except OSError as error:
            raise LogDeviceError(Status.INVALID_CONFIG, f"{path}: {error.strerror}") from None
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                yield file
                return


def rewrite(path: Path, edited: Callable[[str], str]) -> ClusterConfig:
    """Replace the cluster file by another version of it, while no other ldctl does; what it says then."""
    path = path.resolve()
    with _locked(path) as file:
        try:
            text = edited(file.read())
        except UnicodeDecodeError as error:
            raise LogDeviceError(Status.INVALID_CONFIG, f"{path}: no text in UTF-8: {error}") from None
        except LogDeviceError as error:
            if error.status is not Status.INVALID_CONFIG:
                raise  # what was asked for is wrong, not the file
            raise LogDeviceError(error.status, f"{path}: {error.detail}") from None
        try:
            write_durably(path, text, alone=True)
        except OSError as error:
            raise LogDeviceError(Status.FAILED, f"{path} cannot be written: {error.strerror}") from None
    return load_cluster(text)


def _changed(change: Change, done: str) -> Callable[[Client, argparse.Namespace], Awaitable[int]]:
    async def run(client: Client, arguments: argparse.Namespace) -> int:
        def edited(text: str) -> str:
            edit = LogTreeEdit(text)
            change(edit, arguments)
            return edit.finish()

        stored = await edit_stored(client, arguments, edited, f"logs {arguments.path}: {done}")
        if stored is not None:
            result = {"path": arguments.path, "done": done, "version": stored.version, "late": []}
            show(arguments, result, plain=f"{arguments.path}: {done}, in configuration version {stored.version}")
            return EXIT_OK
        access = access_of(arguments)
        config = await asyncio.to_thread(rewrite, Path(arguments.config), edited)
        late = await _late(config, access, arguments.timeout or _TAKEN_WITHIN)
        result = {"path": arguments.path, "done": done, "version": config.version, "late": late}
        show(arguments, result, plain=f"{arguments.path}: {done}, in version {config.version} of {arguments.config}")
        if late:
            say(PROGRAM, f"{', '.join(late)} did not say that they use it: each machine needs the same file")
        return EXIT_OK

    return run


async def _late(config: ClusterConfig, access: AdminAccess, seconds: float) -> list[str]:
    """Nodes with an admin API of which it is not known after a while that they use the version."""
    from client.node_tables import NodeAsker, as_dicts
    from logdevice_py.tables.catalog import TABLES
    from logdevice_py.tables.constraints import EVERYTHING

    table = TABLES["info"]
    missing = [node for node, member in config.nodes.items() if member.admin_port is not None]
    asker = NodeAsker(config, access)
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    try:
        while True:
            left = max(0.05, ends - loop.time())
            rows, failures = await asker.ask_each(table, missing, EVERYTHING, None, left)
            versions = {row["node_id"]: row["config_version"] for row in as_dicts(table, rows)}
            using = {node for node, used in versions.items() if isinstance(used, int) and used >= config.version}
            missing = [node for node in missing if node not in using]
            refused = {failure.node for failure in failures if failure.status is Status.CONNFAILED}
            if all(node in refused for node in missing) or loop.time() >= ends:
                return [f"N{node}" for node in missing]
            await asyncio.sleep(_LOOK_AGAIN)
    finally:
        await asker.close()


def set_option(options: argparse.ArgumentParser) -> None:
    """``--set NAME=VALUE``, with what was given as `attributes`."""
    options.add_argument(
        "--set",
        metavar="NAME=VALUE",
        dest="attributes",
        type=_assignment_argument,
        action="append",
        default=[],
        help="an attribute, as in the cluster file without quotes, like replicate=node:3; may be given several times",
    )


def unset_option(options: argparse.ArgumentParser) -> None:
    """``--unset NAME``."""
    options.add_argument(
        "--unset",
        metavar="NAME",
        type=attribute_argument,
        action="append",
        default=[],
        help="an attribute for which the directories above hold again; may be given several times",
    )


def _create_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("path", metavar="PATH", help="like /team/clicks")
    options.add_argument("--ids", metavar="IDS", type=_ids_argument, help="like 1..8; without, a directory is made")
    set_option(options)


def _create(edit: LogTreeEdit, arguments: argparse.Namespace) -> None:
    edit.create(arguments.path, arguments.ids, dict(arguments.attributes))


def _update_options(options: argparse.ArgumentParser) -> None:
    complete_words(options.add_argument("path", metavar="PATH", help="of the group or directory"), Words.PATHS)
    options.add_argument("--ids", metavar="IDS", type=_ids_argument, help="other ids for the group; those it has stay")
    set_option(options)
    unset_option(options)


def _update(edit: LogTreeEdit, arguments: argparse.Namespace) -> None:
    if arguments.ids is None and not arguments.attributes and not arguments.unset:
        raise LogDeviceError(Status.INVALID_PARAM, "nothing to change: give --set, --unset or --ids")
    if arguments.ids is not None:
        group = next((group for group in edit.config.logs.groups if group.path == arguments.path), None)
        lo, hi = arguments.ids
        if group is not None and not lo <= group.lo <= group.hi <= hi:
            raise LogDeviceError(
                Status.INVALID_PARAM,
                f"{arguments.path}: has the logs {group.lo}..{group.hi}, which {lo}..{hi} does not contain: logs are taken out with logs delete only",
            )
    edit.update(arguments.path, arguments.ids, dict(arguments.attributes), tuple(arguments.unset))


def _delete_options(options: argparse.ArgumentParser) -> None:
    complete_words(options.add_argument("path", metavar="PATH", help="of the group or directory"), Words.PATHS)
    options.add_argument("--yes", action="store_true", help="really")


def _delete(edit: LogTreeEdit, arguments: argparse.Namespace) -> None:
    group = next((group for group in edit.config.logs.groups if group.path == arguments.path), None)
    if group is not None and not arguments.yes:
        raise LogDeviceError(
            Status.INVALID_PARAM,
            f"{arguments.path}: its {len(group)} logs could be neither written nor read any more, and nodes delete their records a while later "
            "(removed_logs_grace_us in [settings.storage]). Until then logs create with the same ids brings them back. Give --yes to do it",
        )
    edit.delete(arguments.path)


_FILE: Final = (
    "The cluster file gets a higher version, in one step; its comments stay. Nodes that see this file use it within a second; copy it to "
    "other machines. Where the configuration is stored (ldctl config), that is changed instead."
)
VERBS: tuple[Verb, ...] = (
    Verb(
        "logs list",
        "groups of logs and what holds for them",
        "Print the groups of logs of the cluster file and of the log tree. With --json all attributes that hold for each, and which it sets itself.",
        _list_options,
        _list,
    ),
    Verb(
        "logs create",
        "add a group of logs, or a directory",
        f"Add a group of logs to the cluster file. {_FILE}",
        _create_options,
        _changed(_create, "created"),
    ),
    Verb(
        "logs update",
        "change attributes of a group or directory",
        f"Change what a group or directory sets itself. {_FILE}",
        _update_options,
        _changed(_update, "updated"),
    ),
    Verb(
        "logs delete",
        "take a group of logs out",
        f"Take a group or directory out of the cluster file. Nodes delete the records of logs that are not in it any more after some days. {_FILE}",
        _delete_options,
        _changed(_delete, "deleted"),
    ),
)
