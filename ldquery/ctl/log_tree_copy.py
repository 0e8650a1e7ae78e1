"""``ldctl logs export`` and ``import``: names and attributes of the logs that were made at run time, as a file."""

from __future__ import annotations

import argparse
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from client.cli.program import EXIT_FAILED, EXIT_OK, say
from ldquery.ctl.private_file import read_text, write_text
from ldquery.ctl.verb import PROGRAM, Verb, show, show_rows
from logdevice_py.core.status import LogDeviceError, Status

if TYPE_CHECKING:
    from client.client import Client
    from client.log_tree.client_log_tree import LogTreeEntry

_KIND: Final = "log tree"
_VERSION: Final = 1


def _file_option(options: argparse.ArgumentParser) -> None:
    options.add_argument("file", type=Path, metavar="FILE", help="an object of JSON a line")


def _ids(entry: LogTreeEntry) -> str | None:
    if not entry.logs:
        return None
    return str(entry.lo) if entry.lo == entry.hi else f"{entry.lo}..{entry.hi}"


async def _entries(client: Client, path: str, timeout: float | None) -> AsyncIterator[LogTreeEntry]:
    """What the tree has below a directory, directories before what is in them."""
    for entry in await client.list_logs(path, timeout=timeout):
        if entry.state == "live":
            yield entry
            if not entry.logs:
                async for below in _entries(client, entry.path, timeout):
                    yield below


async def _export(client: Client, arguments: argparse.Namespace) -> int:
    root = await client.get_log_group("/", timeout=arguments.timeout)
    found = [root] if root.own else []
    found += [entry async for entry in _entries(client, "/", arguments.timeout)]
    lines = [{"kind": _KIND, "version": _VERSION, "cluster": client.config.name}]
    lines += [
        {"path": each.path, "logs": len(each.logs), "ids": _ids(each), "attributes": dict(each.own)} for each in found
    ]
    write_text(arguments.file, "".join(f"{json.dumps(line)}\n" for line in lines))
    groups = sum(bool(each.logs) for each in found)
    show(
        arguments,
        {"file": str(arguments.file), "groups": groups, "directories": len(found) - groups},
        plain=f"{arguments.file}: {groups} groups of logs and {len(found) - groups} directories",
    )
    return EXIT_OK


def _parsed(text: str) -> list[dict[str, Any]]:
    try:
        head, *lines = map(json.loads, text.splitlines())
        if (head["kind"], head["version"]) != (_KIND, _VERSION):
            raise ValueError(f"kind {head['kind']}, version {head['version']}")
        for line in lines:
            if type(line["path"]) is not str or type(line["logs"]) is not int or type(line["attributes"]) is not dict:
                raise ValueError(f"not an entry: {line}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LogDeviceError(Status.INVALID_PARAM, f"this is no export of a log tree: {error}") from None
    return lines


def _import_options(options: argparse.ArgumentParser) -> None:
    _file_option(options)
    options.add_argument("--dry-run", action="store_true", help="say what would be made, and make nothing")


async def _import(client: Client, arguments: argparse.Namespace) -> int:
    rows, differing = [], []
    for line in _parsed(read_text(arguments.file)):
        there = await _find(client, line["path"], arguments.timeout)
        if there is not None and (line["path"] != "/" or there.own):
            if (len(there.logs), dict(there.own)) != (line["logs"], line["attributes"]):
                differing.append(line["path"])
            continue
        ids = None if arguments.dry_run else await _make(client, line, arguments.timeout)
        rows.append({"path": line["path"], "were": line.get("ids"), "ids": ids})
    if rows:
        show_rows(arguments, rows)
    if differing:
        say(
            PROGRAM,
            f"there with other attributes or another number of logs, and left so: {', '.join(differing)}",
            alarm=True,
        )
        return EXIT_FAILED
    return EXIT_OK


async def _find(client: Client, path: str, timeout: float | None) -> LogTreeEntry | None:
    try:
        return await client.get_log_group(path, timeout=timeout)
    except LogDeviceError as error:
        if error.status is not Status.NOTFOUND:
            raise
        return None


async def _make(client: Client, line: dict[str, Any], timeout: float | None) -> str | None:
    path, attributes = line["path"], line["attributes"]
    if path == "/":
        await client.set_attributes(path, attributes, timeout=timeout)
        return None
    if not line["logs"]:
        await client.make_directory(path, attributes, parents=True, timeout=timeout)
        return None
    return _ids(await client.make_log_group(path, line["logs"], attributes, parents=True, timeout=timeout))


VERBS: tuple[Verb, ...] = (
    Verb(
        "logs export",
        "write names and attributes of the logs of the log tree into a file",
        "Write directories and groups of the log tree, with their ids and what they set, into a file. Records are not copied.",
        _file_option,
        _export,
    ),
    Verb(
        "logs import",
        "make the logs of such a file that are missing",
        "Make the directories and groups of a file of logs export that are not there, in this cluster or another, and print the ids that logs had and that they get: no id is given twice, so they are new ones. "
        "What is there is left as it is; exit status 1 where it differs.",
        _import_options,
        _import,
    ),
)
