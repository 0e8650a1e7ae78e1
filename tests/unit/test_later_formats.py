"""What a later version wrote is refused with its version and the one that is known: the table of docs/upgrades.md. Peers: tests/integration/test_versions.py;
stores: test_wrong_disk.py and test_sqlite_epoch_store.py there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from epoch_store.backup import DiskReport, EpochStoreCopy
from epoch_store.cells import WriteId, decode_cell, encode_cell
from epoch_store.interface import WriterIdentity
from logdevice_py.core.entry import ENTRY_VERSION, parse_header
from logdevice_py.core.ids import Generation, InstanceId, NodeId, ShardId
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import Timestamp
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.later_format import LaterFormatError
from tests.unit.epoch_store.test_updaters import STORED

WRITE = WriteId(WriterIdentity(NodeId(0), InstanceId(1)), 1)


def later(data: bytes) -> bytes:
    """The same array of a format that came after it, with a field more."""
    first, *others = msgpack.unpackb(data)
    packed: bytes = msgpack.packb([first + 1, *others, 7])
    return packed


@pytest.mark.parametrize(
    ("decode", "data", "text"),
    [
        (decode_cell, later(encode_cell(WRITE, b"x")), "cell version 2 is not known, this program knows 1"),
        (EpochMetaData.decode, later(STORED.encode()), "version 2 is not known, this program knows 1"),
        (RebuildingSet.decode, later(RebuildingSet().encode()), "version 3 is not known, this program knows 2"),
        (parse_header, bytes([ENTRY_VERSION + 1]) * 200, "entry version 3 is not known, this program knows up to 2"),
    ],
)
def test_what_was_stored_by_a_later_version_names_both(decode: Callable[[bytes], Any], data: bytes, text: str) -> None:
    with pytest.raises(Exception, match=text) as refused:
        decode(data)
    assert type(refused.value).__name__ == "CorruptEntryError"


def test_a_marker_of_a_later_version_is_no_damage() -> None:
    marker = ShardMarker(b"c" * 16, ShardId(256), Generation(2), False, "boot", 3, b"birth")
    with pytest.raises(LaterFormatError, match="marker of the store has version 2, this program knows 1") as refused:
        ShardMarker.decode(later(marker.encode()))
    assert "Start that one" in refused.value.detail


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (EpochStoreCopy.parse, EpochStoreCopy("c", b"u" * 16, Timestamp(1), {}).to_text()),
        (DiskReport.parse, DiskReport(b"u" * 16, ShardId(0), Generation(1), 1, {}, {}).to_text()),
    ],
    ids=["copy", "report"],
)
def test_files_of_a_later_ldctl_are_refused(parse: Callable[[str], Any], text: str) -> None:
    parse(text)
    with pytest.raises(LogDeviceError, match="the file has version 2, this program reads 1"):
        parse(json.dumps({**json.loads(text), "version": 2}))
