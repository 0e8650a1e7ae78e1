"""``ldctl config`` and ``ldctl nodes``: the configuration that the epoch store keeps, which all nodes use."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from client.cli.options import Words, complete_words
from client.cli.program import EXIT_OK, EXIT_UNANSWERED, put, say, standard_output
from ldquery.ctl.configuration_change import ConfigurationEditor, KnownConfiguration, text_with_node
from ldquery.ctl.private_file import read_text
from ldquery.ctl.verb import PROGRAM, Verb, parse_node, say_of_nodes, show, show_rows
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.edit import parse_node_assignment, without_node
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.security import TLS_OFF, parse_security
from logdevice_py.config.stored import with_version
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.durable_file import write_durably

if TYPE_CHECKING:
    from client.client import Client

_SHOWN: Final = ("version", "changed_time", "who", "why", "in_force")
_FIRST: Final = "from here on the cluster is configured in its epoch store: nodes take the name, the uuid and the epoch store from their files, and nothing else"


def _version(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is no version: write a number, like those of ldctl config history")
    return int(text)


def _assignment(text: str) -> tuple[str, Any]:
    try:
        return parse_node_assignment(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def change_options(options: argparse.ArgumentParser) -> None:
    """Options of verbs that change the configuration: for `change`."""
    options.add_argument("--why", metavar="TEXT", default="", help="what for; it stands in the history")
    options.add_argument(
        "--dry-run", action="store_true", help="print what would change and whether it would be refused; change nothing"
    )
    options.add_argument(
        "--accept-data-loss",
        metavar="NODE",
        type=parse_node,
        action="append",
        default=[],
        help="a node that goes although what it holds is not stored elsewhere; may be given several times",
    )


def _print(text: str) -> None:
    put(standard_output(), text.encode() + (b"" if text.endswith("\n") else b"\n"))


def difference(before: str, after: str, names: tuple[str, str]) -> str:
    """What changes between two texts, as ``diff -u`` prints it; empty: nothing."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="")
    return "\n".join(lines)


async def change(
    editor: ConfigurationEditor,
    known: KnownConfiguration,
    text: str,
    arguments: argparse.Namespace,
    why: str,
    *,
    added: NodeId | None = None,
) -> int:
    """Have a text stored, or only judged, and tell what becomes of it.

    Args:
        added: a node that is new, and is started only then.
    """
    dry_run = arguments.dry_run
    if dry_run and not arguments.json:
        _print(difference(known.text, text, (f"version {known.version}", "wanted")) or "nothing changes")
    answer = await editor.change(known, text, arguments.why or why, accept=arguments.accept_data_loss, dry_run=dry_run)
    version = answer["version"]
    late = [] if dry_run or not answer["stored"] else await editor.in_use(version)
    plain = f"version {version} is in force"
    if dry_run:
        plain = f"it would be version {version}" if answer["changed"] else "it is what is in force"
    elif not answer["stored"]:
        plain = f"nothing changes: version {version} says the same"
    show(arguments, {**answer, "late": [f"N{node}" for node in late]}, plain=plain)
    if answer["stored"] and not known.is_stored:
        say(PROGRAM, _FIRST)
    if added in late:
        late.remove(added)
        say(PROGRAM, start_text(arguments.config, added, load_cluster(text)))
    say_of_nodes((node, "does not use it yet; ldctl status tells when it does") for node in late)
    return EXIT_UNANSWERED if late else EXIT_OK


def start_text(file: str, node: NodeId, config: ClusterConfig) -> str:
    """How a node that was added is started."""
    certificate = ""
    if parse_security(config.settings).tls != TLS_OFF:
        certificate = f" It needs a certificate first: ldctl config show --to {file}, ldctl identity make, and identity/N{node}.pem with ca.pem on its machine."
    return f"N{node}: start it now: logdeviced --config cluster.toml --node {node} --data DIR; any copy of the cluster file will do, or --epoch-store and --cluster.{certificate}"


# config


def _show_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("--version", dest="wanted", metavar="N", type=_version, help="one of those that are kept")
    options.add_argument(
        "--to",
        metavar="FILE",
        help="write it there in one step; unlike with > that may be the cluster file which ldctl itself reads",
    )


async def _show(client: Client, arguments: argparse.Namespace) -> int:
    async with ConfigurationEditor.of_program(client, arguments) as editor:
        known = await editor.read()
    row = known.find(known.version if arguments.wanted is None else arguments.wanted)
    if arguments.to is not None:
        write_durably(Path(arguments.to), row["text"])
        show(
            arguments,
            {"version": row["version"], "file": arguments.to},
            plain=f"version {row['version']} is in {arguments.to}",
        )
    elif arguments.json:
        show(arguments, row)
    else:
        _print(row["text"])
    if not known.is_stored:
        say(PROGRAM, "it is the cluster file's, as a node reads it: ldctl config apply FILE stores one")
    return EXIT_OK


def _history_options(options: argparse.ArgumentParser) -> None:
    del options


async def _history(client: Client, arguments: argparse.Namespace) -> int:
    async with ConfigurationEditor.of_program(client, arguments) as editor:
        known = await editor.read()
    rows = [{**row, "in_force": bool(row["in_force"])} for row in reversed(known.versions)]
    show_rows(arguments, rows, _SHOWN)
    return EXIT_OK


def _diff_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("what", metavar="FILE|VERSION", help="a file, - for standard input, or a version that is kept")
    options.add_argument("other", metavar="VERSION", nargs="?", type=_version, help="instead of the one in force")


