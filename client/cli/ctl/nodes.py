"""Verbs about nodes: they go over the nodes' admin APIs."""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from client.cli.ctl.lost_shards import lacking_metadata, unfinished, without_vouchers
from client.cli.ctl.verb import PROGRAM, Verb, show, show_rows
from client.cli.program import EXIT_FAILED, EXIT_OK, EXIT_UNANSWERED, exit_status, say
from logdevice_py.core.ids import NODE_ID_MAX, NodeId, format_shard
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING

if TYPE_CHECKING:
    from client.cli.query.fetch import NodeAsker
    from client.client import Client

_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 30.0
_LOOK_AGAIN: Final = 0.1
_NODE: Final = re.compile(r"N?(0|[1-9][0-9]{0,4})")
_SHOWN: Final = ("node", "address", "roles", "readiness", "seen as", "up", "logs", "shards")
Found = dict[NodeId, list[dict[str, Any]]]
"""Rows of a table, by the node that gave them."""


def parse_node(text: str) -> NodeId:
    """For `argparse`: N3, or 3."""
    match = _NODE.fullmatch(text)
    if match is None or int(match[1]) > NODE_ID_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no node: write N3")
    return NodeId(int(match[1]))


def parse_nodes(text: str) -> NodeId | None:
    """For `argparse`: a node, or ``all``, which is None."""
    return None if text == "all" else parse_node(text)


def _asker(client: Client) -> NodeAsker:
    from client.cli.query.fetch import NodeAsker  # takes a while that other verbs need not spend

    return NodeAsker(client.config)


def _chosen(client: Client, node: NodeId | None) -> list[NodeId]:
    if node is None:
        return list(client.config.nodes)
    if node not in client.config.nodes:
        known = ", ".join(f"N{each}" for each in client.config.nodes)
        raise LogDeviceError(Status.NOTINCONFIG, f"there is no N{node} in the cluster file; there are {known}")
    return [node]


async def _tables(
    asker: NodeAsker, nodes: Sequence[NodeId], names: Sequence[str], seconds: float
) -> tuple[dict[str, Found], dict[NodeId, str]]:
    """The rows of some tables at all these nodes, and why those that did not answer for one did not."""
    from client.cli.query.fetch import as_dicts

    answers = await asyncio.gather(*(asker.ask_each(TABLES[name], nodes, EVERYTHING, None, seconds) for name in names))
    found: dict[str, Found] = {}
    silent: dict[NodeId, str] = {}
    for name, (rows, failures) in zip(names, answers, strict=True):
        by_node = found[name] = {node: [] for node in nodes}
        for cells in as_dicts(TABLES[name], rows):
            by_node[NodeId(int(cells["node_id"] or 0))].append(cells)
        for failure in failures:
            silent.setdefault(failure.node, f"{failure.status.name}: {failure.detail}")
    return found, silent


# status


async def _status(client: Client, arguments: argparse.Namespace) -> int:
    asker = _asker(client)
    nodes = list(client.config.nodes)
    try:
        found, silent = await _tables(
            asker,
            nodes,
            ("info", "cluster_state", "sequencers", "shards", "waits", "shard_rebuildings"),
            arguments.timeout or _SECONDS,
        )
    finally:
        await asker.close()
    rows = [_node_row(client, node, found, silent) for node in nodes]
    elsewhere = _add_lost_shards(client, rows, found)
    if not arguments.json:
        config = client.config
        say_plain = f"cluster {config.name}, version {config.version} of its file: {len(nodes)} nodes, {len(silent)} of which do not answer"
        show(arguments, {}, plain=say_plain)
    show_rows(arguments, rows, _SHOWN)
    for row in rows:
        for trouble in row["troubles"]:
            say(PROGRAM, f"{row['node']}: {trouble}", alarm=True)
    for trouble in elsewhere:
        say(PROGRAM, trouble, alarm=True)
    return EXIT_UNANSWERED if silent else EXIT_OK


def _add_lost_shards(client: Client, rows: Sequence[Mapping[str, Any]], found: Mapping[str, Found]) -> list[str]:
    """What is the matter with lost and drained shards goes to the troubles of their nodes; of nodes that left the cluster file it is given
    back."""

    def all_of(name: str) -> list[dict[str, Any]]:
        return [row for each in found[name].values() for row in each]

    troubles: dict[str, list[str]] = {row["node"]: row["troubles"] for row in rows}
    elsewhere = []
    for shard, text in unfinished(all_of("shard_rebuildings")).items():
        node, _, index = shard.partition(":")
        if node in troubles:
            troubles[node].append(f"{index} {text}")
        else:
            elsewhere.append(f"{shard} {text}")
    afresh, what_follows = without_vouchers(client.config, lacking_metadata(all_of("shards")))
    for each in afresh:
        node, _, index = format_shard(each).partition(":")
        troubles[node].append(f"{index} {what_follows}")
    return elsewhere


