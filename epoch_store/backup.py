"""A copy of an epoch store in a file, and what is made of it when the store is restored: never less than the disks of the cluster know.

A copy is older than what it is a copy of. A store that gave an epoch after the copy was made would, restored as it was copied, give that epoch again, to
another sequencer: two entries for one LSN. So a copy is only ever restored together with what every shard's disk knows (`DiskReport`), while no node runs:

1. *Epochs*: a log goes on behind the greatest epoch of which any disk has a trace: entries, seals, soft seals, ends of recoveries, records of its metadata log. An epoch
   that left no trace on any disk can be given again: nothing was stored in it, and no process that had it is there any more.
2. *History*: the newest record of the log's metadata log counts where it is newer than the copy, since it is written before an epoch uses it. It is marked as not
   written, so that the next sequencer writes it again.
3. *Recovered up to*: as in the copy. Recovery repeats what came after, and finds what it left.
4. *Shards*: the generation on a disk counts where it is later than the copy's: epochs list it.
5. *Disks that are missing* have to be named. Nobody knows what they have a trace of, so all logs go on a number of epochs further on.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from epoch_store.cells import WriteId, decode_cell, decode_shard_identity, encode_cell, encode_shard_identity, key_of
from epoch_store.interface import ReadMetadata, ReadShardIdentity, ShardIdentity
from logdevice_py.core.ids import Generation, LogId, ShardId, format_shard, node_of, shard_index_of
from logdevice_py.core.lsn import EPOCH_MAX, Epoch
from logdevice_py.core.status import CorruptEntryError, LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import EpochMetaData

BEYOND_MISSING: Final = 16
"""How many epochs are left out where disks are missing: more activations in a row without a trace on any disk that is there are not to be expected."""
_VERSION: Final = 1
_COPY: Final = "epoch store"
_DISK: Final = "disk"


@dataclass(frozen=True, slots=True)
class EpochStoreCopy:
    """All cells of one cluster."""

    cluster: str
    uuid: bytes
    taken: Timestamp
    cells: Mapping[str, bytes]
    """Contents by key."""

    def to_text(self) -> str:
        """As a file."""
        cells = {key: base64.b64encode(self.cells[key]).decode() for key in sorted(self.cells)}
        return _text(
            {
                "kind": _COPY,
                "version": _VERSION,
                "cluster": self.cluster,
                "uuid": self.uuid.hex(),
                "taken": self.taken,
                "cells": cells,
            }
        )

    @classmethod
    def parse(cls, text: str) -> EpochStoreCopy:
        """From a file.

        Raises:
            LogDeviceError: INVALID_PARAM: it is none, or of a later version.
        """
        values = _values(text, _COPY)
        try:
            cells = {str(key): base64.b64decode(value, validate=True) for key, value in values["cells"].items()}
            for content in cells.values():
                decode_cell(content)
            return cls(str(values["cluster"]), bytes.fromhex(values["uuid"]), Timestamp(int(values["taken"])), cells)
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error, CorruptEntryError) as error:
            raise _refused(f"the copy of the epoch store cannot be read: {error!r}") from None


@dataclass(frozen=True, slots=True)
class DiskReport:
    """What the disk of a shard knows of epochs."""

    cluster: bytes
    """UUID."""
    shard: ShardId
    generation: Generation
    incarnation: int
    epochs: Mapping[LogId, Epoch]
    """The greatest epoch of each log of which there is a trace."""
    metadata: Mapping[LogId, EpochMetaData]
    """The newest record in the metadata log of each log of which the disk has a copy."""

    def to_text(self) -> str:
        """As a file."""
        return _text(
            {
                "kind": _DISK,
                "version": _VERSION,
                "uuid": self.cluster.hex(),
                "shard": self.shard,
                "generation": self.generation,
                "incarnation": self.incarnation,
                "epochs": {str(log): self.epochs[log] for log in sorted(self.epochs)},
                "metadata": {
                    str(log): base64.b64encode(self.metadata[log].encode()).decode() for log in sorted(self.metadata)
                },
            }
        )

    @classmethod
    def parse(cls, text: str) -> DiskReport:
        """From a file.

        Raises:
            LogDeviceError: INVALID_PARAM: it is none, or of a later version.
        """
        values = _values(text, _DISK)
        try:
            return cls(
                bytes.fromhex(values["uuid"]),
                ShardId(int(values["shard"])),
                Generation(int(values["generation"])),
                int(values["incarnation"]),
                {LogId(int(log)): Epoch(int(epoch)) for log, epoch in values["epochs"].items()},
                {
                    LogId(int(log)): EpochMetaData.decode(base64.b64decode(record, validate=True))
                    for log, record in values["metadata"].items()
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error, CorruptEntryError) as error:
            raise _refused(f"the report of a disk cannot be read: {error!r}") from None


@dataclass(frozen=True, slots=True)
class Restored:
    """What is to be stored."""

    cells: Mapping[str, bytes]
    moved: Mapping[LogId, tuple[Epoch, Epoch]]
    """Logs that go on further than the copy says: the next epoch as it has it (0: it does not know the log), and the epoch that is stored."""
    generations: Sequence[ShardId]
    """Shards whose generation was taken from their disk."""


def restore(
    copy: EpochStoreCopy,
    reports: Iterable[DiskReport],
    write: WriteId,
    *,
    missing: frozenset[ShardId] = frozenset(),
    beyond: int = BEYOND_MISSING,
) -> Restored:
    """What a restored store holds: rules 1 to 5 of this module.

    Args:
        copy: whose cells may be none: then everything is from the disks.
        reports: of all disks, made when no node was running any more.
        write: names the writer of what is changed.
        missing: shards whose disks are lost or out of reach.
        beyond: how many epochs are left out if there are such.

    Raises:
        LogDeviceError: INVALID_CLUSTER: a disk is another cluster's; INVALID_PARAM: a shard has neither a report nor is it said to be missing.
    """
    disks = {report.shard: report for report in reports}
    for shard, report in disks.items():
        if report.cluster != copy.uuid:
            raise LogDeviceError(
                Status.INVALID_CLUSTER,
                f"the disk of {format_shard(shard)} is one of the cluster {report.cluster.hex()}",
            )
    stored = {log: _metadata(copy, log) for log in _logs(copy)}
    known = {shard for metadata in stored.values() for interval in metadata.history for shard in interval.shards}
    known |= {
        shard
        for report in disks.values()
        for record in report.metadata.values()
        for interval in record.history
        for shard in interval.shards
    }
    if unknown := sorted((known | _shards(copy)) - disks.keys() - missing):
        names = ", ".join(map(format_shard, unknown))
        raise _refused(
            f"nothing is said of the disks of {names}: they may know of later epochs. Give their reports (logdeviced --report-epochs), or name them with --missing"
        )
    cells = dict(copy.cells)
    moved: dict[LogId, tuple[Epoch, Epoch]] = {}
    logs = stored.keys() | {log for report in disks.values() for log in (*report.epochs, *report.metadata)}
    for log in sorted(logs):
        before = stored.get(log)
        after = _restored(log, before, disks.values(), beyond if missing else 0)
        if after != before:
            cells[key_of(ReadMetadata(log))] = encode_cell(write, after.encode())
            moved[log] = (Epoch(0) if before is None else before.epoch, after.epoch)
    generations = []
    for shard, report in sorted(disks.items()):
        key = key_of(ReadShardIdentity(node_of(shard), shard_index_of(shard)))
        identity = _identity(copy, shard)
        if identity is None or identity.generation < report.generation:
            found = ShardIdentity(copy.uuid, shard, report.generation, report.incarnation)
            cells[key] = encode_cell(write, encode_shard_identity(found))
            generations.append(shard)
    return Restored(cells, moved, generations)


def _restored(log: LogId, stored: EpochMetaData | None, disks: Iterable[DiskReport], beyond: int) -> EpochMetaData:
    disks = list(disks)
    records = [report.metadata[log] for report in disks if log in report.metadata]
    newest = max(records, key=lambda record: (record.effective_since, record.epoch), default=None)
    base = stored
    if newest is not None and (base is None or newest.effective_since > base.effective_since):
        base = replace(
            newest,
            written=False,
            disabled=base is not None and base.disabled,
            guarded_since=newest.guarded_since or (base.guarded_since if base is not None else Epoch(0)),
            strict_since=newest.strict_since or (base.strict_since if base is not None else Epoch(0)),
        )
    if base is None:
        raise _refused(
            f"log {log} has entries, but no disk has a record of its metadata log, and the copy does not know it: its nodesets are lost"
        )
    traces = [report.epochs.get(log, Epoch(0)) for report in disks]
    later = (
        max(base.epoch, *(record.epoch for record in records), *(epoch + 1 for epoch in traces))
        if disks
        else base.epoch
    )
    after = min(later + beyond, EPOCH_MAX)
    return base if after == base.epoch else replace(base, epoch=Epoch(after))


def _logs(copy: EpochStoreCopy) -> list[LogId]:
    return [
        LogId(int(key.split("/")[1])) for key in copy.cells if key.startswith("logs/") and key.endswith("/sequencer")
    ]


def _metadata(copy: EpochStoreCopy, log: LogId) -> EpochMetaData:
    key = key_of(ReadMetadata(log))
    try:
        return EpochMetaData.decode(decode_cell(copy.cells[key])[1])
    except CorruptEntryError as error:
        raise _refused(f"{key} in the copy is damaged: {error}") from None


def _shards(copy: EpochStoreCopy) -> set[ShardId]:
    found = set()
    for key in copy.cells:
        if key.startswith("shards/N"):
            node, _, index = key.removeprefix("shards/N").partition(":S")
            found.add(ShardId(int(node) << 8 | int(index)))
    return found


def _identity(copy: EpochStoreCopy, shard: ShardId) -> ShardIdentity | None:
    operation = ReadShardIdentity(node_of(shard), shard_index_of(shard))
    content = copy.cells.get(key_of(operation))
    if content is None:
        return None
    try:
        return decode_shard_identity(operation, decode_cell(content)[1])
    except CorruptEntryError as error:
        raise _refused(f"{key_of(operation)} in the copy is damaged: {error}") from None


def _text(values: Mapping[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":")) + "\n"


def _values(text: str, kind: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise _refused(f"no file of this kind ({kind}): it is no JSON") from None
    if not isinstance(values, dict) or values.get("kind") != kind:
        raise _refused(f"no file of this kind ({kind})")
    if values.get("version") != _VERSION:
        raise _refused(f"the file has version {values.get('version')}, this program reads {_VERSION}")
    return values


def _refused(text: str) -> LogDeviceError:
    return LogDeviceError(Status.INVALID_PARAM, text)
