"""What a verb of ``ldctl`` is."""

from __future__ import annotations

import argparse
import datetime
import json
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from client.admin_access import AdminAccess
from client.cli.positions import Anchor, NamedPosition, parse_position
from client.cli.program import make_safe, put, say, standard_output
from logdevice_py.core.ids import NODE_ID_MAX, NodeId

PROGRAM = "ldctl"
_NODE: Final = re.compile(r"N?(0|[1-9][0-9]{0,4})")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Verb:
    """One verb."""

    name: str
    """One word, or two when it is one of several about the same thing: ``logs list``."""
    help: str
    """One line."""
    description: str
    """What it does, what it prints, and what it is not."""
    options: Callable[[argparse.ArgumentParser], None]
    """Adds the verb's own arguments."""
    run: Callable[[Any, argparse.Namespace], Awaitable[int]]
    """Does it with an open client; returns the exit status. Results go through `show`; a LogDeviceError ends the program with its status."""
    needs_client: bool = True
    """False: it is run without one (None), as nothing of the cluster is asked."""


def access_of(arguments: argparse.Namespace) -> AdminAccess:
    """With what the user may ask the nodes' admin API.

    Raises:
        LogDeviceError: INVALID_CONFIG: it cannot be used.
    """
    return AdminAccess.of_program(Path(arguments.config), arguments.token_file)


def show(arguments: argparse.Namespace, values: Mapping[str, Any], *, plain: str | None = None) -> None:
    """Print a result: as a line of JSON, or plain; by default a line for each value, its name before it.

    Times are microseconds since the Unix epoch in JSON and ISO 8601, UTC, else: name them with a name that ends in ``time``. Where people
    read spaces in a name, JSON has underscores.
    """
    if arguments.json:
        text = json.dumps({name.replace(" ", "_"): value for name, value in values.items()}, separators=(",", ":"))
    elif plain is not None:
        text = plain
    else:
        width = max(map(len, values))
        text = "\n".join(f"{name:<{width}}  {_plain(name, value)}" for name, value in values.items())
    # others wrote some of it, such as the reason of a maintenance
    put(standard_output(), b"".join(make_safe(line.encode()).encode() + b"\n" for line in text.split("\n")))


def show_rows(
    arguments: argparse.Namespace, rows: Sequence[Mapping[str, Any]], shown: Sequence[str] | None = None
) -> None:
    """Print results that are alike: each as a line of JSON, or all as a table; `shown` names its columns."""
    if arguments.json:
        for row in rows:
            show(arguments, row)
        return
    names = list(shown or (rows[0] if rows else ()))
    lines = [[name.upper() for name in names], *([_cell(name, row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(names))]
    text = "".join("  ".join(map(str.ljust, line, widths)).rstrip() + "\n" for line in lines)
    put(standard_output(), text.encode())


def _cell(name: str, value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = ", ".join(map(str, value))
    return "-" if value == "" else make_safe(_plain(name, value).encode())


def _plain(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"  # as in the cluster file and in JSON
    return iso_time(value) if name.endswith("time") else str(value)


def say_of_nodes(told: Iterable[tuple[NodeId, str]]) -> None:
    """Say what went wrong with nodes: once for all nodes with which the same did."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for node, text in told:
        nodes[text].append(f"N{node}")
    for text, names in nodes.items():
        say(PROGRAM, f"{', '.join(names)}: {text}", alarm=True)


def without_unit(name: str) -> str:
    """The name of an attribute or setting as people type it: a duration is written with its unit, which the name need not have as well."""
    return name.removesuffix("_us")


def iso_time(timestamp: int) -> str:
    """Microseconds since the Unix epoch as ISO 8601, UTC."""
    when = _EPOCH + datetime.timedelta(microseconds=timestamp)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def format_size(count: int) -> str:
    """Bytes as people read them: ``2.0 kB``."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def parse_node(text: str) -> NodeId:
    """For `argparse`: N3, or 3."""
    match = _NODE.fullmatch(text)
    if match is None or int(match[1]) > NODE_ID_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no node: write N3")
    return NodeId(int(match[1]))


def parse_instant(text: str) -> int:
    """Microseconds since the Unix epoch of a time as people write it; for `argparse`."""
    position = parse_position(text)
    if position.anchor is not Anchor.TIME:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write one with its zone, like 2026-01-31T12:00:00Z")
    return position.value


def parse_trim_position(text: str) -> NamedPosition:
    """An LSN, ``tail``, or a time; for `argparse`."""
    position = parse_position(text)
    if position == NamedPosition(Anchor.LSN, 0):
        raise argparse.ArgumentTypeError("0 is below every LSN: nothing would be trimmed")
    return position
