"""Verbs about nodes: they go over the nodes' admin APIs."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from client.cli.options import Words, complete_words
from client.cli.program import EXIT_FAILED, EXIT_OK, EXIT_UNANSWERED, exit_status, say
from ldquery.ctl.verb import PROGRAM, Verb, access_of, parse_node, say_of_nodes, show, show_rows, without_unit
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING

if TYPE_CHECKING:
    from client.client import Client
    from client.node_tables import NodeAsker

_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 30.0
_LOOK_AGAIN: Final = 0.1
_SHOWN: Final = ("node", "address", "roles", "readiness", "seen as", "up", "logs", "shards")


def parse_nodes(text: str) -> NodeId | None:
    """For `argparse`: a node, or ``all``, which is None."""
    return None if text == "all" else parse_node(text)


def _asker(client: Client, arguments: argparse.Namespace) -> NodeAsker:
    from client.node_tables import NodeAsker  # takes a while that other verbs need not spend

    return NodeAsker(client.config, access_of(arguments))


def _chosen(client: Client, node: NodeId | None) -> list[NodeId]:
    if node is None:
        return list(client.config.nodes)
    if node not in client.config.nodes:
        known = ", ".join(f"N{each}" for each in client.config.nodes)
        raise LogDeviceError(Status.NOTINCONFIG, f"there is no N{node} in the cluster file; there are {known}")
    return [node]


# status


async def _status(client: Client, arguments: argparse.Namespace) -> int:
    from ldquery.ctl.health import cluster_health

    config = client.config
    health = await cluster_health(config, access_of(arguments), arguments.timeout or _SECONDS)
    if not arguments.json:
        silent = len(health.silent)
        say_plain = (
            f"cluster {config.name}, configuration version {config.version}: {len(health.rows)} nodes, "
            f"{silent} of which do not answer\n{health.summary()}"
        )
        show(arguments, {}, plain=say_plain)
    show_rows(arguments, health.rows, _SHOWN)
    for text in [*health.notes, *await _maintenances(client)]:
        say(PROGRAM, text)
    for text in health.told():
        say(PROGRAM, text, alarm=True)
    return health.exit_status


async def _maintenances(client: Client) -> list[str]:
    """What somebody may have taken away, so that nobody wonders; and what waits."""
    from ldquery.ctl.maintenance import sentence
    from ldquery.maintenance.manager import read_maintenances

    try:
        return [sentence(each) for each in (await read_maintenances(client, _SECONDS)).live.values()]
    except LogDeviceError as error:
        return [f"maintenances are not known: {error}"]


# stop


def _stop_options(options: argparse.ArgumentParser) -> None:
    complete_words(options.add_argument("node", metavar="NODE", type=parse_node, help="like N3"), Words.NODES)
    options.add_argument(
        "--only-sequencing",
        action="store_true",
        help="the process goes on: it stores and serves, but sequences nothing until it is started again",
    )


async def _stop(client: Client, arguments: argparse.Namespace) -> int:
    (node,) = _chosen(client, arguments.node)
    seconds = arguments.timeout or _STOP_SECONDS
    ends = time.monotonic() + seconds
    asker = _asker(client, arguments)
    try:
        if arguments.only_sequencing:
            drained = (await asker.act(node, "drain", {}, seconds))["drained"]
            show(arguments, {"node": f"N{node}", "drained": drained}, plain=f"N{node} sequences nothing any more")
            if not drained:
                say(PROGRAM, f"N{node}: some appends take long; they go on", alarm=True)
            return EXIT_OK if drained else EXIT_FAILED
        await asker.act(node, "stop", {}, seconds)
        while await _answers(asker, node, min(1.0, seconds)):
            if time.monotonic() > ends:
                raise LogDeviceError(Status.TIMEDOUT, f"N{node} was told to stop {seconds:g} s ago and still runs")
            await asyncio.sleep(_LOOK_AGAIN)
    finally:
        await asker.close()
    show(arguments, {"node": f"N{node}", "stopped": True}, plain=f"N{node} has stopped")
    return EXIT_OK


async def _answers(asker: NodeAsker, node: NodeId, seconds: float) -> bool:
    """Whether its process still serves; one that is busy stopping does although it answers nothing."""
    _, failures = await asker.ask_each(TABLES["info"], [node], EVERYTHING, None, seconds)
    return not any(failure.status is Status.CONNFAILED for failure in failures)


# settings


def parse_setting_name(text: str) -> tuple[str, str]:
    """For `argparse`: section and name, from ``sequencer.graylist``."""
    section, dot, name = text.removeprefix("settings.").partition(".")
    if not dot or not section or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: write SECTION.NAME, like sequencer.graylist")
    return f"settings.{section}", name


def _show_options(options: argparse.ArgumentParser) -> None:
    complete_words(
        options.add_argument("node", metavar="NODE", type=parse_nodes, help="like N3, or all"), Words.NODES_AND_ALL
    )
    options.add_argument("--section", metavar="S", help="only those of a section, like sequencer")
    options.add_argument("--changed", action="store_true", help="only those that are not at their defaults")
    options.add_argument("--live", action="store_true", help="only those that can be changed while nodes run")


async def _show_settings(client: Client, arguments: argparse.Namespace) -> int:
    from ldquery.ctl.health import ask_tables

    nodes = _chosen(client, arguments.node)
    asker = _asker(client, arguments)
    try:
        found, silent = await ask_tables(asker, nodes, ("settings",), arguments.timeout or _SECONDS)
    finally:
        await asker.close()
    section = None if arguments.section is None else "settings." + arguments.section.removeprefix("settings.")
    rows = [
        {
            "node": f"N{node}",
            "setting": without_unit(f"{row['section'].removeprefix('settings.')}.{row['name']}"),
            "value": row["current_value"],
            "default": row["default_value"],
            "from": "operator" if row["from_operator"] else "cluster file" if row["from_config"] else "default",
            "live": bool(row["is_live"]),
            "doc": row["doc"],
        }
        for node in nodes
        for row in found["settings"][node]
        if section in (None, row["section"])
        and (not arguments.changed or row["current_value"] != row["default_value"])
        and (not arguments.live or row["is_live"])
    ]
    show_rows(arguments, rows, ("node", "setting", "value", "default", "from", "live"))
    return _silent(silent)


def _silent(silent: Mapping[NodeId, str]) -> int:
    say_of_nodes(silent.items())
    return EXIT_UNANSWERED if silent else EXIT_OK


def _unset_options(options: argparse.ArgumentParser) -> None:
    complete_words(
        options.add_argument("node", metavar="NODE", type=parse_nodes, help="like N3, or all"), Words.NODES_AND_ALL
    )
    complete_words(
        options.add_argument(
            "setting", metavar="SECTION.NAME", type=parse_setting_name, help="like sequencer.graylist"
        ),
        Words.SETTINGS,
    )


def _set_options(options: argparse.ArgumentParser) -> None:
    _unset_options(options)
    options.add_argument("value", metavar="VALUE", help="as in the cluster file, without quotes: 10s, 64MiB, 12")


async def _set(client: Client, arguments: argparse.Namespace) -> int:
    return await _change(client, arguments, "set", {"value": arguments.value})


async def _unset(client: Client, arguments: argparse.Namespace) -> int:
    return await _change(client, arguments, "unset", {})


async def _change(client: Client, arguments: argparse.Namespace, action: str, more: Mapping[str, Any]) -> int:
    section, name = arguments.setting
    nodes = _chosen(client, arguments.node)
    asker = _asker(client, arguments)
    given = {"section": section, "name": name, **more}
    try:
        answers = await asyncio.gather(
            *(asker.act(node, action, given, arguments.timeout or _SECONDS) for node in nodes), return_exceptions=True
        )
    finally:
        await asker.close()
    rows, refused, refusals = [], None, []
    for node, answer in zip(nodes, answers, strict=True):
        if isinstance(answer, LogDeviceError):
            refused = answer
            refusals.append((node, str(answer).replace(f"N{node}: ", "", 1)))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            setting = without_unit(f"{section.removeprefix('settings.')}.{name}")
            rows.append({"node": f"N{node}", "setting": setting, "value": answer["value"]})
    if rows:
        show_rows(arguments, rows)
    say_of_nodes(refusals)
    if refused is None:
        return EXIT_OK
    return exit_status(refused)


VERBS: tuple[Verb, ...] = (
    Verb(
        "status",
        "nodes, their health and their shards at a glance",
        "Print each node: whether it takes requests, what the others think of it, for how long it has run, how many logs it sequences and how "
        "its shards are. What is wrong is told on standard error, also which shards are lost or being drained.",
        lambda options: None,
        _status,
    ),
    Verb(
        "stop",
        "stop a node in order",
        "Stop a node: other nodes take over the logs that it sequences, everything is synced, and its process ends. Whatever supervises the "
        "process may start it again.",
        _stop_options,
        _stop,
    ),
    Verb(
        "settings show",
        "what nodes use",
        "Print the settings that nodes use, where they come from, and which of them can be changed while nodes run.",
        _show_options,
        _show_settings,
    ),
    Verb(
        "settings set",
        "change a setting while nodes run",
        "Change a setting of a node, or of all. It holds until the node is started again; the cluster file stays as it is.",
        _set_options,
        _set,
    ),
    Verb(
        "settings unset",
        "take a change of a setting back",
        "Let a node, or all, use again what the cluster file said when it was started, or the default.",
        _unset_options,
        _unset,
    ),
)
