"""Pages: the whole history of an index as of one moment, oldest parts first, in pieces that are taken one at a time and from any server; and from there on what
is written."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgpack
import pyarrow as pa

from client.replica.commands import number_field
from indexlog.columns import SCHEMA, merged_runs, pieces_of, rows_of, table_of
from indexlog.effects import ConfirmView, DoWork, FindTails, RawRange, ReadRange, Steps, TrimmedRange, View
from indexlog.jobs import lost_file
from indexlog.manifest.commands import NUMBER_MAX, RAW_LOGS_MAX, lsn_field
from indexlog.manifest.parts import Part, PartKind, RoutingGeneration
from indexlog.manifest.state import ManifestState
from indexlog.records import Modification, check_docid, check_index, readable_record
from indexlog.stored import PAGE_BYTES_MAX, read_run
from indexlog.stores import FileStore
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.unpacking import check_complete

_FORMAT: Final = 2
_TOKEN_BYTES_MAX: Final = 100_000
_LOGS_MAX: Final = 2 * RAW_LOGS_MAX
SLICE_BYTES_MAX: Final = 30_000_000
"""Slices that are merged at a time: they are in memory."""
READS_PER_PAGE: Final = 8
"""Ranges of raw logs, of a page each, that are read through for one page; without a record of the index it is empty."""


class PageExpired(LogDeviceError):
    """What a token counts on is not kept any more, or the index was dropped: begin again without a token, and forget what was read."""

    def __init__(self, text: str) -> None:
        super().__init__(Status.STALE, f"{text}; begin again", retriable=False, maybe_applied=False)


@dataclass(frozen=True, slots=True)
class PageToken:
    """Where reading goes on, and of which moment."""

    index: str
    serial: int | None
    """Of the manifest, whose files are read first; None: raw logs only."""
    drop: int
    """The last drop of the index of which it knows; 0: of none."""
    generation: int
    """The newest one that is read."""
    logs: int
    """How many raw logs that one has."""
    tail: tuple[tuple[int, int, int], ...]
    """Raw logs in the order of reading, with the first and the last LSN to read; the last ones are those of `generation`."""
    step: int = 0
    """Which of the files, then which slices together, then which log of the tail."""
    after: str | None = None
    """Go on behind this document id."""
    lsn: int = 0
    """Go on behind this LSN."""

    def encode(self) -> str:
        """As text for URLs."""
        packed = msgpack.packb(
            [
                _FORMAT,
                self.index,
                self.serial,
                self.drop,
                self.generation,
                self.logs,
                self.tail,
                self.step,
                self.after,
                self.lsn,
            ]
        )
        return urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> PageToken:
        """From `encode`.

        Raises:
            LogDeviceError: INVALID_PARAM.
        """
        try:
            if len(text) > _TOKEN_BYTES_MAX:
                raise ValueError("it is too long")
            data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            check_complete(data)
            format_, index, serial, drop, generation, logs, tail, step, after, lsn = msgpack.unpackb(data)
            if format_ != _FORMAT or type(tail) is not list or len(tail) > _LOGS_MAX:
                raise ValueError(f"format {_FORMAT} expected")
            return cls(
                check_index(index),
                None if serial is None else number_field(serial, 0, NUMBER_MAX),
                number_field(drop, 0, NUMBER_MAX),
                number_field(generation, 0, NUMBER_MAX),
                number_field(logs, 1, len(tail)),
                tuple((number_field(log, 1, NUMBER_MAX), lsn_field(start), lsn_field(end)) for log, start, end in tail),
                number_field(step, 0, NUMBER_MAX),
                None if after is None else check_docid(after),
                lsn_field(lsn),
            )
        except (ValueError, TypeError, binascii.Error, msgpack.UnpackException) as error:
            raise LogDeviceError(Status.INVALID_PARAM, f"this is no page token: {str(error)[:100]}") from None

    def at_end(self) -> PageToken:
        """Where what is written later begins, once all of this is read."""
        tail = tuple((log, max(first, last + 1), last) for log, first, last in self.tail[-self.logs :])
        return PageToken(self.index, None, self.drop, self.generation, self.logs, tail, len(tail))

    @property
    def positions(self) -> dict[int, int]:
        """The first LSN that is not read when all of this is, of each raw log of the newest generation."""
        return {log: first for log, first, _ in self.at_end().tail}


@dataclass(frozen=True, slots=True)
class IndexPage:
    """A part of an index's history."""

    table: pa.Table
    """Columns of `indexlog.columns.SCHEMA`, sorted by document id, each document once."""
    source: str
    """The name of the file, ``unsorted``, or ``log 7``; empty: nothing was left to read."""
    next_token: str | None
    """For the next page; None: this was the last one of the moment at which reading began."""
    tail_token: str | None = None
    """With the last page: for what is written later, as soon as there is some; None before."""

    @property
    def token(self) -> str:
        """Where to go on."""
        token = self.next_token or self.tail_token
        assert token is not None, "one of them is there"
        return token

    def rows(self) -> Iterator[tuple[str, Modification]]:
        """The modifications, each to be merged with those of the same document of earlier pages: `indexlog.records.merge`."""
        return rows_of(self.table)


