"""The bytes of an index log, as this version writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from client.replica.commands import StateVersion
from indexlog.manifest import commands as m
from indexlog.manifest.parts import JobKind, PartKind
from indexlog.manifest.state import ManifestState
from indexlog.paging import PageToken
from indexlog.raw_files import RawFileSummary, raw_frame, raw_frames
from indexlog.records import (
    LogRecord,
    Modification,
    decode_record,
    encode_record,
    pack_contents,
    unpack_contents,
)
from indexlog.routing import raw_log_of
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import Timestamp
from tests.golden.record import GoldenCase

TIME = Timestamp(1_700_000_000_123_456)
CHANGE = Modification(True, {"name": "abc", "text": "ü"}, {0: 1.5, 7: -2.0}, {"section": "admin"}, 1_700_000_000_123)
COMMANDS: list[m.ManifestCommand] = [
    m.Initialize("file:///srv/index", [1 << 40, (1 << 40) + 1]),
    m.BeginJob(JobKind.MERGE),
    m.BeginJob(JobKind.MERGE),
    m.EndJob(2),
    m.Deal(1, 1 << 40, 1, 9, 0, 3, "1/a.arrow", [m.SliceEntry("books", 2, 300, 5), m.SliceEntry("songs", 1, 9, 6)]),
    m.Deal(1, (1 << 40) + 1, 1, 5, 0, 0, "1/b.arrow", [m.SliceEntry("books", 1, 100, 7)]),
    m.Replace(
        1,
        "books",
        [("1/a.arrow", 0), ("1/b.arrow", 0)],
        True,
        [m.OutputFile("1/1.parquet", PartKind.SORTED, 2, 250, 5)],
    ),
    m.DropIndex("songs", [(1 << 40, 17), ((1 << 40) + 1, 5)]),
    m.Forget(3),
    m.AddGeneration([(1 << 40) + 2]),
    m.EndGeneration(0, [20, 9]),
    m.Deal(
        1, (1 << 40) + 1, 6, 9, 1, 0, "1/c.arrow", [m.SliceEntry("books", 2, 300, 5), m.SliceEntry("songs", 1, 9, 6)]
    ),
    m.ReplaceRuns(
        1,
        [
            m.ReplacedRun(
                "books",
                [("1/1.parquet", -1), ("1/c.arrow", 0)],
                True,
                m.OutputFile("1/2.arrow", PartKind.OPTIMIZED, 3, 260, 5, 0),
            ),
            m.ReplacedRun("songs", [("1/c.arrow", 2)], True, None),
            m.ReplacedRun(
                "films", [("1/d.arrow", 3)], False, m.OutputFile("1/2.arrow", PartKind.OPTIMIZED, 1, 9, 5, 3)
            ),
        ],
    ),
]


def manifest_of(commands: list[m.ManifestCommand]) -> ManifestState:
    """What they amount to; each is applied."""
    state = ManifestState()
    for number, command in enumerate(commands):
        state.apply(m.encode_manifest_command(command), StateVersion(Lsn(number + 1), 0), TIME)
    return state


def _told(data: bytes) -> dict[str, Any]:
    return dict(vars(ManifestState.decode(data)))


def index_log_cases() -> Iterator[GoldenCase]:
    """Records, contents in files, commands, the manifest, page tokens, routing."""
    record = LogRecord("books", "doc-1", CHANGE)
    yield GoldenCase("record", encode_record(record), decode_record)
    deletes = LogRecord("books", "doc-1", Modification(True, timestamp=5))
    yield GoldenCase("record that deletes", encode_record(deletes), decode_record)
    contents = pack_contents(CHANGE)
    assert contents is not None
    yield GoldenCase("record in a raw file", raw_frame(encode_record(deletes)), raw_frames)
    summary = RawFileSummary("writer-1", 3, 1_700_000_000_000, 1_700_000_060_000, 2, 300, 0x12345678)
    yield GoldenCase("summary of a raw file", summary.encode(), RawFileSummary.decode)
    yield GoldenCase("contents in a file", contents, lambda data: unpack_contents(True, data, 5))
    seen = set()
    for command in COMMANDS:
        name = type(command).__name__
        if name not in seen:
            yield GoldenCase(name, m.encode_manifest_command(command), m.decode_manifest_command)
        seen.add(name)
    yield GoldenCase("manifest", manifest_of(COMMANDS).encode(), _told)
    token = PageToken("books", 4, 2, 1, 1, ((1 << 40, 18, 20), ((1 << 40) + 2, 1, 0)), 1, "doc-1", 19)
    yield GoldenCase("page token", token.encode().encode(), lambda data: PageToken.decode(data.decode()))
    yield GoldenCase(
        "page token of what is written later",
        token.at_end().encode().encode(),
        lambda data: PageToken.decode(data.decode()),
    )
    routes = bytes(raw_log_of("books", f"doc-{number}", range(7)) for number in range(20))
    yield GoldenCase("raw logs of 20 documents, of seven", routes, None)
