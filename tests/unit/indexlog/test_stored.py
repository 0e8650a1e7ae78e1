"""Files of the store: what is damaged in one is told, and never taken for documents."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indexlog import stored
from indexlog.columns import SCHEMA, IndexRows, rows_of, table_of
from indexlog.manifest.parts import WHOLE_FILE, Part, PartKind
from indexlog.merging import MergeTask, do_merge
from indexlog.planning import MergePlan
from indexlog.records import Modification
from indexlog.stored import read_rows, read_run, write_container, write_run
from indexlog.stores import ArrowStore, MemoryStore, StoreUnavailable
from logdevice_py.core.status import LogDeviceError, Status

CHANGES = [(f"doc-{number:03}", Modification(True, {"n": str(number) * 9}, {1: 0.5})) for number in range(60)]
CONTAINER = Part("1/a", 0, PartKind.UNSORTED, len(CHANGES), 1, 1, 1, 1, 1)
RUN = CONTAINER._replace(place=WHOLE_FILE, kind=PartKind.SORTED)


def written(part: Part, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A container of several batches, or a file of several row groups."""
    monkeypatch.setattr(stored, "BATCH_BYTES", 2000)
    monkeypatch.setattr(stored, "PAGE_BYTES_MAX", 2000)
    store, table = MemoryStore(), table_of(CHANGES)
    if part is CONTAINER:
        write_container(store, "1/a", IndexRows(table, ["books"], [len(table)]))
    else:
        write_run(store, "1/a", PartKind.SORTED, 1, [table])
    return store


def read(store: MemoryStore, part: Part, after: str | None = None) -> list[tuple[str, Modification]]:
    return [row for table in read_run(store, part, after) for row in rows_of(table)]


@pytest.mark.parametrize("part", [CONTAINER, RUN], ids=["container", "run"])
def test_a_bit_that_flips_is_told_or_changes_nothing(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    store = written(part, monkeypatch)
    data, told, other = store.files["1/a"], 0, []
    for place in range(0, len(data), 7):
        store.files["1/a"] = data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]
        try:
            found = read(store, part), read(store, part, "doc-030")
        except LogDeviceError as error:
            told += error.status is Status.DATALOSS and "file 1/a of the store is damaged" in str(error)
        else:
            if found != (CHANGES, CHANGES[31:]):
                other.append(place)
    assert other == []
    assert told > len(data) / 7 / 2


@pytest.mark.parametrize("part", [CONTAINER, RUN], ids=["container", "run"])
def test_a_file_that_ends_early_is_told(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    store = written(part, monkeypatch)
    whole = store.files["1/a"]
    told = 0
    for length in (0, 5, len(whole) // 2, len(whole) - 1):
        store.files["1/a"] = whole[:length]
        with pytest.raises(LogDeviceError, match="DATALOSS: file 1/a of the store is damaged"):
            read(store, part)
        told += 1
    assert told == 4


@pytest.mark.parametrize("shares_file", [True, False], ids=["shared", "own"])
@pytest.mark.parametrize("part", [CONTAINER, RUN], ids=["container", "run"])
def test_what_is_damaged_is_not_merged(part: Part, shares_file: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    store = written(part, monkeypatch)
    data = store.files["1/a"]
    store.files["1/a"] = data[: len(data) // 2] + bytes(100) + data[len(data) // 2 + 100 :]
    task = MergeTask((MergePlan("books", (part,), PartKind.OPTIMIZED, True),), shares_file)
    with pytest.raises(LogDeviceError, match="DATALOSS: file 1/a of the store is damaged"):
        do_merge(store, "2/1", task)
    assert list(store.files) == ["1/a"]


def test_batches_that_change_places_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is as it was written, and has its checksum."""
    store = written(CONTAINER, monkeypatch)
    reader = pa.ipc.open_file(pa.BufferReader(store.files["1/a"]))
    batches = [reader.get_batch_with_custom_metadata(number) for number in range(reader.num_record_batches)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, reader.schema) as writer:
        for batch, told in [batches[1], batches[0], *batches[2:]]:
            writer.write_batch(batch, told)
    store.files["1/a"] = sink.getvalue().to_pybytes()
    with pytest.raises(LogDeviceError, match="batch 0 has another checksum"):
        read(store, CONTAINER)


def test_files_of_earlier_versions_are_read_without_checksums() -> None:
    store, table = MemoryStore(), table_of(CHANGES)
    with store.create("1/a") as file, pa.ipc.new_file(file, table.schema.with_metadata({"rows": "20"})) as container:
        container.write_table(table, max_chunksize=20)
    assert read(store, CONTAINER, "doc-030") == CHANGES[31:]
    with store.create("1/b") as file, pq.ParquetWriter(file, SCHEMA) as run:
        run.write_table(table, row_group_size=20)
    assert read(store, RUN._replace(path="1/b"), "doc-030") == CHANGES[31:]
    (*_, last) = read_rows(store, "1/b", [(WHOLE_FILE, len(CHANGES))])
    assert list(rows_of(last)) == CHANGES[40:]


class FailingFile:
    """A file of a store that gives its first bytes, and no more."""

    closed = False

    def __init__(self, data: bytes) -> None:
        self._data = pa.BufferReader(data)
        self._reads = 0

    def read(self, size: int | None) -> bytes:
        self._reads += 1
        if self._reads > 1:
            raise OSError("the network is down")
        data: bytes = self._data.read(size)
        return data

    def seek(self, place: int, whence: int) -> int:
        return int(self._data.seek(place, whence))

    def tell(self) -> int:
        return int(self._data.tell())

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("part", [CONTAINER, RUN], ids=["container", "run"])
def test_a_store_that_does_not_answer_has_no_damage(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(part, monkeypatch).files["1/a"]
    system: Any = SimpleNamespace(open_input_file=lambda path: FailingFile(data))
    with pytest.raises(StoreUnavailable, match="the network is down"):
        read_rows(ArrowStore(system, ""), "1/a", [(part.place, part.records)])


def test_a_file_that_was_collected_is_not_damaged() -> None:
    with pytest.raises(FileNotFoundError):
        read(MemoryStore(), RUN)
    with pytest.raises(FileNotFoundError):
        read_rows(MemoryStore(), "1/a", [(0, 1)])