def read_page(view: View, store: FileStore, index: str, token: str | None = None) -> Steps[IndexPage]:
    """The first page, or, with a token, the page behind it. There is always a page, perhaps an empty one.

    With the token of the last page what was written since is read, up to this moment, in pages that have tokens again.

    Raises:
        PageExpired: the token is too old, or names logs that are no raw logs of this index log.
        LogDeviceError: DATALOSS: a file, or records of a raw log, are lost.
        LogDeviceError: INVALID_PARAM: it is no token of this index.
    """
    at: PageToken = (yield from _begin(view, index)) if token is None else PageToken.decode(token)
    if at.index != index:
        raise LogDeviceError(Status.INVALID_PARAM, f"a page token of index {at.index}, not of {index}")
    yield from _check_logs(view, at)
    if at.serial is None and at.step >= len(at.tail):
        at = yield from _go_on(view, at)
    elif at.serial is not None and view().serial < at.serial:
        yield ConfirmView()
    groups = [] if at.serial is None else _groups(_parts(view(), at, at.serial))
    reads = 0
    while True:
        try:
            source, found, following = yield from _step(store, at, groups)
        except FileNotFoundError as error:
            yield ConfirmView()
            if at.serial is not None and at.serial < view().forgotten:
                raise _expired(at) from None
            raise lost_file(index, error) from None
        except TrimmedRange as error:
            yield ConfirmView()
            if error.last <= view().dealt.get(error.log, error.last):
                raise PageExpired(f"index {index}: raw log {error.log} was dealt and trimmed meanwhile") from None
            raise
        reads += at.step >= len(groups)
        if following.step >= len(groups) + len(at.tail):
            return IndexPage(found, source, None, at.at_end().encode())
        if len(found) or reads >= READS_PER_PAGE:
            return IndexPage(found, source, following.encode())
        at = following


def _check_logs(view: View, at: PageToken) -> Steps[None]:
    """Clients keep tokens, and may make some up: whoever serves pages would read any log of the cluster for them."""
    if all(view().is_raw_log(log) for log, _, _ in at.tail):
        return
    yield ConfirmView()  # another server that knows more gave it
    for log, _, _ in at.tail:
        if not view().is_raw_log(log):
            raise PageExpired(
                f"index {at.index}: log {log} is no raw log of this index log, or was replaced and is dealt long ago"
            )


def _begin(view: View, index: str) -> Steps[PageToken]:
    check = _checked_index(index)
    yield ConfirmView()
    while True:
        state = view()
        serial, dealt, generations = state.serial, dict(state.dealt), state.readable()
        drop, floors = _drop_and_floors(state, index)
        tail = yield from _ranges(generations, partial(_first_to_read, dealt, floors))
        if (yield from _is_of_one_moment(view, index, drop, tail)):
            break
    newest = generations[-1]
    return PageToken(check, serial, drop, newest.number, len(newest.logs), tail)


def _is_of_one_moment(view: View, index: str, drop: int, tail: Sequence[tuple[int, int, int]]) -> Steps[bool]:
    """Whether what is read of raw logs was written before any drop that the state does not know: what is behind one does not go with what the state has."""
    if all(first > last for _, first, last in tail):
        return True
    yield ConfirmView()
    return view().last_drop(index) == drop


def _first_to_read(dealt: Mapping[int, int], floors: Mapping[int, int], log: int) -> int:
    return max(dealt[log], floors.get(log, 0)) + 1


def _drop_and_floors(state: ManifestState, index: str) -> tuple[int, Mapping[int, int]]:
    return state.last_drop(index), state.floors[index].lsns if index in state.floors else {}


