"""Entries and gaps for tests of cold copies."""

from __future__ import annotations

from client.read.items import DataLoss, Gap, GapKind
from logdevice_py.core.entry import EntryFlags
from logdevice_py.core.lsn import LSN
from streams.cold.entries import UnpackedEntry, UnpackedItem
from streams.cold.file_format import FileBuilder, FileIdentity, FinishedFile

CLUSTER = "36b1105d-e131-4a7a-b688-7cdb5ecf28d2"
IDENTITY = FileIdentity(CLUSTER, 7, "/team/orders", transaction_ids=True)


def lsn(epoch: int, esn: int) -> LSN:
    return LSN(epoch << 32 | esn)


def entry(at: int, *records: bytes | None, keys: list[bytes | None] | None = None, flags: int = 0) -> UnpackedEntry:
    return UnpackedEntry(
        at,
        1_764_165_642_000_000 + (at & 0xFFFF),
        flags,
        40 + len(records),
        0xABCD0000 + (at & 0xFF),
        b"",
        list(records),
        keys,
    )


def sample() -> list[UnpackedItem]:
    """Every kind of row."""
    guarded = entry(lsn(3, 4), b"guarded", keys=[(9).to_bytes(8, "big")], flags=int(EntryFlags.KEYED))
    guarded.extensions = b"\x01\x11" + bytes(17)
    return [
        Gap(GapKind.TRIM, LSN(1), lsn(2, 8)),
        Gap(GapKind.BRIDGE, lsn(2, 9), lsn(3, 0)),
        entry(lsn(3, 1), b"a", b"", b"\x00\xff" * 50),
        Gap(GapKind.HOLE, lsn(3, 2), lsn(3, 2)),
        entry(lsn(3, 3), b"x", None, b"z", keys=[b"k", None, None], flags=int(EntryFlags.KEYED)),
        guarded,
        entry(lsn(3, 5), flags=int(EntryFlags.CONTROL)),
        Gap(GapKind.DATALOSS, lsn(3, 6), lsn(3, 9), DataLoss(False, (256, 512))),
        entry(lsn(3, 10), b"last"),
    ]


def built(groups: list[list[UnpackedItem]], identity: FileIdentity = IDENTITY, first: int = 1) -> FinishedFile:
    """A file of these row groups."""
    builder = FileBuilder(identity, first)
    for group in groups:
        builder.add_row_group(group)
    return builder.finish()
