"""The attributes of a log, declared once: meaning, unit, default and bounds."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from logdevice_py.config.location import ANYWHERE, Areas
from logdevice_py.config.permits import NO_PERMITS, Permits, parse_permits
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.compression import Compression
from logdevice_py.core.declare import parse_setting, render_value, setting
from logdevice_py.core.ids import NODESET_SIZE_MAX
from logdevice_py.core.token_bucket import BURST_US, RateSettings

_MIB: Final = 1 << 20
_HOUR: Final = 3_600_000_000


class Durability(enum.IntEnum):
    """When a storage node says that it has stored a record; the numbers are those of messages."""

    SYNC = 0  # after the write-ahead log was synced to disk
    ASYNC = 1  # after the write reached the operating system


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAttributes(RateSettings):
    """What holds for every log of a group. All of them share one object."""

    path: str
    """Of the group in the log tree: ``/team/clicks``."""
    replication: ReplicationProperty
    """Written as ``replicate`` in the cluster file; the one attribute without a default."""
    nodeset_size: int = setting(
        0, unit="shards", lo=0, hi=NODESET_SIZE_MAX, doc="Shards over which an epoch of the log is spread; 0 is all."
    )
    extra_copies: int = setting(
        0,
        unit="copies",
        lo=0,
        hi=16,
        doc="Copies that are sent beside those that `replicate` asks for, as far as shards are available; an append is acknowledged when any of them satisfy "
        "`replicate`. For slow disks and distant regions.",
    )
    durability: Durability = setting(  # noqa: RUF009  (fields that `setting` makes)
        Durability.SYNC,
        unit="text",
        doc='When a copy counts as stored: "sync" after it is on disk, "async" after the operating system has it, unless its writer asks for a sync.',
    )
    sequencer_batching: bool = setting(
        True, unit="flag", doc="Put appends that reach the sequencer together into one entry with one LSN."
    )
    batching_time_us: int = setting(
        0,
        unit="us",
        lo=0,
        hi=10_000_000,
        doc="How long a batch of the sequencer stays open; 0 is one turn of its loop.",
    )
    batching_size_bytes: int = setting(
        _MIB, unit="bytes", lo=1, hi=32 * _MIB, doc="Size at which a batch of the sequencer is closed at once."
    )
    batching_compression: Compression = setting(  # noqa: RUF009
        Compression.NONE,
        unit="text",
        doc='How the sequencer packs entries of which clients left more than half unpacked: "none", "lz4" or "zstd". '
        "Readers of before this version take them for damaged.",
    )
    batching_passthrough_bytes: int = setting(
        4096, unit="bytes", lo=0, hi=32 * _MIB, doc="Appends of at least this size become entries of their own."
    )
    max_writes_in_flight: int = setting(
        1000, unit="entries", lo=2, hi=1_000_000, doc="Entries of one log that may be on their way at a time."
    )
    window_bytes: int = setting(
        64 * _MIB, unit="bytes", lo=1, hi=64 << 30, doc="Bytes of one log that may be on their way at a time."
    )
    sticky_copysets: bool = setting(True, unit="flag", doc="Keep a copyset for a block of entries.")
    sticky_block_bytes: int = setting(32 * _MIB, unit="bytes", lo=1, hi=64 << 30, doc="Size at which a block ends.")
    sticky_block_age_us: int = setting(_HOUR // 6, unit="us", lo=1, hi=24 * _HOUR, doc="Age at which a block ends.")
    single_copy_delivery: bool = setting(
        True, unit="flag", doc="Readers get each record from one shard of its copyset instead of from all."
    )
    read_near: bool = setting(
        True,
        unit="flag",
        doc="With single_copy_delivery: readers that know where they stand get records from the nearest shard that has them.",
    )
    hedged_reads: bool = setting(
        False,
        unit="flag",
        doc="With single_copy_delivery: readers ask other shards for what does not come in time from the shard that should send it.",
    )
    max_payload_bytes: int = setting(_MIB, unit="bytes", lo=1, hi=32 * _MIB, doc="Largest payload of one append.")
    strict_order: bool = setting(
        False,
        unit="flag",
        doc="Acknowledge appends of a new epoch only when nobody can be told any more that an append of an earlier epoch is stored: acknowledged appends of "
        "all clients are in order of real time. It cannot be taken back.",
    )
    ordered_time: bool = setting(
        False,
        unit="flag",
        doc="Timestamps never fall, also where a node takes over whose clock is behind: it goes on from that of the last record, which appends of its epoch "
        "wait for as those of guarded logs do. It cannot be taken back.",
    )
    backlog_us: int = setting(0, unit="us", lo=0, hi=876_600 * _HOUR, doc="How long records are kept; 0 is for ever.")
    roll_every: int = setting(
        0,
        unit="us",
        lo=0,
        hi=876_600 * _HOUR,
        doc="Age, from its first record on, at which an epoch that holds something is ended; 0 is never. Up to a tenth less, at random.",
    )
    roll_bytes: int = setting(
        0, unit="bytes", lo=0, hi=1 << 50, doc="Bytes of payloads at which an epoch is ended; 0 is never."
    )
    append_bytes_per_s: int = setting(
        0,
        unit="bytes",
        lo=0,
        hi=1 << 50,
        doc="Bytes of payloads, as clients send them, that may be appended to each log in a second; 0 is no limit. Beyond it appends are THROTTLED.",
    )
    append_records_per_s: int = setting(
        0,
        unit="records",
        lo=0,
        hi=1 << 40,
        doc="Records that may be appended to each log in a second; 0 is no limit.",
    )
    read_bytes_per_s: int = setting(
        0,
        unit="bytes",
        lo=0,
        hi=1 << 50,
        doc="Bytes of entries of each log that each node sends to readers in a second; 0 is no limit. Beyond it readers wait, and take turns.",
    )
    read_records_per_s: int = setting(
        0,
        unit="records",
        lo=0,
        hi=1 << 40,
        doc="Records of each log that each node sends to readers in a second; 0 is no limit.",
    )
    quota_burst_us: int = setting(
        BURST_US,
        unit="us",
        lo=1_000,
        hi=_HOUR,
        doc="What a log did not use of these four is saved up to as much as it gets in this time.",
    )
    sequencer_affinity: Areas = setting(  # noqa: RUF009
        ANYWHERE,
        unit="text",
        doc='Where the log is sequenced: in the first of these places in which any node can, like "us...., eu....", else anywhere; empty is anywhere.',
    )
    permit: Permits = setting(  # noqa: RUF009
        NO_PERMITS,
        unit="text",
        doc='Who may do what, like ["append:svc-clicks", "read:group/bi"], where permissions are on: append, read, trim or admin (all of these). '
        "Grants to anonymous hold for everybody. One that is set replaces the one above it.",
    )

    @property
    def rolls(self) -> bool:
        """Epochs of the log are ended because of their age or size."""
        return bool(self.roll_every or self.roll_bytes)


ATTRIBUTES: Final[Mapping[str, dataclasses.Field[Any]]] = {
    "replicate" if field.name == "replication" else field.name: field
    for field in dataclasses.fields(LogAttributes)
    if field.name != "path"
}
"""The attributes by their keys in the cluster file."""
_CHOICES: Final[Mapping[str, type[enum.IntEnum]]] = {"durability": Durability, "batching_compression": Compression}


def attribute_key(name: str) -> str | None:
    """The key in `ATTRIBUTES` of an attribute as people name it: a duration with or without ``_us``; None: there is none."""
    return next((key for key in (name, f"{name}_us") if key in ATTRIBUTES), None)


def parse_attribute(key: str, raw: Any) -> tuple[str, Any]:
    """Field name and value of an attribute as written in the cluster file; ValueError begins with the key."""
    field = ATTRIBUTES[key]
    if key == "permit":
        try:
            return key, parse_permits(raw)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    if key == "replicate" or key == "sequencer_affinity":
        if not isinstance(raw, str):
            raise ValueError(f"{key}: write a string")
        try:
            return field.name, (ReplicationProperty if key == "replicate" else Areas).parse(raw)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    value = parse_setting(field, raw)
    if key in _CHOICES:
        choices = _CHOICES[key]
        if value.upper() not in choices.__members__:
            names = ", ".join(f'"{name.lower()}"' for name in choices.__members__)
            raise ValueError(f"{key}: {value!r} is none of {names}")
        value = choices[value.upper()]
    return field.name, value


def render_attribute(name: str, value: Any) -> tuple[str, str | int | bool]:
    """The key and the TOML value of the attribute with field name `name`; `parse_attribute` reads them back."""
    if name == "replication":
        return "replicate", str(value)
    if name in ("sequencer_affinity", "permit"):
        return name, str(value)
    if name in _CHOICES:
        return name, value.name.lower()
    unit = ATTRIBUTES[name].metadata["unit"]
    return (name, render_value(unit, value)) if unit in ("us", "bytes") else (name, value)
