"""Pages: the whole history of an index as of one moment, oldest parts first, in pieces that are taken one at a time and from any server."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgpack
import pyarrow as pa

from client.replica.commands import number_field
from indexlog.columns import SCHEMA, merged_runs, pieces_of, rows_of, table_of
from indexlog.effects import ConfirmView, DoWork, FindTails, RawRange, ReadRange, Steps, View
from indexlog.jobs import lost_file
from indexlog.manifest.commands import NUMBER_MAX, RAW_LOGS_MAX, lsn_field
from indexlog.manifest.parts import Part, PartKind
from indexlog.manifest.state import ManifestState
from indexlog.records import Modification, check_docid, check_index, decode_record
from indexlog.stored import PAGE_BYTES_MAX, read_run
from indexlog.stores import FileStore
from logdevice_py.core.status import CorruptEntryError, LogDeviceError, Status
from logdevice_py.core.unpacking import check_complete

_FORMAT: Final = 1
_TOKEN_BYTES_MAX: Final = 100_000


class PageExpired(LogDeviceError):
    """Files that a token counts on are not kept any more: begin again without a token. What was read so far is a part of an older state."""

    def __init__(self, text: str) -> None:
        super().__init__(Status.STALE, text, retriable=False, maybe_applied=False)


@dataclass(frozen=True, slots=True)
class PageToken:
    """Where reading goes on, and of which moment."""

    index: str
    serial: int
    """Of the manifest."""
    tail: tuple[tuple[int, int, int], ...]
    """Raw logs that were not dealt whole, with the first and the last LSN to read."""
    step: int = 0
    """Which of the files, then the slices together, then each log of the tail."""
    after: str | None = None
    """Go on behind this document id."""
    lsn: int = 0
    """Go on behind this LSN."""

    def encode(self) -> str:
        """As text for URLs."""
        packed = msgpack.packb([_FORMAT, self.index, self.serial, self.tail, self.step, self.after, self.lsn])
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
            format_, index, serial, tail, step, after, lsn = msgpack.unpackb(data)
            if format_ != _FORMAT or type(tail) is not list or len(tail) > 2 * RAW_LOGS_MAX:
                raise ValueError(f"format {_FORMAT} expected")
            return cls(
                check_index(index),
                number_field(serial, 0, NUMBER_MAX),
                tuple((number_field(log, 1, NUMBER_MAX), lsn_field(start), lsn_field(end)) for log, start, end in tail),
                number_field(step, 0, NUMBER_MAX),
                None if after is None else check_docid(after),
                lsn_field(lsn),
            )
        except (ValueError, TypeError, binascii.Error, msgpack.UnpackException) as error:
            raise LogDeviceError(Status.INVALID_PARAM, f"this is no page token: {str(error)[:100]}") from None


@dataclass(frozen=True, slots=True)
class IndexPage:
    """A part of an index's history."""

    table: pa.Table
    """Columns of `indexlog.columns.SCHEMA`, sorted by document id, each document once."""
    source: str
    """The name of the file, ``unsorted``, or ``log 7``."""
    next_token: str | None
    """For the next page; None: this was the last one."""

    def rows(self) -> Iterator[tuple[str, Modification]]:
        """The modifications, each to be merged with those of the same document of earlier pages: `indexlog.records.merge`."""
        return rows_of(self.table)


def read_page(view: View, store: FileStore, index: str, token: str | None = None) -> Steps[IndexPage]:
    """The first page, or, with a token, the page behind it. There is always a page, perhaps an empty one.

    Raises:
        PageExpired: the token is too old.
        LogDeviceError: DATALOSS: a file, or records of a raw log, are lost.
        LogDeviceError: INVALID_PARAM: it is no token of this index.
    """
    at: PageToken = (yield from _begin(view, index)) if token is None else PageToken.decode(token)
    if at.index != index:
        raise LogDeviceError(Status.INVALID_PARAM, f"a page token of index {at.index}, not of {index}")
    if view().serial < at.serial:
        yield ConfirmView()
    parts = _parts(view(), at)
    files = [part for part in parts if part.kind is not PartKind.UNSORTED]
    slices = [part for part in parts if part.kind is PartKind.UNSORTED]
    while True:
        try:
            source, found, following = yield from _step(store, at, files, slices)
        except FileNotFoundError as error:
            yield ConfirmView()
            if at.serial < view().forgotten:
                raise _expired(at) from None
            raise lost_file(index, error) from None
        is_last = following.step > len(files) + len(at.tail)
        if len(found) or is_last:
            return IndexPage(found, source, None if is_last else following.encode())
        at = following


def _begin(view: View, index: str) -> Steps[PageToken]:
    check = _checked_index(index)
    yield ConfirmView()
    state = view()
    serial, logs, dealt = state.serial, state.undealt_logs(), dict(state.dealt)
    floors = dict(state.floors[index].lsns) if index in state.floors else {}
    tails: Mapping[int, int] = yield FindTails([log for log, _ in logs])
    tail = []
    for log, end in logs:
        first = max(dealt[log], floors.get(log, 0)) + 1
        last = tails[log] if end is None else min(tails[log], end)
        if first <= last:
            tail.append((log, first, last))
    return PageToken(check, serial, tuple(tail))


def _checked_index(index: str) -> str:
    try:
        return check_index(index)
    except ValueError as error:
        raise LogDeviceError(Status.INVALID_PARAM, str(error)) from None


def _parts(state: ManifestState, at: PageToken) -> list[Part]:
    if at.serial > state.serial:
        raise LogDeviceError(Status.INVALID_PARAM, "a page token of another index log, or of a later state")
    if at.serial < state.forgotten:
        raise _expired(at)
    return state.parts(at.index, at.serial)


def _expired(at: PageToken) -> PageExpired:
    return PageExpired(f"index {at.index}: the files of state {at.serial} are not kept any more; begin again")


def _step(
    store: FileStore, at: PageToken, files: list[Part], slices: list[Part]
) -> Steps[tuple[str, pa.Table, PageToken]]:
    """The next page of the step at hand, perhaps empty, and where to go on."""
    beyond = PageToken(at.index, at.serial, at.tail, at.step + 1)
    if at.step > len(files):
        place = at.step - len(files) - 1
        if place >= len(at.tail):
            return "", SCHEMA.empty_table(), beyond
        log, first, last = at.tail[place]
        raw: RawRange = yield ReadRange(log, max(first, at.lsn + 1), last, PAGE_BYTES_MAX)
        return f"log {log}", _table_of_index(at.index, raw), beyond if raw.until >= last else replace(at, lsn=raw.until)
    chosen = slices if at.step == len(files) else [files[at.step]]
    source = "unsorted" if at.step == len(files) else chosen[0].name
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
        try:
            record = decode_record(payload or b"")
        except CorruptEntryError:
            continue
        if record.index == index:
            rows.append((record.docid, record.change))
    return table_of(rows)
