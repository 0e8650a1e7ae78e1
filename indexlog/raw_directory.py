"""Directories of raw files: one writer's, which it alone writes to, and several together, as they are after some of their machines were lost."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

from google_crc32c import extend

from indexlog.local_store import sync_directory
from indexlog.raw_files import (
    RAW_FILE_BYTES_MAX,
    RawFileSummary,
    RawSource,
    TimeRange,
    covered,
    merged_sources,
    raw_frame,
    raw_frames,
)
from indexlog.records import LogRecord, check_index, decode_record, encode_record
from logdevice_py.core.status import CorruptEntryError, LogDeviceError, Status

_NAME: Final = re.compile(r"[0-9]{1,16}(-[A-Za-z0-9_.-]+)?\.raw")
_SUMMARY_BYTES_MAX: Final = 10_000


class RawFileWriter:
    """An independent writer: it appends modifications to ``<timestamp>.raw`` in a directory of its own, and says in ``<timestamp>.json`` which time each file covers.

    It gets every modification from when it is made until it is closed. It blocks. Times are milliseconds since 1970.
    """

    def __init__(self, parent: Path, name: str, now: int, *, bytes_max: int = RAW_FILE_BYTES_MAX) -> None:
        """
        Args:
            parent: where the writer's directory is made.
            name: of the writer and of its directory; nobody had it before.
            now: what it covers begins here.
            bytes_max: of a file, unless all of them are of one millisecond.

        Raises:
            LogDeviceError: EXISTS: a writer that stopped never writes again under its name; INVALID_PARAM: this is no name.
        """
        try:
            self.name = check_index(name)
        except ValueError:
            text = (
                f"the name of a writer of raw files: 1 to 64 letters, digits, _, . and - are allowed, not {name[:80]!r}"
            )
            raise LogDeviceError(Status.INVALID_PARAM, text) from None
        self.directory = parent / name
        try:
            self.directory.mkdir(parents=True)
        except FileExistsError:
            text = f"there was a writer {name} in {parent}: take another name, a writer that stopped never writes again"
            raise LogDeviceError(Status.EXISTS, text) from None
        sync_directory(parent)
        self._bytes_max = bytes_max
        self._number = 0
        self._file: BinaryIO | None = None
        self._open(now)

    def __enter__(self) -> RawFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Without `close` the last file has no summary: whether it is complete is unknown."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, now: int) -> None:
        self._begin, self._records, self._bytes, self._crc32c = now, 0, 0, 0
        self._path = self.directory / f"{now}.raw"
        self._file = self._path.open("xb")

    def append(self, record: LogRecord, now: int) -> None:
        """Write a modification, with the timestamp that it has. It is durable after `sync`.

        Args:
            now: when a file is full, the next one covers the time from here on, and this one what is before.

        Raises:
            LogDeviceError: INVALID_PARAM, TOOBIG: nothing was written; SHUTDOWN.
        """
        frame = raw_frame(encode_record(record))
        if self._records and self._bytes + len(frame) > self._bytes_max and now > self._begin:
            self._close(now)
            self._open(now)
        self._open_file().write(frame)
        self._records += 1
        self._bytes += len(frame)
        self._crc32c = extend(self._crc32c, frame)

    def _open_file(self) -> BinaryIO:
        if self._file is None:
            raise LogDeviceError(Status.SHUTDOWN, f"the writer {self.name} was closed", retriable=False)
        return self._file

    def sync(self) -> None:
        """All that was appended is durable when this returns."""
        self._open_file().flush()
        os.fsync(self._open_file().fileno())

    def close(self, now: int) -> None:
        """End, for good: what the writer covers ends before `now`."""
        self._close(now)

    def _close(self, now: int) -> None:
        self.sync()
        self._open_file().close()
        self._file = None
        summary = RawFileSummary(
            self.name, self._number, self._begin, max(now, self._begin), self._records, self._bytes, self._crc32c
        )
        with self._path.with_suffix(".json").open("xb") as file:
            file.write(summary.encode())
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self.directory)
        self._number += 1


@dataclass(frozen=True, slots=True)
class RawFile:
    """A raw file that was found and looked through."""

    path: Path
    summary: RawFileSummary | None
    """None: it has none, so whether it is complete is unknown."""
    damage: str
    """Why it is not what its writer wrote; empty: it is, as far as one knows."""
    records: int
    """That can be read."""
    first: int
    """The earliest timestamp; 0: it has no modifications."""

    def read(self) -> Iterator[LogRecord]:
        """Its modifications, in the order in which they were written, up to where it is damaged."""
        payloads, _ = raw_frames(self.path.read_bytes())
        for payload in payloads:
            try:
                yield decode_record(payload)
            except CorruptEntryError:
                return


@dataclass(slots=True)
class RawSurvey:
    """What some directories of raw files have."""

    writers: dict[str, list[RawFile]] = field(default_factory=dict)
    """Files with summaries by writer, in its order."""
    without_summary: list[RawFile] = field(default_factory=list)
    """Files without: whether they are complete is unknown."""
    damaged: list[RawFile] = field(default_factory=list)
    """Of all files."""
    copies: int = 0
    """Files that were there already."""
    covered: list[TimeRange] = field(default_factory=list)
    """What sound files cover."""

    @property
    def records(self) -> int:
        """In all files; most are in several."""
        return sum(file.records for files in (*self.writers.values(), self.without_summary) for file in files)

    @property
    def gaps(self) -> list[TimeRange]:
        """Times that no file covers, between the first and the last that some file does."""
        return [TimeRange(one.end, other.begin) for one, other in pairwise(self.covered)]

    def history(self) -> Iterator[LogRecord]:
        """All modifications, as one history: as `merged_sources`."""
        groups = [self.writers[name] for name in sorted(self.writers)] + [[file] for file in self.without_summary]
        return merged_sources(
            RawSource(rank, number, file.first, partial(file.read))
            for rank, files in enumerate(groups)
            for number, file in enumerate(files)
            if file.records
        )


def survey_raw_files(directories: Iterable[Path]) -> RawSurvey:
    """Look through all raw files of directories and of those within them; each is in memory once.

    Raises:
        LogDeviceError: NOTFOUND: there are none; INVALID_PARAM: a writer wrote under the name of another one.
    """
    survey = RawSurvey()
    seen: dict[tuple[str, int], RawFile] = {}
    paths = sorted({path.resolve() for directory in directories for path in _raw_paths(directory)})
    if not paths:
        raise LogDeviceError(Status.NOTFOUND, "there are no files <timestamp>.raw", retriable=False)
    for path in paths:
        file = _look_at(path)
        if file.damage:
            survey.damaged.append(file)
        if file.summary is None:
            survey.without_summary.append(file)
            continue
        key = file.summary.writer, file.summary.number
        if key in seen:
            _check_same(seen[key], file)
            survey.copies += 1
            if not seen[key].damage or file.damage:
                continue
        seen[key] = file
    for (name, _), file in sorted(seen.items(), key=lambda item: item[0]):
        survey.writers.setdefault(name, []).append(file)
        if not file.damage and file.summary is not None:
            survey.covered.append(TimeRange(file.summary.begin, file.summary.end))
    survey.covered = covered(survey.covered)
    return survey


def _raw_paths(directory: Path) -> Iterator[Path]:
    if not directory.is_dir():
        raise LogDeviceError(Status.NOTFOUND, f"there is no directory {directory}", retriable=False)
    return (path for path in directory.rglob("*.raw") if _NAME.fullmatch(path.name) and path.is_file())


def _look_at(path: Path) -> RawFile:
    data = path.read_bytes()
    payloads, sound = raw_frames(data)
    damage = "" if sound == len(data) else f"{len(data) - sound} bytes from byte {sound} on are no modifications"
    records, first = 0, 0
    for payload in payloads:
        try:
            time = decode_record(payload).change.timestamp
        except CorruptEntryError as error:
            damage = f"modification {records}: {error}"
            break
        first = time if not records else min(first, time)
        records += 1
    summary = _summary_of(path)
    if summary is not None and not damage:
        found = len(data), extend(0, data), records
        if found != (summary.size, summary.crc32c, summary.records):
            damage = f"{records} modifications and {len(data)} bytes, not the {summary.records} and {summary.size} that were written"
    return RawFile(path, summary, damage, records, first)


def _summary_of(path: Path) -> RawFileSummary | None:
    beside = path.with_suffix(".json")
    try:
        with beside.open("rb") as file:
            return RawFileSummary.decode(file.read(_SUMMARY_BYTES_MAX))
    except (FileNotFoundError, CorruptEntryError):
        return None


def _check_same(one: RawFile, other: RawFile) -> None:
    if one.summary != other.summary:
        assert one.summary is not None
        text = (
            f"{one.path} and {other.path} are both file {one.summary.number} of writer {one.summary.writer}, and differ: "
            "a writer that stopped must not write again under its name. Give one of them another one in its summary"
        )
        raise LogDeviceError(Status.INVALID_PARAM, text)
