"""Modifications as columns: tables that are sorted by document id and hold each document once, and how neighbours merge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from indexlog.records import Modification, merge, pack_contents, unpack_contents

SCHEMA: Final = pa.schema(
    [
        pa.field("docid", pa.string(), nullable=False),
        pa.field("deleted", pa.bool_(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("contents", pa.binary()),
    ]
)
"""Of slices and files."""
_ROW_BYTES: Final = 24
"""What a row takes besides id and contents, about."""


def table_of(rows: Iterable[tuple[str, Modification]]) -> pa.Table:
    """Modifications of one index, neighbours in the order, oldest first."""
    return tables_of({"": rows})[""]


def tables_of(rows: Mapping[str, Iterable[tuple[str, Modification]]]) -> dict[str, pa.Table]:
    """Those of several indexes, by index: as `table_of`, and many small ones as fast as a large one."""
    docids: list[str] = []
    changes: list[Modification] = []
    ends: dict[str, int] = {}
    for index in sorted(rows):
        found: dict[str, Modification] = {}
        for docid, change in rows[index]:
            older = found.get(docid)
            found[docid] = change if older is None else merge(older, change)
        own = sorted(found)
        docids += own
        changes += [found[docid] for docid in own]
        ends[index] = len(docids)
    whole = pa.table(
        [
            docids,
            [change.deleted for change in changes],
            [change.timestamp for change in changes],
            list(map(pack_contents, changes)),
        ],
        schema=SCHEMA,
    )
    begins = [0, *ends.values()]
    return {index: whole.slice(begin, end - begin) for begin, (index, end) in zip(begins, ends.items(), strict=False)}


def rows_of(table: pa.Table) -> Iterator[tuple[str, Modification]]:
    """The modifications in a table."""
    columns = [table.column(name).to_pylist() for name in SCHEMA.names]
    for docid, deleted, timestamp, contents in zip(*columns, strict=True):
        yield docid, unpack_contents(deleted, contents, timestamp)


def merged(tables: Sequence[pa.Table], *, oldest: bool) -> pa.Table:
    """Neighbours, oldest first, as one table.

    Args:
        oldest: nothing older is left of these documents: deletes have done their work.
    """
    table = pa.concat_tables(tables)
    if len(tables) > 1:
        table = _unique(table.take(pc.sort_indices(table.column("docid"))).combine_chunks())
    return _without_deletes(table) if oldest else table


def _unique(table: pa.Table) -> pa.Table:
    """From a table that is sorted by document id, those of one document oldest first."""
    docids = table.column("docid").combine_chunks()
    count = len(docids)
    if count < 2:
        return table
    differs = pc.not_equal(docids.slice(1), docids.slice(0, count - 1))
    if pc.all(differs).as_py():
        return table
    is_last = pa.concat_arrays([_plain(differs), pa.array([True])])
    repeated = pc.indices_nonzero(pc.invert(is_last)).to_pylist()
    runs: defaultdict[int, list[int]] = defaultdict(list)
    for at in reversed(repeated):
        # of neighbours of the same id, all but the last are in `repeated`; the last is the key
        runs[_last_of(at, runs)].append(at)
    deleted, contents, timestamps = table.column("deleted"), table.column("contents"), table.column("timestamp")
    changed: dict[int, Modification] = {}
    for last, older in runs.items():
        if deleted[last].as_py():
            continue
        places = [*reversed(older), last]
        change = _change(deleted, contents, timestamps, places[0])
        for place in places[1:]:
            change = merge(change, _change(deleted, contents, timestamps, place))
        changed[last] = change
    kept = table.filter(is_last)
    return _replaced(kept, _kept_places(is_last, changed), changed)


def _last_of(at: int, runs: dict[int, list[int]]) -> int:
    """Where the run of row `at` ends, when the rows behind it are handled."""
    newest = next(reversed(runs), None)
    if newest is not None and runs[newest][-1] == at + 1:
        return newest
    return at + 1


def _change(deleted: Any, contents: Any, timestamps: Any, at: int) -> Modification:
    return unpack_contents(deleted[at].as_py(), contents[at].as_py(), timestamps[at].as_py())


def _kept_places(is_last: pa.Array, changed: dict[int, Modification]) -> list[int]:
    """Where the changed rows are once only the last ones are kept."""
    if not changed:
        return []
    ranks = pc.cumulative_sum(pc.cast(is_last, pa.int64()))
    return [ranks[at].as_py() - 1 for at in sorted(changed)]


def _replaced(table: pa.Table, places: list[int], changed: dict[int, Modification]) -> pa.Table:
    if not places:
        return table
    mask = [False] * len(table)
    for place in places:
        mask[place] = True
    changes = [changed[at] for at in sorted(changed)]
    columns: dict[str, Any] = {name: table.column(name).combine_chunks() for name in SCHEMA.names}
    for name, values in (
        ("deleted", pa.array([change.deleted for change in changes], pa.bool_())),
        ("contents", pa.array(list(map(pack_contents, changes)), pa.binary())),
    ):
        columns[name] = pc.replace_with_mask(_plain(columns[name]), pa.array(mask), values)
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _plain(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _without_deletes(table: pa.Table) -> pa.Table:
    deleted, empty = table.column("deleted"), pc.is_null(table.column("contents"))
    kept = table.filter(pc.invert(pc.and_(deleted, empty)))
    return kept.set_column(1, SCHEMA.field("deleted"), pa.array([False] * len(kept), pa.bool_()))


def behind(table: pa.Table, docid: str | None) -> pa.Table:
    """The rows behind a document id."""
    if docid is None or not len(table):
        return table
    return table.slice(_count_up_to(table, docid))


def between(table: pa.Table, after: str | None, until: str | None) -> pa.Table:
    """The rows behind a document id, up to another one; None: without that bound."""
    if until is not None and len(table):
        table = table.slice(0, _count_up_to(table, until))
    return behind(table, after)


def _count_up_to(table: pa.Table, docid: str) -> int:
    return int(pc.sum(pc.cast(pc.less_equal(table.column("docid"), docid), pa.int64())).as_py() or 0)


def merged_runs(runs: Sequence[Iterator[pa.Table]], *, oldest: bool) -> Iterator[pa.Table]:
    """Runs that are sorted by document id, oldest first, as one that is. It holds one table of each run at a time."""
    heads = [_next(run) for run in runs]
    while any(head is not None for head in heads):
        cut = min(head.column("docid")[-1].as_py() for head in heads if head is not None)
        pieces = []
        for number, head in enumerate(heads):
            if head is None:
                continue
            count = _count_up_to(head, cut)
            if count:
                pieces.append(head.slice(0, count))
            heads[number] = head.slice(count) if count < len(head) else _next(runs[number])
        found = merged(pieces, oldest=oldest)
        if len(found):
            yield found


def _next(run: Iterator[pa.Table]) -> pa.Table | None:
    return next((table for table in run if len(table)), None)


def pieces_of(tables: Iterable[pa.Table], bytes_max: int) -> Iterator[pa.Table]:
    """The rows of tables in pieces of at most `bytes_max`, as large as that allows; a row that is larger is one alone."""
    waiting: list[pa.Table] = []
    room = bytes_max
    for table in tables:
        begin = 0
        for at, size in enumerate(row_sizes(table)):
            if size > room and (waiting or at > begin):
                waiting.append(table.slice(begin, at - begin))
                yield pa.concat_tables(waiting).combine_chunks()
                waiting, begin, room = [], at, bytes_max
            room -= size
        if begin < len(table):
            waiting.append(table.slice(begin))
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def row_sizes(table: pa.Table) -> list[int]:
    """Bytes that each row takes, about."""
    lengths = pc.add(
        pc.binary_length(table.column("docid")), pc.coalesce(pc.binary_length(table.column("contents")), 0)
    )
    return pc.add(lengths, _ROW_BYTES).to_pylist()  # type: ignore[no-any-return]


def size_of(table: pa.Table) -> int:
    """Bytes that its rows take, about."""
    return sum(row_sizes(table))
