"""Pages from a token, one step at a time: where they go on, what they hold in memory, and why a token is too old."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from client.replica.commands import StateVersion
from indexlog.columns import IndexRows, size_of, table_of
from indexlog.effects import (
    ConfirmView,
    DoWork,
    FindTails,
    IndexEffect,
    RawRange,
    ReadRange,
    TrimmedRange,
)
from indexlog.manifest import commands as m
from indexlog.manifest.parts import PartKind
from indexlog.manifest.state import ManifestState
from indexlog.paging import READS_PER_PAGE, SLICE_BYTES_MAX, IndexPage, PageExpired, PageToken, read_page
from indexlog.records import LogRecord, Modification, encode_record
from indexlog.stored import PAGE_BYTES_MAX, write_container, write_run
from indexlog.stores import MemoryStore
from logdevice_py.core.status import LogDeviceError, Status


def rows_of_books(*docids: str) -> IndexRows:
    table = table_of([(docid, Modification(True, {})) for docid in docids])
    return IndexRows(table, ["books"], [len(table)])


class Bench:
    """A manifest, raw logs 1 and 2, and a store."""

    def __init__(self) -> None:
        self.state = ManifestState()
        self.store = MemoryStore()
        self.raw: dict[int, list[bytes | None]] = {1: [], 2: []}
        self.effects: list[IndexEffect] = []
        self.on_read: Callable[[ReadRange], None] = lambda effect: None
        self.on_confirm: Callable[[], None] = lambda: None
        self.apply(m.Initialize("memory", [1, 2]), m.BeginJob())

    def apply(self, *commands: m.ManifestCommand) -> None:
        for command in commands:
            self.state.apply(m.encode_manifest_command(command), StateVersion(1, 0), 7)

    def write(self, log: int, *docids: str, index: str = "books") -> None:
        self.raw[log] += [encode_record(LogRecord(index, docid, Modification(True, {}))) for docid in docids]

    def deal(self, log: int, until: int) -> None:
        start = self.state.dealt[log] + 1
        self.apply(m.Deal(1, log, start, until, self.state.drops, 0, "", []))

    def deal_slice(self, number: int, docid: str, size: int) -> None:
        """A slice that the manifest takes for so large."""
        path = f"1/{number}"
        slices = write_container(self.store, path, rows_of_books(docid))
        self.raw[1].append(None)
        self.apply(m.Deal(1, 1, number, number, 0, 0, path, [replace(slices[0], bytes=size)]))

    def page(self, token: str | None = None, index: str = "books") -> IndexPage:
        steps = read_page(lambda: self.state, self.store, index, token)
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                effect = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as stop:
                found: IndexPage = stop.value
                return found
            self.effects.append(effect)
            error = None
            try:
                answer = self._do(effect)
            except LogDeviceError as problem:
                error = problem

    def _do(self, effect: IndexEffect) -> Any:
        match effect:
            case ConfirmView():
                return self.on_confirm()
            case FindTails(logs):
                return {log: len(self.raw[log]) for log in logs}
            case ReadRange(log, start, until, _, "books"):
                self.on_read(effect)
                return RawRange(until, [(lsn, self.raw[log][lsn - 1]) for lsn in range(start, until + 1)])
            case DoWork(work):
                return work()
        raise AssertionError(effect)

    def rest(self, page: IndexPage) -> list[str]:
        """The documents of this page and of the following ones, of one moment."""
        found = [docid for docid, _ in page.rows()]
        while page.next_token is not None:
            page = self.page(page.next_token)
            found += [docid for docid, _ in page.rows()]
        self.last = page
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_last_page_has_a_token_for_what_is_written_later(bench: Bench) -> None:
    bench.write(1, "a")
    assert bench.rest(bench.page()) == ["a"]
    assert bench.last.tail_token is not None
    empty = bench.page(bench.last.token)
    assert (len(empty.table), empty.next_token) == (0, None)
    bench.write(1, "b")
    bench.write(2, "c", "d")
    bench.deal(1, 2)  # what follows is read from raw logs, dealt or not
    assert bench.rest(bench.page(empty.token)) == ["b", "c", "d"]
    assert bench.rest(bench.page(bench.last.token)) == []
    assert bench.rest(bench.page(empty.token)) == ["b", "c", "d"], "a token that is used again gives the same"


def test_files_come_before_slices_and_these_before_what_is_live(bench: Bench) -> None:
    """The largest optimized file is the oldest one."""
    for number in (1, 2):
        bench.deal_slice(number, f"slice-{number}", 100)
    files = []
    for number, kind in enumerate((PartKind.OPTIMIZED, PartKind.OPTIMIZED, PartKind.SORTED)):
        docids = [f"{kind.name.lower()}-{number}-{each}" for each in range(3 - number)]
        table = table_of([(docid, Modification(True, {})) for docid in docids])
        output = write_run(bench.store, f"1/file-{number}", kind, number, [table])
        assert output is not None
        files.append(output)
        slices = write_container(bench.store, f"1/made-{number}", rows_of_books(*docids))
        bench.raw[2].append(None)
        bench.apply(m.Deal(1, 2, number + 1, number + 1, 0, 0, f"1/made-{number}", slices))
    # slices become files, oldest first; those of log 1 were dealt before
    bench.apply(m.Replace(1, "books", [("1/1", 0), ("1/2", 0)], True, [files[0]]))
    bench.apply(m.Replace(1, "books", [("1/made-0", 0)], False, [files[1]]))
    bench.apply(m.Replace(1, "books", [("1/made-1", 0)], False, [files[2]]))
    bench.write(1, "live")
    seen = []
    page = bench.page()
    while True:
        if len(page.table):
            seen.append((page.source.partition("__")[2] or page.source, page.table.column("docid")[0].as_py()))
        if page.next_token is None:
            break
        page = bench.page(page.next_token)
    assert seen == [
        ("optimized_3", "optimized-0-0"),
        ("optimized_2", "optimized-1-0"),
        ("sorted_1", "sorted-2-0"),
        ("unsorted", "sorted-2-0"),
        ("log 1", "live"),
    ]


def test_what_was_read_in_files_is_not_read_again(bench: Bench) -> None:
    bench.deal_slice(1, "a", 100)
    assert bench.rest(bench.page()) == ["a"]
    bench.write(1, "b")
    assert bench.rest(bench.page(bench.last.token)) == ["b"]


def test_it_goes_on_in_the_next_generation_once_that_is_written_to(bench: Bench) -> None:
    bench.write(1, "a")
    assert bench.rest(bench.page()) == ["a"]
    token = bench.last.token
    bench.raw.update({3: [], 4: []})
    bench.apply(m.AddGeneration([3, 4]))
    bench.write(2, "b")
    bench.write(3, "early")  # it is not acknowledged: its generation has not begun
    assert bench.rest(bench.page(token)) == ["b"]
    between = bench.last.token
    bench.write(1, "c")
    bench.apply(m.EndGeneration(0, [2, 1]))
    assert bench.rest(bench.page(between)) == ["c", "early"]
    assert bench.rest(bench.page(token)) == ["c", "b", "early"]
    bench.deal(1, 2)
    bench.deal(2, 1)
    assert [each.number for each in bench.state.generations] == [1]
    assert bench.rest(bench.page(token)) == ["c", "b", "early"], "also when the manifest knows the logs no more"
    bench.raw.update({5: []})
    bench.apply(m.AddGeneration([5]), m.EndGeneration(1, [1, 0]))
    bench.deal(3, 1)
    with pytest.raises(
        PageExpired, match="log 1 is no raw log of this index log, or was replaced and is dealt long ago; begin again"
    ):
        bench.page(token)


def test_a_generation_that_is_forgotten_while_a_token_is_looked_at_is_not_passed_over(bench: Bench) -> None:
    """The server knew the token's raw logs when it looked whether they are any, and the next one's alone when it went on."""
    bench.write(1, "a")
    assert bench.rest(bench.page()) == ["a"]
    token = bench.last.token
    bench.write(1, "b")
    bench.raw.update({3: [], 4: [], 5: []})
    bench.apply(m.AddGeneration([3, 4]), m.EndGeneration(0, [2, 0]))
    bench.write(3, "c")

    def on_confirm() -> None:
        bench.deal(1, 2)
        bench.apply(m.AddGeneration([5]), m.EndGeneration(1, [1, 0]))
        bench.deal(3, 1)

    bench.on_confirm = on_confirm
    with pytest.raises(PageExpired, match="raw logs of generation 0 were replaced and are dealt long ago; begin again"):
        bench.page(token)


def test_who_follows_is_told_of_a_drop(bench: Bench) -> None:
    bench.write(1, "a")
    assert bench.rest(bench.page()) == ["a"]
    other = bench.last.token
    bench.apply(m.DropIndex("songs", [(1, 1), (2, 0)]))
    assert bench.rest(bench.page(other)) == []
    bench.apply(m.DropIndex("books", [(1, 1), (2, 0)]))
    with pytest.raises(PageExpired, match="index books was dropped; begin again"):
        bench.page(other)
    bench.write(1, "b")
    assert bench.rest(bench.page()) == ["b"]
    bench.write(1, "c")
    assert bench.rest(bench.page(bench.last.token)) == ["c"]


def dropped_while_tails_are_found(bench: Bench, index: str) -> None:
    """Once: behind the drop a document is written."""
    whole = bench._do

    def do(effect: IndexEffect) -> Any:
        if isinstance(effect, FindTails):
            bench._do = whole
            bench.apply(m.DropIndex(index, [(log, len(bench.raw[log])) for log in (1, 2)]))
            bench.write(1, "new")
        return whole(effect)

    bench._do = do


def test_a_reader_that_begins_gets_one_moment_although_the_index_is_dropped(bench: Bench) -> None:
    bench.deal_slice(1, "old", 100)
    bench.write(1, "older")
    dropped_while_tails_are_found(bench, "books")
    assert bench.rest(bench.page()) == ["new"]
    assert sum(isinstance(effect, FindTails) for effect in bench.effects) == 2
    bench.write(1, "newest")
    dropped_while_tails_are_found(bench, "songs")
    assert bench.rest(bench.page()) == ["new", "newest"]
    assert sum(isinstance(effect, FindTails) for effect in bench.effects) == 3, "it is no drop of this index"


def test_a_reader_that_goes_on_gets_nothing_from_behind_a_drop(bench: Bench) -> None:
    bench.write(1, "old")
    assert bench.rest(bench.page()) == ["old"]
    dropped_while_tails_are_found(bench, "books")
    with pytest.raises(PageExpired, match="index books was dropped; begin again"):
        bench.page(bench.last.token)


def test_who_is_behind_what_was_trimmed_is_told(bench: Bench) -> None:
    bench.write(1, "a", "b")

    def trimmed(effect: ReadRange) -> None:
        raise TrimmedRange(effect.log, effect.start, 2)

    bench.on_read = trimmed
    with pytest.raises(LogDeviceError, match="were trimmed before they were dealt") as lost:
        bench.page()
    assert lost.value.status is Status.DATALOSS
    token = PageToken("books", 0, 0, 0, 2, ((1, 1, 2), (2, 1, 0))).encode()
    bench.deal(1, 2)
    with pytest.raises(PageExpired, match="raw log 1 was dealt and trimmed meanwhile; begin again") as expired:
        bench.page(token)
    assert expired.value.status is Status.STALE


def test_a_page_reads_only_so_much_of_other_indexes(bench: Bench) -> None:
    bench.write(1, *map(str, range(2 * READS_PER_PAGE + 1)), index="songs")
    whole = bench._do
    bench._do = lambda effect: whole(  # a read gives one record
        replace(effect, until=effect.start) if isinstance(effect, ReadRange) else effect
    )
    page = bench.page()
    assert len(page.table) == 0
    assert page.next_token is not None
    assert sum(isinstance(effect, ReadRange) for effect in bench.effects) == READS_PER_PAGE
    bench.write(1, "late")
    assert bench.rest(page) == []
    assert bench.rest(bench.page(bench.last.token)) == ["late"]


def test_slices_are_merged_as_far_as_they_fit_into_memory(bench: Bench) -> None:
    half = SLICE_BYTES_MAX // 2
    for number, (docid, size) in enumerate([("c", half), ("b", half), ("d", half), ("a", 2 * half + 2), ("e", 1)], 1):
        bench.deal_slice(number, docid, size)
    sizes = []
    page = bench.page()
    while page.next_token is not None:
        if len(page.table):
            sizes.append(page.table.column("docid").to_pylist())
        page = bench.page(page.next_token)
    assert sizes == [["b", "c"], ["d"], ["a"], ["e"]]


def test_pages_have_5_mb_at_most(bench: Bench) -> None:
    """Of slices, of a file, and of what is read of a raw log."""
    docids = [f"{number:02}" for number in range(20)]
    table = table_of([(docid, Modification(True, {"body": "x" * 500_000})) for docid in docids])

    def pages() -> list[list[str]]:
        found, sizes, page = [], [], bench.page()
        while page.next_token is not None:
            if len(page.table):
                found.append(page.table.column("docid").to_pylist())
                sizes.append(size_of(page.table))
            page = bench.page(page.next_token)
        assert max(sizes) <= PAGE_BYTES_MAX == 5_000_000
        assert min(sizes[:-1]) > 4_000_000
        return found

    slices = write_container(bench.store, "1/1", IndexRows(table, ["books"], [20]))
    bench.raw[1].append(None)
    bench.apply(m.Deal(1, 1, 1, 1, 0, 0, "1/1", slices))
    of_slice = pages()
    assert [docid for page in of_slice for docid in page] == docids
    output = write_run(bench.store, "1/file", PartKind.SORTED, 1, [table])
    assert output is not None
    bench.apply(m.Replace(1, "books", [("1/1", 0)], True, [output]))
    assert pages() == of_slice
    bench.write(1, "live")
    bench.rest(bench.page())
    assert {effect.bytes_max for effect in bench.effects if isinstance(effect, ReadRange)} == {PAGE_BYTES_MAX}


def test_a_token_of_another_index_log_is_refused(bench: Bench) -> None:
    for wrong in (
        PageToken("books", 9, 0, 0, 2, ((1, 1, 0), (2, 1, 0))),
        PageToken("books", None, 0, 3, 2, ((1, 1, 0), (2, 1, 0)), 2),
    ):
        with pytest.raises(LogDeviceError, match="of another index log"):
            bench.page(wrong.encode())


@pytest.mark.parametrize(
    "made_up",
    [
        PageToken("books", 0, 0, 0, 2, ((9, 1, 5), (1, 1, 0), (2, 1, 0))),
        PageToken("books", None, 0, 0, 1, ((9, 1, 0),), 1),
    ],
)
def test_no_token_reads_other_logs_of_the_cluster(bench: Bench, made_up: PageToken) -> None:
    bench.raw[9] = []
    bench.write(9, "of another index log")
    with pytest.raises(PageExpired, match="log 9 is no raw log of this index log"):
        bench.page(made_up.encode())
    assert not any(isinstance(effect, ReadRange | FindTails) for effect in bench.effects)


def test_raw_logs_that_a_server_does_not_know_yet_are_those_of_a_later_state(bench: Bench) -> None:
    token = PageToken("books", None, 0, 1, 1, ((3, 1, 0),), 1).encode()
    bench.raw[3] = []
    bench.write(3, "new")

    def learn() -> None:
        bench.on_confirm = lambda: None
        bench.apply(m.AddGeneration([3]), m.EndGeneration(0, [0, 0]))

    bench.on_confirm = learn
    assert bench.rest(bench.page(token)) == ["new"]
