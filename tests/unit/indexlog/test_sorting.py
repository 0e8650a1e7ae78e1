"""Runs are merged in files as they would be in memory, and little of them is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from indexlog.columns import rows_of, table_of
from indexlog.records import Modification, document, merge
from indexlog.sorting import ExternalSorter, by_index, key_of
from indexlog.stores import MemoryStore
from indexlog.verifying import difference


@pytest.mark.parametrize("buffer_bytes", [1, 300, 1_000_000])
def test_runs_come_to_what_their_modifications_come_to(buffer_bytes: int) -> None:
    rng, store = Random(5), MemoryStore()
    sorter = ExternalSorter(store, "x", buffer_bytes=buffer_bytes, runs_max=3)
    expected: dict[str, Modification] = {}
    most = 0
    for _ in range(40):
        rows = []
        for number in range(rng.randint(0, 12)):
            docid, chance = f"doc-{rng.randint(0, 30):02}", rng.random()
            change = Modification(
                chance < 0.3, {"n": str(number)} if chance > 0.2 else None, {rng.randint(0, 2): chance}
            )
            rows.append((docid, change))
            expected[docid] = merge(expected[docid], change) if docid in expected else change
        sorter.add(table_of(rows))
        most = max(most, len(store.files))
    found = [row for table in sorter.tables() for row in rows_of(table)]
    left = {docid: there for docid, change in expected.items() if (there := document(change)) is not None}
    assert found == sorted(left.items())
    assert most <= 2 * 4, "two of each level"
    assert (most == 0) == (buffer_bytes == 1_000_000)
    sorter.close()
    assert store.files == {}


def test_documents_of_all_indexes_are_in_the_order_of_indexes() -> None:
    documents = [("b", "x"), ("a.b", "x"), ("a", "z"), ("a", "\0"), ("a-", "y"), ("a", "~")]
    table = table_of((key_of(index, docid), Modification(True, {})) for index, docid in documents)
    pieces = [(index, [row[0] for row in rows]) for index, rows in by_index(iter([table.slice(0, 2), table.slice(2)]))]
    assert pieces == [("a", ["\0", "z"]), ("a", ["~"]), ("a-", ["y"]), ("a.b", ["x"]), ("b", ["x"])]


def test_what_differs_is_counted_and_named() -> None:
    def rows(**contents: bytes) -> Iterator[tuple[str, bytes | None, int]]:
        return iter([(docid, found, 1) for docid, found in contents.items()])

    assert difference(rows(), rows()) == ""
    assert difference(rows(a=b"1", b=b"2"), rows(a=b"1", b=b"2")) == ""
    assert difference(rows(a=b"1"), rows(a=b"1", b=b"2", c=b"3")) == "2 documents are missing in the pages, 'b' for one"
    assert difference(rows(b=b"2", c=b"3"), rows(c=b"4")) == (
        "1 documents are too many in the pages, 'b' for one; 1 documents are different in the pages, 'c' for one"
    )