async def _diff(client: Client, arguments: argparse.Namespace) -> int:
    async with ConfigurationEditor.of_program(client, arguments) as editor:
        known = await editor.read()
    if arguments.other is None and not arguments.what.isdecimal():
        changed = difference(known.text, _given(arguments.what), (f"version {known.version}", arguments.what))
    else:
        first = known.find(_version(arguments.what))
        second = known.find(known.version if arguments.other is None else arguments.other)
        names = (f"version {first['version']}", f"version {second['version']}")
        before, after = (with_version(str(row["text"]), second["version"]) for row in (first, second))
        changed = difference(before, after, names)
    show(arguments, {"difference": changed}, plain=changed or "nothing differs")
    return EXIT_OK


def _given(name: str) -> str:
    return sys.stdin.read() if name == "-" else read_text(Path(name))


def _apply_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("file", metavar="FILE", help="as ldctl config show prints it, edited; - is standard input")
    change_options(options)


async def _apply(client: Client, arguments: argparse.Namespace) -> int:
    text = _given(arguments.file)
    try:
        load_cluster(text)
    except LogDeviceError as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"{arguments.file}: {error.detail}") from None
    async with ConfigurationEditor.of_program(client, arguments) as editor:
        return await change(editor, await editor.read(), text, arguments, f"config apply {arguments.file}")


def _rollback_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("to", metavar="VERSION", type=_version, help="one of ldctl config history")
    change_options(options)


async def _rollback(client: Client, arguments: argparse.Namespace) -> int:
    async with ConfigurationEditor.of_program(client, arguments) as editor:
        known = await editor.read()
        text = with_version(str(known.find(arguments.to)["text"]), known.version)
        return await change(editor, known, text, arguments, f"back to version {arguments.to}")


# nodes


def check_is_stored(known: KnownConfiguration, arguments: argparse.Namespace) -> None:
    if not known.is_stored:
        raise LogDeviceError(
            Status.INVALID_PARAM,
            f"this cluster is configured by its file, of which each machine has one: edit that; or store it once, "
            f"ldctl config apply {arguments.config}, and nodes follow what is stored",
        )


def _node_options(options: argparse.ArgumentParser) -> None:
    complete_words(options.add_argument("node", metavar="NODE", type=parse_node, help="like N3"), Words.NODES)


def _values_options(options: argparse.ArgumentParser) -> None:
    _node_options(options)
    options.add_argument(
        "values",
        metavar="KEY=VALUE",
        nargs="+",
        type=_assignment,
        help="as in the cluster file without quotes: host=10.0.0.7 port=4440 location=eu....r7; without a value the default holds",
    )
    change_options(options)


def _remove_options(options: argparse.ArgumentParser) -> None:
    _node_options(options)
    change_options(options)


def _said(values: Sequence[tuple[str, Any]]) -> str:
    """As somebody types it."""
    words = []
    for key, value in values:
        shown = ",".join(value) if isinstance(value, list) else "" if value is None else value
        words.append(f"{key}={shown}")
    return " ".join(words)


async def _add(client: Client, arguments: argparse.Namespace) -> int:
    return await _set_node(client, arguments, new=True)


async def _set(client: Client, arguments: argparse.Namespace) -> int:
    return await _set_node(client, arguments, new=False)


async def _set_node(client: Client, arguments: argparse.Namespace, *, new: bool) -> int:
    node: NodeId = arguments.node
    async with ConfigurationEditor.of_program(client, arguments) as editor:
        known = await editor.read()
        check_is_stored(known, arguments)
        text = text_with_node(known, node, dict(arguments.values), new=new)
        verb = "add" if new else "set"
        why = f"nodes {verb} N{node} {_said(arguments.values)}"
        return await change(editor, known, text, arguments, why, added=node if new else None)


async def _remove(client: Client, arguments: argparse.Namespace) -> int:
    async with ConfigurationEditor.of_program(client, arguments) as editor:
        known = await editor.read()
        check_is_stored(known, arguments)
        text = without_node(known.text, arguments.node)
        return await change(editor, known, text, arguments, f"nodes remove N{arguments.node}")


_STORED: Final = "It goes through a node, which refuses what cannot be as a whole, with all reasons; what it stores all nodes use within seconds."
VERBS: tuple[Verb, ...] = (
    Verb(
        "config show",
        "print the configuration in force, or an earlier version",
        "Print the configuration that nodes use: as of a cluster file. Edit it and give it to config apply.",
        _show_options,
        _show,
    ),
    Verb(
        "config history",
        "who changed the configuration, when and why",
        "Print the versions that are kept, the latest first. With --json all of each.",
        _history_options,
        _history,
    ),
    Verb(
        "config diff",
        "what changes between a file or a version and the one in force",
        "Compare the configuration in force with a file, or two versions that are kept.",
        _diff_options,
        _diff,
    ),
    Verb(
        "config apply",
        "put a configuration into force",
        f"Store a configuration. The version in it must be that from which it was made: when somebody else changed it since, it is refused. {_STORED} The first time, give the cluster file: from then on nodes use what is stored.",
        _apply_options,
        _apply,
    ),
    Verb(
        "config rollback",
        "put an earlier version into force again",
        f"Store what an earlier version said, as a new version. {_STORED}",
        _rollback_options,
        _rollback,
    ),
    Verb(
        "nodes add",
        "add a node to the stored configuration",
        f"Add a node. Start its process with any copy of the cluster file, or with --epoch-store and --cluster. {_STORED}",
        _values_options,
        _add,
    ),
    Verb(
        "nodes set",
        "change what the stored configuration says of a node",
        f"Change keys of a node, like state=read-only or location=eu....r7. {_STORED}",
        _values_options,
        _set,
    ),
    Verb(
        "nodes remove",
        "take a node out of the stored configuration",
        f"Take a node out. Its shards have to be drained: ldctl drain N3:S0 --wait. {_STORED}",
        _remove_options,
        _remove,
    ),
)
