"""Puts runs of modifications into one, however many there are: they are merged in files, and a few megabytes of each are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from indexlog.columns import merged_runs, size_of
from indexlog.manifest.parts import WHOLE_FILE, Part, PartKind
from indexlog.stored import read_run, write_run
from indexlog.stores import FileStore

BUFFER_BYTES: Final = 32_000_000
RUNS_MAX: Final = 8
"""Runs of one level that become one of the next."""


class ExternalSorter:
    """Takes runs that are sorted by document id, oldest first, and gives one. All calls block."""

    def __init__(
        self, store: FileStore, name: str, *, buffer_bytes: int = BUFFER_BYTES, runs_max: int = RUNS_MAX
    ) -> None:
        """
        Args:
            store: for files of its own.
            name: begins the names of these.
            buffer_bytes: of runs that are kept in memory before they are written.
            runs_max: as `RUNS_MAX`.
        """
        self._store = store
        self._name = name
        self._buffer_bytes = buffer_bytes
        self._runs_max = runs_max
        self._buffer: list[pa.Table] = []
        self._size = 0
        self._files: list[tuple[int, Part]] = []
        """With their levels, oldest first: levels never grow."""
        self._written = 0

    def add(self, table: pa.Table) -> None:
        """The next run, sorted and with each document once, newer than all before."""
        if not len(table):
            return
        self._buffer.append(table)
        self._size += size_of(table)
        if self._size >= self._buffer_bytes:
            self._write(0, [iter([table]) for table in self._buffer])
            self._buffer, self._size = [], 0
            self._merge_files()

    def _merge_files(self) -> None:
        while (
            len(newest := self._files[-self._runs_max :]) == self._runs_max and len({level for level, _ in newest}) == 1
        ):
            del self._files[-self._runs_max :]
            self._write(newest[0][0] + 1, [read_run(self._store, part) for _, part in newest])
            self._delete(newest)

    def _write(self, level: int, runs: list[Iterator[pa.Table]]) -> None:
        self._written += 1
        path = f"1/{self._name}-{self._written}"
        output = write_run(self._store, path, PartKind.SORTED, 0, merged_runs(runs, oldest=False))
        assert output is not None, "what is merged has rows"
        part = Part(path, WHOLE_FILE, PartKind.SORTED, output.records, output.bytes, 0, 0, 0, 0)
        self._files.append((level, part))

    def tables(self) -> Iterator[pa.Table]:
        """What all runs come to, in order of document ids, with nothing older before them: without deletes."""
        runs = [read_run(self._store, part) for _, part in self._files]
        runs += [iter([table]) for table in self._buffer]
        return merged_runs(runs, oldest=True)

    def close(self) -> None:
        """Delete what was written."""
        self._delete(self._files)
        self._files, self._buffer = [], []

    def _delete(self, files: list[tuple[int, Part]]) -> None:
        for _, part in files:
            self._store.delete(part.path)


_BETWEEN: Final = "\0"
"""Less than all that an index code holds: keys are in the order of indexes, then of documents."""


def key_of(index: str, docid: str) -> str:
    """A document of any index, as a document id."""
    return f"{index}{_BETWEEN}{docid}"


def by_index(tables: Iterator[pa.Table]) -> Iterator[tuple[str, list[tuple[str, bytes | None, int]]]]:
    """Documents whose ids are from `key_of`: pieces of one index each, with id, contents and timestamp."""
    for table in tables:
        columns = [table.column(name).to_pylist() for name in ("docid", "contents", "timestamp")]
        index, rows = "", list[tuple[str, bytes | None, int]]()
        for key, contents, timestamp in zip(*columns, strict=True):
            of, _, docid = key.partition(_BETWEEN)
            if of != index and rows:
                yield index, rows
                rows = []
            index = of
            rows.append((docid, contents, timestamp))
        if rows:
            yield index, rows
