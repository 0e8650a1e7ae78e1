"""How the reading programs print records and gaps, and what their exit statuses are."""

from __future__ import annotations

import base64
import datetime
import json
import os
import sys
from typing import Any, BinaryIO, Final, TextIO

from client.read.items import CorruptRecord, Gap, GapKind, Record, RecordBatch
from logdevice_py.core.lsn import format_lsn

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_DATA_LOSS: Final = 3
EXIT_UNANSWERED: Final = 4
EXIT_INTERRUPTED: Final = 130

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# Control characters could drive the terminal, and invisible ones that turn the direction of writing could fake what stands there.
_UNSAFE: Final = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (
        *(code for code in range(0x20) if code != 0x09),
        *range(0x7F, 0xA0),
        0x061C,
        0x200E,
        0x200F,
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
        0xFEFF,
    )
}


def make_safe(payload: bytes) -> str:
    """Text that cannot drive a terminal: control and direction characters and bytes that are no UTF-8 are shown as escapes."""
    return payload.decode("utf-8", "backslashreplace").translate(_UNSAFE)


def format_timestamp(timestamp: int) -> str:
    """``2026-01-31T12:00:00.000000Z``; the bare number when it is out of the calendar's range."""
    try:
        when = _EPOCH + datetime.timedelta(microseconds=timestamp)
    except OverflowError:
        return str(timestamp)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def record_as_json(item: Record | CorruptRecord) -> str:
    """One line; the payload as text when it is UTF-8, else as base64."""
    line: dict[str, Any] = {
        "lsn": format_lsn(item.lsn),
        "batch_offset": item.batch_offset,
        "timestamp": format_timestamp(item.timestamp),
    }
    if type(item) is CorruptRecord:
        line["corrupt"] = True
    else:
        assert type(item) is Record
        try:
            line["payload"] = item.payload.decode("utf-8")
        except UnicodeDecodeError:
            line["payload_base64"] = base64.b64encode(item.payload).decode("ascii")
    return json.dumps(line, ensure_ascii=False)


class Printer:
    """Prints batches: records on standard output, everything else on standard error."""

    def __init__(
        self,
        program: str,
        *,
        as_json: bool,
        terminator: bytes = b"\n",
        verbose: bool = False,
        out: BinaryIO | None = None,
        err: TextIO | None = None,
        is_terminal: bool | None = None,
    ) -> None:
        self._program = program
        self._as_json = as_json
        self._terminator = terminator
        self._verbose = verbose
        self._out = out or sys.stdout.buffer
        self._err = err or sys.stderr
        self._is_terminal = sys.stdout.isatty() if is_terminal is None else is_terminal
        self._colour = self._err.isatty() and not os.environ.get("NO_COLOR")
        self.records = 0
        self.corrupt = 0
        self.lost = False

    @property
    def status(self) -> int:
        """The exit status of what was printed so far."""
        return EXIT_DATA_LOSS if self.lost or self.corrupt else EXIT_OK

    def print_batch(self, batch: RecordBatch) -> None:
        """Print all records of a batch and flush, then its gaps."""
        corrupt = batch.payloads.count(None)
        self.records += len(batch) - corrupt
        if batch.payloads:
            self._out.write(self._as_bytes(batch, corrupt))
            self._out.flush()
        for gap in batch.gaps:
            self.print_gap(gap)
        if corrupt:
            self.corrupt += corrupt
            for item in batch:
                if type(item) is CorruptRecord:
                    self.note(f"{item.lsn} offset {item.batch_offset}: the record was appended damaged", alarm=True)

    def _as_bytes(self, batch: RecordBatch, corrupt: int) -> bytes:
        end = self._terminator
        if self._as_json:
            text = "".join(record_as_json(item) + "\n" for item in batch if not isinstance(item, Gap))
            if self._is_terminal:
                text = "\n".join(make_safe(line.encode()) for line in text.split("\n"))
            return text.encode("utf-8", "backslashreplace")
        payloads: list[bytes] = [payload for payload in batch.payloads if payload is not None]
        if not payloads:
            return b""
        if self._is_terminal:
            payloads = [make_safe(payload).encode() for payload in payloads]
        return end.join(payloads) + end

    def print_gap(self, gap: Gap) -> None:
        """Losses and trims always, what nobody misses only when asked."""
        if gap.kind is GapKind.DATALOSS:
            self.lost = True
            self.note(f"data loss: {gap.lo} to {gap.hi}", alarm=True)
        elif gap.kind is GapKind.TRIM:
            self.note(f"trimmed: {gap.lo} to {gap.hi}")
        elif self._verbose:
            self.note(f"{gap.kind.value}: {gap.lo} to {gap.hi}")

    def note(self, text: str, *, alarm: bool = False) -> None:
        """A line on standard error."""
        if alarm and self._colour:
            text = f"\x1b[31m{text}\x1b[0m"
        print(f"{self._program}: {text}", file=self._err, flush=True)


def quiet_broken_pipe() -> None:
    """The reader of standard output is gone: nothing more is written, and the interpreter does not complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
