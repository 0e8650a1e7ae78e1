"""What goes over the wire and onto disks is what it was, or the change is meant: see `tests/golden/formats.py` for what is covered.

The two tests over all that is recorded say which version a change breaks, and what to do.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from dataclasses import MISSING, replace
from pathlib import Path
from typing import Any

import pytest

from epoch_store.interface import Operation
from logdevice_py.core.entry import EntryFlags
from logdevice_py.core.status import ProtocolError
from logdevice_py.event_log.events import Event
from logdevice_py.protocol.declare import CODECS, ListKind, TupleKind
from logdevice_py.protocol.framing import decode_frame
from logdevice_py.protocol.messages import MessageType
from tests.golden import record
from tests.golden.formats import formats
from tests.golden.frames import RECORDED as RECORDED_FRAMES
from tests.golden.frames import fields_of, with_fields
from tests.golden.record import GoldenCase, GoldenFormat, RecordedCase, base_name, read_file, rewritten, trouble_of

ROOT = Path(__file__).parents[2]
FORMATS = formats()
RECORDED = [(format_, name) for format_ in FORMATS for name in read_file(format_)]
PACKERS = {
    "server/dev/region_network.py": "a request to the kernel",
    "client/guards.py": "keys of records, which are bytes to whoever stores them",
    "client/log_tree/commands.py": "log_tree",
    "client/log_tree/state.py": "log_tree",
    "client/maintenance/state.py": "maintenances",
    "client/replica/applied_state.py": "replicas",
    "client/replica/chunked_snapshots.py": "replicas",
    "client/replica/command_replica.py": "random ids",
    "client/replica/command_set.py": "log_tree",
    "client/replica/commands.py": "replicas",
    "client/spark/naming.py": "agreements",
    "client/spark/rows.py": "agreements",
    "epoch_store/cells.py": "epoch_store",
    "indexlog/manifest/state.py": "index_log",
    "indexlog/paging.py": "index_log",
    "indexlog/raw_files.py": "index_log",
    "indexlog/records.py": "index_log",
    "logdevice_py/config/stored.py": "epoch_store",
    "logdevice_py/core/batch.py": "batches",
    "logdevice_py/core/entry.py": "entries",
    "logdevice_py/core/epoch_summary.py": "entries",
    "logdevice_py/core/extensions.py": "entries",
    "logdevice_py/core/record_keys.py": "batches",
    "logdevice_py/core/sealed_batch.py": "batches",
    "logdevice_py/event_log/events.py": "event_log",
    "logdevice_py/event_log/rebuilding_set.py": "event_log",
    "logdevice_py/metadata/epoch_metadata.py": "epoch_metadata",
    "logdevice_py/protocol/declare.py": "messages",
    "logdevice_py/protocol/first_rows.py": "messages, cut to what the first release reads",
    "logdevice_py/protocol/framing.py": "messages",
    "streams/cold/entries.py": "agreements",
    "streams/subscriptions/member.py": "random ids",
    "streams/subscriptions/state.py": "subscriptions",
    "storage_node/repair/copies.py": "agreements",
    "storage_node/log_store/contents.py": "stored_values",
    "storage_node/log_store/extents/block_format.py": "extents",
    "storage_node/log_store/extents/held_extents.py": "extents",
    "storage_node/log_store/extents/rows.py": "extents",
    "storage_node/log_store/extents/sorted_table.py": "extents",
    "storage_node/log_store/extents/upkeep.py": "extents",
    "storage_node/log_store/identity.py": "stored_values",
    "storage_node/log_store/keys.py": "stored_keys",
    "storage_node/log_store/partitions.py": "stored_values",
    "storage_node/log_store/rocksdb/families.py": "stored_values",
    "streams/state.py": "namespace",
    "streams/upkeep/state.py": "namespace",
    "storage_node/stored_metadata.py": "stored_values",
    "client/write/write_stream.py": "random ids",
    "server/simulation/node.py": "the hash over a simulated run",
    "storage_node/log_store/memory_disk.py": "disks of the simulator",
    "storage_node/log_store/rocksdb/store_lock.py": "an argument of the operating system",
    "storage_node/log_store/rocksdb/wal_check.py": "reads what RocksDB writes",
    "storage_node/log_store/wanted.py": "reads images; sets of shards in memory",
    "storage_node/writing/recent_entries.py": "reads images",
    "storage_node/epochs/recovered_epochs.py": "rows in memory",
}
"""Every module that packs bytes: where they are recorded, or why they need not be."""


def _id(value: Any) -> str:
    return value.name if isinstance(value, GoldenFormat) else str(value)


@pytest.mark.parametrize(("format_", "name"), RECORDED, ids=_id)
def test_recorded_bytes_are_read_as_they_were(format_: GoldenFormat, name: str) -> None:
    case = next((each for each in format_.cases if each.name == base_name(name)), None)
    trouble = "there is no such case any more" if case is None else trouble_of(case, read_file(format_)[name])
    assert not trouble, (
        f"\n\n{format_.path.name}, {name}: {trouble}.\n\nThis breaks {format_.version}: what others wrote or write is not understood.\n"
        f"{format_.change}\nTo go on reading what was recorded is the way out, recording it anew is not."
    )


@pytest.mark.parametrize("format_", FORMATS, ids=_id)
def test_this_version_writes_what_is_recorded(format_: GoldenFormat) -> None:
    text, _ = rewritten(format_)
    recorded = read_file(format_)
    changed = [
        case.name
        for case in format_.cases
        if case.name not in recorded
        or (
            case.written
            and (recorded[case.name].data, recorded[case.name].fields) != (case.data, case.fields(case.data))
        )
    ]
    assert not changed, (
        f"\n\n{format_.path.name}: other bytes or fields than recorded, or none recorded, of: {', '.join(changed)}.\n\nThis changes {format_.version}.\n"
        f"{format_.change}"
    )
    assert format_.path.read_text() == text, f"{format_.path.name} was written by hand: run `make goldens`"


def test_every_message_has_golden_bytes() -> None:
    recorded = read_file(next(each for each in FORMATS if each.name == "messages"))
    for number in MessageType:
        for kind in ("usual", "least", "greatest"):
            assert recorded[f"{number.name}, {kind}"].data[6] == number
    assert set(CODECS) == set(MessageType)


def test_every_flag_event_and_operation_has_golden_bytes() -> None:
    recorded = {each.name: read_file(each) for each in FORMATS}
    flags = set("|".join(each.fields["flags"].strip("'") for each in recorded["entries"].values()).split("|"))
    assert flags - {"NONE"} == {flag.name for flag in EntryFlags}
    events = {name.partition(",")[0] for name in recorded["event_log"]}
    assert {each.__name__ for each in typing.get_args(Event)} <= events
    operations = typing.get_args(Operation)
    assert operations
    for operation in operations:
        assert f"name of the cell for {operation.__name__}" in recorded["epoch_store"]


def test_every_module_that_packs_bytes_says_where_they_are_recorded() -> None:
    packs = re.compile(r"(?<!un)packb\(|Packer\(|struct\.Struct\(|struct\.pack\(|\.to_bytes\(")
    found = {
        str(path.relative_to(ROOT))
        for package in (
            "logdevice_py",
            "epoch_store",
            "sequencer",
            "storage_node",
            "client",
            "streams",
            "server",
            "ldquery",
            "indexlog",
        )
        for path in (ROOT / package).rglob("*.py")
        if packs.search(path.read_text())
    }
    assert found == set(PACKERS), "a module packs bytes and PACKERS does not know it, or the other way round"


# Messages of a version before or behind


@pytest.mark.parametrize("name", RECORDED_FRAMES)
def test_fields_and_places_that_a_later_version_added_are_ignored(name: str) -> None:
    frame = RECORDED_FRAMES[name]
    meant, fields = decode_frame(frame), fields_of(frame)
    assert decode_frame(with_fields(frame, [*fields, 1, "x", [[1, 2]]])) == meant
    longer = list(fields)
    for index in rows_of(frame):
        longer[index] = [[*row, 5] for row in fields[index]]
    assert decode_frame(with_fields(frame, longer)) == meant


def rows_of(frame: bytes) -> list[int]:
    """The fields of a frame that are lists of rows."""
    kinds = [kind for _, kind in CODECS[frame[6]].fields]
    return [at for at, kind in enumerate(kinds) if isinstance(kind, ListKind) and isinstance(kind.element, TupleKind)]


def test_some_frames_have_rows() -> None:
    assert sum(bool(rows_of(frame)) for frame in RECORDED_FRAMES.values()) > 10


@pytest.mark.parametrize("name", RECORDED_FRAMES)
def test_fields_that_an_earlier_version_did_not_send_have_their_defaults(name: str) -> None:
    frame = RECORDED_FRAMES[name]
    meant, fields = decode_frame(frame), fields_of(frame)
    codec = CODECS[frame[6]]
    required = sum(
        each.default is each.default_factory is MISSING
        for each in dataclasses.fields(codec.cls)
        if each.name != codec.payload
    )
    for count in range(required, len(fields)):
        found = decode_frame(with_fields(frame, fields[:count]))
        sent = [field for field, _ in codec.fields[:count]]
        assert [getattr(found, field) for field in sent] == [getattr(meant, field) for field in sent]
    with pytest.raises(ProtocolError, match=f"{required - 1} fields, at least {required} needed"):
        decode_frame(with_fields(frame, fields[: required - 1]))


# The recording itself


@pytest.fixture
def format_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GoldenFormat:
    """A format of two bytes, the second of which may be left out."""
    monkeypatch.setattr(record, "DIRECTORY", tmp_path)
    case = GoldenCase("one", b"\x01\x02", lambda data: {"first": data[0], "second": data[1] if len(data) > 1 else 0})
    made = GoldenFormat("toy", "toy version 1", "Take another one.", [case])
    _write(made)
    return made


def _write(format_: GoldenFormat) -> list[str]:
    text, lost = rewritten(format_)
    format_.path.write_text(text)
    return lost


def _with_case(format_: GoldenFormat, **changes: Any) -> GoldenFormat:
    return replace(format_, cases=[replace(format_.cases[0], **changes)])


def test_what_is_recorded_is_read_back(format_: GoldenFormat) -> None:
    assert read_file(format_) == {"one": RecordedCase({"first": "1", "second": "2"}, b"\x01\x02")}
    assert rewritten(format_) == (format_.path.read_text(), [])


def test_bytes_that_are_not_written_any_more_stay_as_long_as_they_are_read(format_: GoldenFormat) -> None:
    assert _write(_with_case(format_, data=b"\x01\x05")) == []
    assert _write(_with_case(format_, data=b"\x03\x05")) == []
    assert {name: each.data for name, each in read_file(format_).items()} == {
        "one": b"\x03\x05",
        "one, before 1": b"\x01\x02",
        "one, before 2": b"\x01\x05",
    }


def test_a_reader_that_reads_something_else_or_nothing_is_noticed(format_: GoldenFormat) -> None:
    (recorded,) = read_file(format_).values()
    assert not trouble_of(format_.cases[0], recorded)
    swapped = _with_case(format_, read=lambda data: {"first": data[1], "second": data[0]})
    assert trouble_of(swapped.cases[0], recorded) == "first is read as 2, it was 1; second is read as 1, it was 2"
    broken = _with_case(format_, read=lambda data: {"first": data[7]})
    assert "they cannot be read: IndexError" in trouble_of(broken.cases[0], recorded)
    renamed = _with_case(format_, read=lambda data: {"number": data[0], "second": data[1]})
    assert trouble_of(renamed.cases[0], recorded) == "first is read as None, it was 1"
    assert rewritten(renamed)[1]
    further = _with_case(format_, read=lambda data: {"first": data[0], "second": data[1], "third": 0})
    assert not trouble_of(further.cases[0], recorded)


def test_a_change_is_told_with_the_version_that_it_breaks(format_: GoldenFormat) -> None:
    changed = _with_case(format_, data=b"\x01\x05")
    with pytest.raises(AssertionError, match=r"(?s)of: one\..*This changes toy version 1\..*Take another one\."):
        test_this_version_writes_what_is_recorded(changed)
    broken = _with_case(format_, read=lambda data: {"first": data[7]})
    with pytest.raises(AssertionError, match=r"(?s)cannot be read.*This breaks toy version 1.*Take another one\."):
        test_recorded_bytes_are_read_as_they_were(broken, "one")
    with pytest.raises(AssertionError, match="there is no such case any more"):
        test_recorded_bytes_are_read_as_they_were(replace(format_, cases=[]), "one")


def test_what_a_library_packs_differently_one_day_is_left_as_it_was_recorded(format_: GoldenFormat) -> None:
    packed = _with_case(format_, data=b"\x01\x02\x07", written=False)
    assert _write(packed) == []
    assert read_file(format_)["one"].data == b"\x01\x02"
    test_this_version_writes_what_is_recorded(packed)