def _node_row(client: Client, node: NodeId, found: Mapping[str, Found], silent: Mapping[NodeId, str]) -> dict[str, Any]:
    member = client.config.nodes[node]
    info = next(iter(found["info"][node]), None)
    others = [
        row["state"]
        for observer, rows in found["cluster_state"].items()
        for row in rows
        if observer != node and row["observed_node_id"] == node
    ]
    seen_as = ", ".join(f"{state} by {count}" for state, count in Counter(others).most_common())
    if len(set(others)) == 1:
        seen_as = others[0]
    shards = found["shards"][node]
    active = [row for row in found["sequencers"][node] if row["state"] == "ACTIVE"]
    troubles = [] if node not in silent else [f"it does not answer: {silent[node]}"]
    if info is not None:
        troubles += _troubles(client, info, shards)
    waiting = Counter((row["kind"], row["cause"]) for row in found["waits"][node] if row["cause"] not in _QUIET)
    troubles += [
        f"{kind} waits for {cause} ({count} rows in table waits of ldquery)"
        for (kind, cause), count in waiting.most_common()
    ]
    return {
        "node": f"N{node}",
        "address": f"{member.host}:{member.port}",
        "roles": [str(role.name).lower() for role in member.roles],
        "location": str(member.location),
        "readiness": None if info is None else info["readiness"],
        "seen as": seen_as or None,
        "up": None if info is None else _age(info["uptime_seconds"]),
        "uptime seconds": None if info is None else info["uptime_seconds"],
        "config version": None if info is None else info["config_version"],
        "logs": None if info is None else len(active),
        "shards": [f"S{row['shard']} {row['status']} {_size(row['stored_bytes'])}" for row in shards],
        "stored bytes": sum(row["stored_bytes"] for row in shards),
        "troubles": troubles,
    }


_QUIET: Final = frozenset({"TAIL", "STORES", "BATCH", "EARLIER_ENTRY", "READER_WINDOW", "READER_CREDIT", "TURN"})
"""Causes of waiting that are part of a healthy cluster's work."""


def _troubles(client: Client, info: Mapping[str, Any], shards: Sequence[Mapping[str, Any]]) -> list[str]:
    found = []
    if info["readiness"] != "OK":
        found.append(f"it takes no requests: {info['readiness']}")
    if info["config_version"] != client.config.version:
        found.append(
            f"it uses version {info['config_version']} of the cluster file, this one is {client.config.version}"
        )
    for row in shards:
        name = f"S{row['shard']}"
        if row["status"] != "OK":
            found.append(f"{name}: {row['status']}")
        elif row["no_space"]:
            found.append(f"{name}: refuses records for lack of space")
        elif not row["accepting_writes"]:
            found.append(f"{name}: takes no records")
        if row["damaged_ranges"]:
            found.append(f"{name}: {row['damaged_ranges']} damaged ranges are not repaired yet")
    return found


def _age(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"


def _size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


# stop


def _stop_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("node", metavar="NODE", type=parse_node, help="like N3")
    options.add_argument(
        "--only-sequencing",
        action="store_true",
        help="the process goes on: it stores and serves, but sequences nothing until it is started again",
    )


async def _stop(client: Client, arguments: argparse.Namespace) -> int:
    (node,) = _chosen(client, arguments.node)
    seconds = arguments.timeout or _STOP_SECONDS
    ends = time.monotonic() + seconds
    asker = _asker(client)
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
    """For `argparse`: section and name, from ``sequencer.graylist_us``."""
    section, dot, name = text.removeprefix("settings.").partition(".")
    if not dot or not section or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: write SECTION.NAME, like sequencer.graylist_us")
    return f"settings.{section}", name


def _show_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("node", metavar="NODE", type=parse_nodes, help="like N3, or all")
    options.add_argument("--section", metavar="S", help="only those of a section, like sequencer")
    options.add_argument("--changed", action="store_true", help="only those that are not at their defaults")
    options.add_argument("--live", action="store_true", help="only those that can be changed while nodes run")


async def _show_settings(client: Client, arguments: argparse.Namespace) -> int:
    nodes = _chosen(client, arguments.node)
    asker = _asker(client)
    try:
        found, silent = await _tables(asker, nodes, ("settings",), arguments.timeout or _SECONDS)
    finally:
        await asker.close()
    section = None if arguments.section is None else "settings." + arguments.section.removeprefix("settings.")
    rows = [
        {
            "node": f"N{node}",
            "setting": f"{row['section'].removeprefix('settings.')}.{row['name']}",
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
    for node, why in silent.items():
        say(PROGRAM, f"N{node}: {why}", alarm=True)
    return EXIT_UNANSWERED if silent else EXIT_OK


def _unset_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("node", metavar="NODE", type=parse_nodes, help="like N3, or all")
    options.add_argument("setting", metavar="SECTION.NAME", type=parse_setting_name, help="like sequencer.graylist_us")


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
    asker = _asker(client)
    given = {"section": section, "name": name, **more}
    try:
        answers = await asyncio.gather(
            *(asker.act(node, action, given, arguments.timeout or _SECONDS) for node in nodes), return_exceptions=True
        )
    finally:
        await asker.close()
    rows, refused = [], None
    for node, answer in zip(nodes, answers, strict=True):
        if isinstance(answer, LogDeviceError):
            refused = answer
            say(PROGRAM, str(answer), alarm=True)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            setting = f"{section.removeprefix('settings.')}.{name}"
            rows.append({"node": f"N{node}", "setting": setting, "value": answer["value"]})
    if rows:
        show_rows(arguments, rows)
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
