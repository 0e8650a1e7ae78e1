"""Renders the reference pages that follow from declarations: messages, settings, metrics, tables, status codes.

``make docs`` rewrites them; a test compares them with what this would write.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import inspect
import io
import sys
import textwrap
import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from client.metrics import ClientMetrics, WriterMetrics
from client.read.metrics import ReadMetrics
from client.read.read_stream import READ_STREAM_TRANSITIONS
from client.replica.metrics import ReplicaMetrics
from client.write.stream_state import WRITE_STREAM_TRANSITIONS
from epoch_store.interface import EpochStoreMetrics
from indexlog.serving.metrics import IndexLogMetrics, IndexServiceMetrics
from logdevice_py.config.attributes import LogAttributes
from logdevice_py.config.quotas import PrincipalQuota
from logdevice_py.core import batch, entry, record_keys
from logdevice_py.core.declare import declarations, render_value
from logdevice_py.core.status import TRAITS
from logdevice_py.event_log.settings import RebuildingMetrics
from logdevice_py.membership.settings import MembershipMetrics
from logdevice_py.protocol import messages
from logdevice_py.protocol.declare import CODECS, FIELDS_SIZE_MAX, FieldKind, IntKind, ListKind, Needs, TupleKind
from logdevice_py.protocol.framing import FRAME_SIZE_MAX, FRAME_SIZE_MAX_BEFORE_HELLO
from logdevice_py.protocol.messages import MessageType
from logdevice_py.runtime.http.prometheus import prometheus_name
from logdevice_py.shell.settings import TransportMetrics
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import PUSHED
from sequencer.metrics import SequencerMetrics
from sequencer.recovery.attempt import EPOCH_RECOVERY_TRANSITIONS
from sequencer.recovery.metrics import RecoveryMetrics
from sequencer.rolling import ROLL_TRANSITIONS
from sequencer.sequencer import SEQUENCER_TRANSITIONS
from server.admin.actions import ACTIONS
from server.admin.log_metrics import LogMetrics
from server.admin.metrics import AdminMetrics
from server.admin.node_tables import SETTINGS
from server.audit.audit_log import AuditMetrics
from server.copy_review import CopyReviewMetrics
from server.live_sections import LIVE, LiveSection
from server.node import NodeMetrics
from server.process_metrics import ProcessMetrics
from storage_node.epochs.purge import PURGE_TRANSITIONS
from storage_node.log_store.metrics import LogStoreMetrics, RocksDBMetrics
from storage_node.metrics import ScrubberMetrics, StorageMetrics
from storage_node.reading.read_stream import SERVER_STREAM_TRANSITIONS
from storage_node.repair.log_repair import REPAIR_TRANSITIONS

__all__ = ["PAGES", "SETTINGS"]

METRICS: dict[str, type[Any]] = {
    "sequencer": SequencerMetrics,
    "recovery": RecoveryMetrics,
    "storage": StorageMetrics,
    "scrubber": ScrubberMetrics,
    "copies": CopyReviewMetrics,
    "log store": LogStoreMetrics,
    "rocksdb": RocksDBMetrics,
    "epoch store": EpochStoreMetrics,
    "client": ClientMetrics,
    "BufferedWriter": WriterMetrics,
    "reader": ReadMetrics,
    "replica": ReplicaMetrics,
    "membership": MembershipMetrics,
    "node": NodeMetrics,
    "audit": AuditMetrics,
    "transport": TransportMetrics,
    "admin": AdminMetrics,
    "process": ProcessMetrics,
    "log": LogMetrics,
    "rebuilding": RebuildingMetrics,
    "index service": IndexServiceMetrics,
    "index log": IndexLogMetrics,
}
MACHINES: dict[str, Mapping[Any, Collection[Any]]] = {
    "Sequencer of a log": SEQUENCER_TRANSITIONS,
    "Rolling of a log": ROLL_TRANSITIONS,
    "Recovery of an epoch": EPOCH_RECOVERY_TRANSITIONS,
    "Write stream": WRITE_STREAM_TRANSITIONS,
    "Read stream, at the client": READ_STREAM_TRANSITIONS,
    "Read stream, at a shard": SERVER_STREAM_TRANSITIONS,
    "Purge of a log": PURGE_TRANSITIONS,
    "Repair of a log": REPAIR_TRANSITIONS,
}
_OF_CLIENTS = frozenset({"client", "BufferedWriter", "reader", "replica"})
"""Counted in applications: no node exports them."""
_NOTE = "<!-- Rendered from declarations by `make docs`; edits here are overwritten. -->\n"


def _table(head: list[str], rows: Iterator[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return (
        "\n".join(
            "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
        )
        + "\n"
    )


_FRAMES = """## Frames

