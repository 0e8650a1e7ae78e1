"""Says in words what a message carries, as far as its declaration tells: names of fields, kinds of values, flags.

A message that is new needs no line here. What a reader of stories would pass over is left out: ids of requests, sizes, timestamps, and every value
that says nothing, such as 0, an empty list or OK.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Final

from logdevice_py.core.batch import constituent_records
from logdevice_py.core.entry import (
    Constituent,
    ConstituentFlags,
    EntryFlags,
    EntryHeader,
    body_of,
    parse_constituents,
    parse_header,
)
from logdevice_py.core.epoch_summary import EpochCounts, EpochSummary, decode_rows
from logdevice_py.core.extensions import parse_extensions
from logdevice_py.core.ids import (
    EVENT_LOG_DELTAS,
    EVENT_LOG_SNAPSHOTS,
    LogId,
    ShardId,
    data_log_of,
    format_log,
    format_shard,
    is_metadata_log,
    node_of,
)
from logdevice_py.core.lsn import ESN_MAX, LSN_MAX, epoch_of, esn_of, format_lsn
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.event_log.events import decode_event
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData
from logdevice_py.protocol import messages as m
from logdevice_py.protocol.declare import (
    CODEC_OF,
    ESN,
    LOG,
    LSN,
    NODE,
    SHARD,
    STAMP,
    FieldKind,
    IntKind,
    ListKind,
    MessageCodec,
    StatusKind,
    TupleKind,
)
from storage_node.log_store.interface import LogMetadataKind, WriteBatch

_PASSED_OVER: Final = frozenset(
    {
        "request_id",
        "append_id",
        "rows",
        "recovery_id",
        "stream",
        "filter_version",
        "instance",
        "generation",
        "generations",
        "config_version",
        "writer",
        "crc",
        "records",
        "copyset",
        "durability",
        "replication",
        "window_high",
        "bytes_credit",
        "bytes_max",
        "digest",
    }
)
"""Fields that a reader passes over, whatever the message is."""
_FIRST: Final = ("log", "lsn")
"""Where it happens: said first."""
_BARE: Final = frozenset(
    {
        "",
        *_FIRST,
        "status",
        "reason",
        "flags",
        "state",
        "guards",
        "detail",
        "summary",
        "counts",
        "shard",
        "logs",
        "ranges",
        "epochs",
        "nodes",
    }
)
"""Fields of which the value says enough."""
_ENDS: Final = frozenset({"last", "until", "protocol_max"})
"""Of a range that begins with `first`, `from` or `protocol_min`."""
_JOINED: Final = frozenset({"lsn", "state"})
"""Places of a row that are said together with the one before."""
_SAID: Final = {
    "first": "from",
    "last": "to",
    "lng": "LNG",
    "last_esn": "last ESN",
    "next_lsn": "next LSN",
    "tail_lsn": "tail LSN",
    "previous_lsn": "previous LSN",
    "expected_lsn": "expected last",
    "protocol_min": "version",
    "protocol": "version",
    "cluster_name": "cluster",
}
"""Words for names of fields that are not the names themselves."""
_ENUMS: Final[dict[str, type[enum.IntEnum]]] = {"reason": m.GapReason, "state": m.NodeState}
"""Fields that hold a number of an enumeration."""
_EXTENSIONS: Final = frozenset({"counts", "summary"})
"""Fields that hold what an epoch holds, encoded."""
_TRUTHS: Final = frozenset({"authoritative"})
"""Places that hold 1 or 0."""
_ROWS: Final[dict[tuple[str, str], str]] = {
    ("Release", "logs"): "log lsn",
    ("Seal", "logs"): "log seal_epoch clean_epoch -",
    ("Sealed", "logs"): "log status seal_epoch seal_node trim_point epochs",
    ("Sealed", "epochs"): "epoch status lng last_esn - tail_lsn -",
    ("Digest", "ranges"): "log first last -",
    ("Digested", "ranges"): "log status through",
    ("Clean", "logs"): "log epoch lng last_esn tail_lsn - authoritative",
    ("Cleaned", "logs"): "log epoch status seal_epoch seal_node",
    ("EpochRecoveryMetadata", "epochs"): "epoch status seal_epoch lng last_esn tail_lsn - authoritative",
    ("SealChecked", "logs"): "log seal_epoch seal_node",
    ("ClusterState", "nodes"): "node state -",
    ("ShardStatus", "shards"): "shard - status",
    ("TrimPoints", "logs"): "log lsn",
}
"""Names of the places of rows, where the declaration has none; "-": passed over."""
_INTERNAL: Final = {EVENT_LOG_DELTAS: "event log", EVENT_LOG_SNAPSHOTS: "snapshots of the event log"}
_FLAG_CLASSES: Final = {
    name.removesuffix("Flags"): each
    for name, each in vars(m).items()
    if inspect.isclass(each) and issubclass(each, enum.IntFlag)
}


def name_of(message: object) -> str:
    """As in docs/messages.md, in capitals: ``STORE``. The name of its class when it is not declared."""
    codec = CODEC_OF.get(type(message))
    return type(message).__name__ if codec is None else m.MessageType(codec.number).name


def is_answer(message: object) -> bool:
    """Whether the shard that it names sends it, rather than gets it."""
    doc = type(message).__doc__ or ""
    return doc.startswith("Answer to") or isinstance(
        message, m.Records | m.ShardGap | m.SealChecked | m.EpochRecoveryMetadata
    )


def describe(message: object) -> str:
    """Everything but sender and receiver, in one line."""
    codec = CODEC_OF.get(type(message))
    if codec is None:
        return name_of(message)
    return f"{name_of(message):<8} {', '.join(_fields(codec, message))}".rstrip()


def _fields(codec: MessageCodec, message: Any) -> list[str]:
    kinds = dict(codec.fields)
    said = {name: _value(codec.name, name, kind, getattr(message, name)) for name, kind in kinds.items()}
    content = list(_content(codec, message))
    parts = [" ".join(filter(None, (said.get(name) for name in _FIRST)))]
    if content and "entries" not in kinds:
        parts[0] = " ".join(filter(None, [parts[0], *content]))
        content = []
    for name, value in said.items():
        # an image says its wave, and images stand for entries
        in_content = name == "entries" or (name == "wave" and codec.payload is not None)
        if name not in (*_FIRST, *_PASSED_OVER, "shard") and not in_content:
            _add(parts, name, value)
    return [*filter(None, parts), *content]


def _add(parts: list[str], name: str, said: str) -> None:
    """Say one more field, unless it says nothing."""
    if not said:
        return
    if name in _ENDS and parts and parts[-1].startswith(("from ", "version ")):
        parts[-1] += f" to {said}"
    elif name == "seal_node" and parts:
        parts[-1] += f" by {said}"
    elif name in _BARE:
        parts.append(said)
    else:
        parts.append(" ".join([_SAID.get(name, name.replace("_", " ")), *([] if said == "yes" else [said])]))


def _value(cls: str, name: str, kind: FieldKind, value: Any) -> str:
    """Empty when it says nothing."""
    if name == "flags":
        return flags_said(_flag_class(cls), value)
    if name == "guards":
        return flags_said(m.GuardFlags, value)
    if name in _ENUMS and value in list(_ENUMS[name]):
        return _ENUMS[name](value).name
    if isinstance(kind, StatusKind):
        return Status(value).name
    if isinstance(kind, ListKind):
        return _list(cls, name, kind, value)
    if isinstance(kind, IntKind):
        return _integer(name, kind, value)
    if isinstance(value, bool):
        return "yes" if value else ""
    if name in _EXTENSIONS and value:
        return _extension_said(name, value)
    return value if isinstance(value, str) else ""


def _extension_said(name: str, value: bytes) -> str:
    try:
        if name == "summary":
            return summary_said(EpochSummary.decode(value))
        counts = EpochCounts.decode(value)
    except CorruptEntryError as error:
        return f"({error})"
    return f"{amount_said(counts.records, counts.size)} so far"


def _integer(name: str, kind: IntKind, value: int) -> str:
    if kind is SHARD:
        return shard_said(ShardId(value))
    if kind is NODE:
        return f"N{value}" if value >= 0 else ""
    if not value or kind is STAMP:
        return ""
    if kind is LOG:
        return log_said(LogId(value))
    if kind is LSN:
        return "" if name == "until" and value == LSN_MAX else lsn_said(value)
    return f"n{value}" if kind is ESN else str(value)


def _list(cls: str, name: str, kind: ListKind, values: list[Any]) -> str:
    if not isinstance(kind.element, TupleKind):
        return " ".join(filter(None, (_value(cls, name, kind.element, value) for value in values)))
    places = _places(cls, name, kind.element)
    rows = [_row(cls, places, value) for value in values]
    if cls == "ClusterState":
        rows = [row for row in rows if not row.endswith(m.NodeState.ALIVE.name)] or ["all are ALIVE"]
    return "; ".join(filter(None, rows))


def _places(cls: str, name: str, kind: TupleKind) -> Sequence[tuple[str, FieldKind]]:
    """Name and kind of each place of a row."""
    declared: Sequence[tuple[str, FieldKind]] | None = getattr(kind, "places", None)
    if declared is not None:
        return declared
    names = _ROWS.get((cls, name), "").split() or [""] * len(kind.elements)
    return list(zip(names, kind.elements, strict=True))


def _row(cls: str, places: Sequence[tuple[str, FieldKind]], values: Sequence[Any]) -> str:
    parts: list[str] = []
    for (name, kind), value in zip(places, values, strict=False):
        if name == "-" or name in _PASSED_OVER:
            continue
        said = _value(cls, name, kind, value)
        if name in _TRUTHS:
            parts.append(name if value else f"not {name}")
        elif parts and said and name in _JOINED:
            parts[-1] += f" {said}"
        elif said != "OK":
            _add(parts, "" if name == "node" else name, said)
    return ", ".join(parts)


# Entries and records


def _content(codec: MessageCodec, message: Any) -> Iterator[str]:
    """What the payload of a message holds."""
    if isinstance(message, m.Append | m.GuardedAppend):
        if message.records:
            yield _append_content(message)
        return
    if codec.payload is None:
        return
    payload = getattr(message, codec.payload)
    if isinstance(message, m.EpochsListed):
        yield _summaries_said(payload)
        return
    if hasattr(message, "entries"):
        yield from _images(message.entries, payload)
    elif payload:
        yield image_said(payload, with_lsn=False)


def _summaries_said(rows: bytes) -> str:
    try:
        return "; ".join(f"epoch {epoch}: {summary_said(summary)}" for epoch, summary in decode_rows(rows))
    except CorruptEntryError as error:
        return f"({error})"


def _append_content(message: m.Append | m.GuardedAppend) -> str:
    flags = 0
    if message.flags & m.AppendFlags.BATCH:
        flags |= ConstituentFlags.BATCH
    if message.flags & m.AppendFlags.KEYS:
        flags |= ConstituentFlags.KEYS
    return _records_said(LogId(message.log), [Constituent(message.payload, message.records, message.crc, flags)])


def _images(entries: list[Any], payload: bytes) -> Iterator[str]:
    at = 0
    for entry in entries:
        length = entry[-1] if isinstance(entry, tuple) else entry.length
        image = payload[at : at + length]
        at += length
        yield image_said(image, with_lsn=True) if image else f"{lsn_said(entry[-2])} (held, and cannot be read)"


def image_said(image: bytes, *, with_lsn: bool) -> str:
    """An image of an entry: its content, its wave or seal epoch, and its copyset."""
    try:
        header = parse_header(image, alone=True)
        content = _body_said(header, image)
    except CorruptEntryError as error:
        return f"({error})"
    by_recovery = header.flags & EntryFlags.WRITTEN_BY_RECOVERY
    copyset = " ".join(map(shard_said, header.copyset))
    if with_lsn:
        origin = "recovery" if by_recovery else f"wave {header.wave}"
        return f"{lsn_said(header.lsn)} {content} ({origin} on {copyset})"
    return f"{content}, copyset {copyset}" if by_recovery else f"{content}, wave {header.wave}, copyset {copyset}"


def _body_said(header: EntryHeader, image: bytes) -> str:
    if header.flags & EntryFlags.BRIDGE:
        summary = parse_extensions(header.extensions).summary
        return "BRIDGE" if summary is None or not summary.counted else f"BRIDGE ({summary_said(summary)})"
    if header.flags & EntryFlags.HOLE:
        return "HOLE"
    if header.flags & EntryFlags.AMEND:
        return "AMEND"
    if header.flags & EntryFlags.CONTROL:
        tail = parse_extensions(header.extensions).tail
        assert tail is not None, "a control entry says what it changes"
        return f"CONTROL (fence {tail.fence}{', ended' if tail.ended else ''})"
    if header.flags & EntryFlags.METADATA or is_metadata_log(LogId(header.log)):
        bodies = [part.payload for part in parse_constituents(body_of(image))]
        return " ".join(metadata_said(EpochMetaData.decode(body)) for body in bodies)
    return _records_said(LogId(header.log), parse_constituents(body_of(image)))


def _records_said(log: LogId, parts: list[Constituent]) -> str:
    texts = [text_said(log, record) for part in parts for record in constituent_records(part)]
    return " ".join(texts)


def text_said(log: LogId, record: bytes | None) -> str:
    """A record as people wrote it."""
    if record is None:
        return "(damaged)"
    if log == EVENT_LOG_DELTAS:
        event = decode_event(record)
        return "an event of a later version" if event is None else event_said(event)
    return '"' + record.decode("utf-8", "replace") + '"'


def event_said(event: Any) -> str:
    """An event of the event log."""
    parts = []
    for each in dataclasses.fields(event):
        value = getattr(event, each.name)
        if each.name in ("shard", "donor"):
            parts.append(format_shard(value))
        elif each.name in ("round", "since"):
            parts.append(f"{each.name} {lsn_said(value)}")
        elif isinstance(value, enum.IntFlag):
            parts += [flags_said(type(value), value)] if value else []
        elif isinstance(value, enum.Enum):
            parts.append(value.name)
        elif each.name == "source" and value:
            parts.append(f"({value})")
    return " ".join([type(event).__name__, *parts])


def write_said(batch: WriteBatch, *, sync: bool) -> str:
    """What a shard writes at once. Empty where that is nothing but a release pointer, which is written now and then."""
    parts = [
        f"{log_said(log)} {lsn_said(lsn)} (wave {wave})"
        for log, lsn, recovered, wave, _ in batch.entries
        if not recovered
    ]
    parts += [
        f"{log_said(log)} {lsn_said(lsn)} (of recovery)" for log, lsn, recovered, _, _ in batch.entries if recovered
    ]
    parts += [f"{log_said(log)} {lsn_said(lsn)} (another copyset)" for log, lsn, _, _, _ in batch.headers]
    parts += [f"deletes {log_said(log)} {_range_said(first, last)}" for log, first, last in batch.deletes]
    parts += [
        f"{log_said(log)} {kind.name}"
        for log, kind, _ in batch.log_metadata
        if kind is not LogMetadataKind.LAST_RELEASED
    ]
    parts += [f"{log_said(log)} epoch {epoch} {kind.name}" for log, epoch, kind, _ in batch.epoch_metadata]
    return ", ".join(dict.fromkeys(parts)) + ("; sync" if sync else "") if parts else ""


def _range_said(first: int, last: int) -> str:
    return f"{lsn_said(first)} to {lsn_said(last)}"


# Smaller things


def metadata_said(metadata: EpochMetaData) -> str:
    """What the epoch store, or the metadata log, has of a log."""
    current: EpochInterval = metadata.current
    nodeset = " ".join(map(shard_said, sorted(current.shards)))
    return f"{current.replication} on nodeset {nodeset} from epoch {current.since} on"


def summary_said(summary: EpochSummary) -> str:
    """What recovery says that an epoch holds."""
    if not summary.last:
        return "nothing"
    held = f"{amount_said(summary.records, summary.size)}, " if summary.counted else ""
    return f"{held}n{summary.first or 1} to n{summary.last}"


def amount_said(records: int | None, size: int | None) -> str:
    """What an epoch has; None: nobody knows."""
    return f"{records} record{'' if records == 1 else 's'}, {size} bytes"


def log_said(log: LogId) -> str:
    if data_log_of(log) in _INTERNAL:
        return ("metadata of " if is_metadata_log(log) else "") + _INTERNAL[data_log_of(log)]
    return format_log(log) if is_metadata_log(log) else f"log {format_log(log)}"


def lsn_said(lsn: int) -> str:
    """``e1n5``."""
    if esn_of(lsn) == ESN_MAX:
        return "the end" if lsn == LSN_MAX else f"the end of epoch {epoch_of(lsn)}"
    return format_lsn(lsn) if lsn else ""


def shard_said(shard: ShardId) -> str:
    """``N2``: each node of a story has one shard."""
    return f"N{node_of(shard)}"


def flags_said(cls: type[enum.IntFlag] | None, value: int) -> str:
    """Names of the bits that are set."""
    if not value:
        return ""
    if cls is None:
        return f"flags {value}"
    return " ".join(flag.name or "" for flag in cls if flag.value and value & flag.value)


def _flag_class(cls: str) -> type[enum.IntFlag] | None:
    named = [name for name in _FLAG_CLASSES if name in cls]
    return _FLAG_CLASSES[max(named, key=len)] if named else None