def _ranges(
    generations: Sequence[RoutingGeneration], first_of: Callable[[int], int]
) -> Steps[tuple[tuple[int, int, int], ...]]:
    """What there is to read of each log; all logs of the newest generation are in it."""
    tails: Mapping[int, int] = yield FindTails([log for each in generations if each.ends is None for log in each.logs])
    found = []
    for each in generations:
        for log, end in zip(each.logs, each.ends or [tails.get(log, 0) for log in each.logs], strict=True):
            first = first_of(log)
            if first <= end or each is generations[-1]:
                found.append((log, first, max(end, first - 1)))
    return tuple(found)


def _go_on(view: View, at: PageToken) -> Steps[PageToken]:
    """What was written behind a token up to this moment."""
    yield ConfirmView()
    state = view()
    drop, floors = _drop_and_floors(state, at.index)
    if drop != at.drop:
        raise PageExpired(f"index {at.index} was dropped")
    positions = at.positions
    generations = [each for each in state.readable() if each.number >= at.generation]
    if not generations:
        raise LogDeviceError(Status.INVALID_PARAM, "a page token of another index log")
    if generations[0].number > at.generation:  # it has ended, and is dealt
        if state.former is None or state.former.number != at.generation:  # since the token was looked at, perhaps
            raise PageExpired(
                f"index {at.index}: raw logs of generation {at.generation} were replaced and are dealt long ago"
            )
        generations.insert(0, state.former)
    tail = yield from _ranges(generations, lambda log: max(positions.get(log, 1), floors.get(log, 0) + 1))
    if not (yield from _is_of_one_moment(view, at.index, drop, tail)):
        raise PageExpired(f"index {at.index} was dropped")
    newest = generations[-1]
    return PageToken(at.index, None, drop, newest.number, len(newest.logs), tail)


def _checked_index(index: str) -> str:
    try:
        return check_index(index)
    except ValueError as error:
        raise LogDeviceError(Status.INVALID_PARAM, str(error)) from None


def _parts(state: ManifestState, at: PageToken, serial: int) -> list[Part]:
    if serial > state.serial:
        raise LogDeviceError(Status.INVALID_PARAM, "a page token of another index log, or of a later state")
    if serial < state.forgotten:
        raise _expired(at)
    return state.parts(at.index, serial)


def _groups(parts: Sequence[Part]) -> list[list[Part]]:
    """What is merged for a page: each file alone, and neighbouring slices as far as they fit into memory."""
    groups: list[list[Part]] = []
    size = 0
    for part in parts:
        size += part.bytes
        if groups and part.kind is groups[-1][-1].kind is PartKind.UNSORTED and size <= SLICE_BYTES_MAX:
            groups[-1].append(part)
        else:
            groups.append([part])
            size = part.bytes
    return groups


def _expired(at: PageToken) -> PageExpired:
    return PageExpired(f"index {at.index}: the files of state {at.serial} are not kept any more")


def _step(store: FileStore, at: PageToken, groups: Sequence[list[Part]]) -> Steps[tuple[str, pa.Table, PageToken]]:
    """The next page of the step at hand, perhaps empty, and where to go on."""
    beyond = replace(at, step=at.step + 1, after=None, lsn=0)
    if at.step >= len(groups):
        place = at.step - len(groups)
        log, first, last = at.tail[place] if place < len(at.tail) else (0, 1, 0)
        start = max(first, at.lsn + 1)
        if start > last:
            return "", SCHEMA.empty_table(), beyond
        raw: RawRange = yield ReadRange(log, start, last, PAGE_BYTES_MAX, at.index)
        following = beyond if raw.until >= last else replace(at, lsn=raw.until)
        if not raw.records:
            return f"log {log}", SCHEMA.empty_table(), following
        rows: pa.Table = yield DoWork(lambda: _table_of_index(at.index, raw))
        return f"log {log}", rows, following
    chosen = groups[at.step]
    source = "unsorted" if chosen[0].kind is PartKind.UNSORTED else chosen[0].name
    found: pa.Table = yield DoWork(lambda: _next_piece(store, chosen, at.after))
    if not len(found):
        return source, found, beyond
    return source, found, replace(at, after=found.column("docid")[-1].as_py())


def _next_piece(store: FileStore, parts: list[Part], after: str | None) -> pa.Table:
    runs = merged_runs([read_run(store, part, after) for part in parts], oldest=False)
    return next(pieces_of(runs, PAGE_BYTES_MAX), SCHEMA.empty_table())


def _table_of_index(index: str, raw: RawRange) -> pa.Table:
    rows: list[tuple[str, Any]] = []
    for _, payload in raw.records:
        record = readable_record(payload)
        if record is not None and record.index == index:
            rows.append((record.docid, record.change))
    return table_of(rows)