A frame is `u32 length` of everything behind it, `u16` length of the fields, `u8` number of the message, `u8 0`, `u32 crc32c` of these eight bytes and the fields, then
the fields, then the payload. Integers are big-endian. The fields are one msgpack array in the order of the tables below, at most {fields} bytes; fields at the end may be left
out that a later version added. A frame has at most {large} bytes, {small} before HELLO is answered. A frame that breaks a rule ends its connection.

Integers have bounds (below), a text is a msgpack string, bytes are a msgpack binary, a list and a tuple are msgpack arrays, a status is an integer
([status codes](status_codes.md)). The payload is raw. A row, described below the message that holds it, is a msgpack array of its fields; so is what stands
in parentheses.
"""
_PAYLOADS = (("Images of entries", entry), ("Batches", batch), ("Keys", record_keys))


def _integer_kinds() -> list[list[str]]:
    found: dict[str, IntKind] = {}

    def look(kind: FieldKind) -> None:
        if isinstance(kind, IntKind):
            found[kind.name] = kind
        elif isinstance(kind, ListKind):
            look(kind.element)
        elif isinstance(kind, TupleKind):
            for element in kind.elements:
                look(element)

    for number in sorted(MessageType):
        for _, kind in CODECS[number].fields:
            look(kind)
    return [[name, str(kind.lo), str(kind.hi)] for name, kind in sorted(found.items())]


def _kind_of_field(kind: FieldKind) -> str:
    return f"{kind.name} (at most {kind.hi})" if isinstance(kind, ListKind) else kind.name


def _flags() -> Iterator[list[str]]:
    classes: list[type[enum.IntFlag]] = [
        each for each in vars(messages).values() if inspect.isclass(each) and issubclass(each, enum.IntFlag)
    ]
    classes += [entry.EntryFlags, entry.ConstituentFlags]
    for each in classes:
        yield from ([each.__name__.removesuffix("Flags"), str(int(flag)), f"`{flag.name}`"] for flag in each)


def _meanings(cls: type[Any]) -> dict[str, str]:
    """The comments beside the fields of a class, or the members of an enum."""
    source = textwrap.dedent(inspect.getsource(cls))
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    fields = [
        (target.id, each.lineno)
        for each in body.body
        if isinstance(each, ast.AnnAssign | ast.Assign)
        for target in ([each.target] if isinstance(each, ast.AnnAssign) else each.targets)
        if isinstance(target, ast.Name)
    ]
    meanings: dict[str, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            name = [each for each, line in fields if line <= token.start[0]][-1]
            meanings[name] = " ".join((meanings.get(name, ""), token.string.lstrip("# "))).strip()
    return meanings


def _layout(cls: type[Any], fields: Iterable[tuple[str, FieldKind]], payload: str | None = None) -> Iterator[str]:
    """The fields of a message or the places of a row, then the rows in them."""
    meanings = _meanings(cls)
    lines = [[f"`{name}`", _kind_of_field(kind), meanings.get(name, "")] for name, kind in fields]
    if payload is not None:
        lines.append([f"`{payload}`", "raw payload", meanings.get(payload, "")])
    yield _table(["field", "kind", "meaning"], iter(lines))
    for _, kind in fields:
        row = kind.element if isinstance(kind, ListKind) else None
        if isinstance(row, TupleKind) and row.row is not tuple:
            yield f"### {row.name}\n"
            yield " ".join(inspect.cleandoc(row.row.__doc__ or "").split()) + "\n"
            yield from _layout(row.row, row.places)


_NEEDS: Mapping[Needs, str] = {
    Needs.NOTHING: "nothing",
    Needs.NODE: "to be sent by a node",
    Needs.ANY: "any permission for the log",
    **{each: f"permission `{each.value.value}`" for each in (Needs.APPEND, Needs.READ, Needs.TRIM, Needs.ADMIN)},
}


def messages_page() -> str:
    """docs/messages.md."""
    parts = [
        _NOTE,
        "# Messages\n",
        "Every message is one frame; see [protocol.md](protocol.md) for when each is sent.\n",
        _FRAMES.format(large=FRAME_SIZE_MAX, small=FRAME_SIZE_MAX_BEFORE_HELLO, fields=FIELDS_SIZE_MAX),
        _table(["kind", "from", "to"], iter(_integer_kinds())),
        "## Flags\n",
        "A message's field `flags` is the sum of the bits that are set.\n",
        _table(["flags of", "bit", "name"], iter(_flags())),
        "## Payloads\n",
        *(f"### {title}\n\n{inspect.getdoc(module)}\n" for title, module in _PAYLOADS),
    ]
    for number in sorted(MessageType):
        codec = CODECS[number]
        parts.append(f"## {int(number)} {codec.name}\n")
        since = f" Since version {codec.since} of the protocol." if codec.since > 1 else ""
        parts.append(" ".join(inspect.cleandoc(codec.cls.__doc__ or "").split()) + since + "\n")
        parts.append(f"Needs: {_NEEDS[codec.needs]}.\n")
        parts += _layout(codec.cls, codec.fields, codec.payload)
    return "\n".join(parts)


def settings_page() -> str:
    """docs/settings.md."""
    parts = [
        _NOTE,
        "# Settings\n",
        'In the cluster file. Durations and sizes are written in quotes with a unit, like `"10ms"` and `"64MiB"`.\n',
    ]
    for section, prefix, title, cls in SETTINGS:
        parts += [f"## {title}: `[{section}]`\n", _settings_table(cls, prefix)]
    parts += [
        "## Log attributes (`[defaults]`, directories and groups of `[logs]`)\n",
        'Every log needs `replicate`, its replication property, like `"rack:2,node:3"`: three copies on three nodes in at least two racks. '
        "It has no default.\n",
        _settings_table(LogAttributes),
        "## Quotas of principals (`[quotas.NAME]`)\n",
        'NAME is a principal, `anonymous`, or `"*"` for each principal that has no table of its own. See [security.md](security.md#quotas).\n',
        _settings_table(PrincipalQuota),
    ]
    return "\n".join(parts)


def _settings_table(cls: type[Any], prefix: str = "") -> str:
    def rows() -> Iterator[list[str]]:
        for field in dataclasses.fields(cls):
            meta = field.metadata
            if "unit" not in meta:
                continue
            unit = meta["unit"]
            default = (
                "required" if field.default is dataclasses.MISSING else render_value(unit, field.default) or "empty"
            )
            yield [f"`{prefix}{field.name}`", default, unit, _allowed(field), meta["doc"]]

    return _table(["name", "default", "unit", "allowed", "meaning"], rows())


def _allowed(field: dataclasses.Field[Any]) -> str:
    """The values that a setting may have, as far as its declaration bounds them."""
    unit, lo, hi = (field.metadata[key] for key in ("unit", "lo", "hi"))
    if isinstance(field.default, enum.Enum):
        return ", ".join(render_value(unit, member) for member in type(field.default))
    if lo is not None and hi is not None:
        return f"{render_value(unit, lo)} to {render_value(unit, hi)}"
    if lo is not None:
        return f"at least {render_value(unit, lo)}"
    return "" if hi is None else f"at most {render_value(unit, hi)}"


def metrics_page() -> str:
    """docs/metrics.md."""
    parts = [
        _NOTE,
        "# Metrics\n",
        "Nodes export them at `/metrics` of their admin API under the names in the last column, in base units: bytes and seconds. "
        "The last two are those of `ldindexd` ([index logs](indexlog.md)). Those of the scrubber, the log store and RocksDB carry the label `shard`. Table `stats` of [ldquery](ldquery.md) has them by their own names.\n",
    ]
    for section, cls in METRICS.items():
        exported = section not in _OF_CLIENTS
        rows = (
            [f"`{m.name}`", m.kind, m.unit, m.doc, *([f"`{prometheus_name(section, m)}`"] if exported else [])]
            for m in declarations(cls)
        )
        head = ["name", "kind", "unit", "meaning", *(["at /metrics"] if exported else [])]
        parts += [f"## {section}\n", _table(head, rows)]
    return "\n".join(parts)


def tables_page() -> str:
    """docs/tables.md."""
    parts = [
        _NOTE,
        "# Tables\n",
        "What [ldquery](ldquery.md) can be asked for. Constraints on `node_id` decide which nodes are asked; those on "
        f"{', '.join(f'`{name}`' for name in PUSHED)} go to the nodes in every table that has the column.\n",
    ]
    for table in TABLES.values():
        needs = f" Read by {' and '.join(f'`{name}`' for name in table.required)} only." if table.required else ""
        rows = ([f"`{each.name}`", each.kind.value, each.doc] for each in table.columns)
        parts += [
            f"## {table.name}\n",
            f"{table.doc} Rows come from {table.source.value}.{needs}\n",
            _table(["column", "type", "meaning"], rows),
        ]
        parts += [
            _table([each.name, "meaning"], ([f"`{word}`", meaning] for word, meaning in each.words))
            for each in table.columns
            if each.words
        ]
    return "\n".join(parts)


def actions_page() -> str:
    """docs/actions.md."""
    parts = [
        _NOTE,
        "# Actions of the admin API\n",
        "`POST /v1/actions/NAME` with a JSON object of the parameters, all of which are required, and the content type "
        "`application/json`; see [ldquery.md](ldquery.md).\n",
    ]
    for action in ACTIONS.values():
        parts.append(f"## {action.name}\n\n{action.doc}\n")
        if action.parameters:
            parts.append(
                _table(["parameter", "type", "meaning"], ([f"`{p.name}`", p.type, p.doc] for p in action.parameters))
            )
    parts.append("## Settings that can be changed\n")
    rows = ([f"`{section}`", _fixed(section, live)] for section, live in LIVE.items())
    parts.append(_table(["section", "but not"], rows))
    return "\n".join(parts)


def _fixed(section: str, live: LiveSection) -> str:
    """What cannot be changed of a section, other declarations that share it included."""
    names = [f"`{name}`" for name in sorted(live.fixed)]
    others = [title for each, _, title, cls in SETTINGS if each == section and cls is not live.cls]
    return ", ".join([*names, *(f"those of [{title}](settings.md)" for title in others)]) or "none"


def status_page() -> str:
    """docs/status_codes.md."""
    rows = (
        [
            f"{int(status)}",
            f"`{status.name}`",
            "yes" if t.retriable else "no",
            "yes" if t.maybe_applied else "no",
            t.meaning,
        ]
        for status, t in TRAITS.items()
    )
    return "\n".join(
        [_NOTE, "# Status codes\n", _table(["number", "name", "retriable", "maybe applied", "meaning"], rows)]
    )


def states_page() -> str:
    """docs/states.md."""
    parts = [
        _NOTE,
        "# States\n",
        "The machines whose states decide most, what each state means, and which may follow it: a machine that would do anything else ends its process. "
        "Each begins in the first state.\n",
    ]
    for title, transitions in MACHINES.items():
        states = type(next(iter(transitions)))
        meanings = _meanings(states)
        rows = (
            [f"`{state.name}`", meanings[state.name], ", ".join(f"`{each.name}`" for each in following) or "none"]
            for state, following in transitions.items()
        )
        parts += [f"## {title}\n", f"{inspect.getdoc(states)}\n", _table(["state", "meaning", "followed by"], rows)]
    return "\n".join(parts)


PAGES = {
    "messages.md": messages_page,
    "settings.md": settings_page,
    "metrics.md": metrics_page,
    "tables.md": tables_page,
    "actions.md": actions_page,
    "status_codes.md": status_page,
    "states.md": states_page,
}


def main(argv: list[str] | None = None) -> int:
    """Write the pages; with --check only say which would change."""
    parser = argparse.ArgumentParser(prog="render_docs", description=__doc__)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args(argv)
    docs = Path(__file__).resolve().parents[2] / "docs"
    stale = 0
    for name, page in PAGES.items():
        path, text = docs / name, page()
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        print(f"{'out of date' if arguments.check else 'written'}: docs/{name}")
        if not arguments.check:
            path.write_text(text)
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
