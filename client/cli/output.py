"""How the reading programs print records and gaps, and what their exit statuses are."""

from __future__ import annotations

import base64
import datetime
import os
import sys
from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import BinaryIO, TextIO

from client.cli.program import EXIT_DATA_LOSS, EXIT_OK, make_safe, put, say, standard_output
from client.read.batch import RecordBatch
from client.read.items import Gap, GapKind, RecordRun
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import format_lsn

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def format_timestamp(timestamp: int, *, local: bool = False) -> str:
    """``2026-01-31T12:00:00.000000Z``, or local with its distance from UTC; the bare number when it is out of the calendar's range."""
    try:
        when = _EPOCH + datetime.timedelta(microseconds=timestamp)
        if local:
            return when.astimezone().isoformat(timespec="microseconds")
    except (OverflowError, ValueError, OSError):
        return str(timestamp)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def run_as_json(log: LogId, run: RecordRun, payloads: Sequence[bytes | None], *, local: bool = False) -> list[str]:
    """A JSON object for each record of a run; key and payload as text when they are UTF-8, else as base64.

    Only what differs between the records of a run is formatted for each of them.
    """
    head = f'{{"log":{log},"lsn":"{format_lsn(run.lsn)}","batch_offset":'
    middle = f',"timestamp":"{format_timestamp(run.timestamp, local=local)}",'
    offsets = range(run.batch_offset, run.batch_offset + run.count)
    if run.keys is not None:
        return [
            f"{head}{offset}{middle}{_key_as_json(key)}{_payload_as_json(payload)}}}"
            for offset, key, payload in zip(offsets, run.keys, payloads, strict=True)
        ]
    text = f'{middle}"payload":'
    try:
        return [
            f"{head}{offset}{text}{encode_basestring(payload.decode())}}}"  # type: ignore[union-attr]
            for offset, payload in zip(offsets, payloads, strict=True)
        ]
    except (UnicodeDecodeError, AttributeError):
        pass  # some are no text, or corrupt
    return [
        f"{head}{offset}{middle}{_payload_as_json(payload)}}}"
        for offset, payload in zip(offsets, payloads, strict=True)
    ]


def _payload_as_json(payload: bytes | None) -> str:
    if payload is None:
        return '"corrupt":true'
    return _bytes_as_json("payload", payload)


def _key_as_json(key: bytes | None) -> str:
    return "" if key is None else f"{_bytes_as_json('key', key)},"


def _bytes_as_json(name: str, value: bytes) -> str:
    try:
        return f'"{name}":{encode_basestring(value.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64":"{base64.b64encode(value).decode("ascii")}"'


class Printer:
    """Prints batches: records on standard output, everything else on standard error."""

    def __init__(
        self,
        program: str,
        *,
        as_json: bool,
        terminator: bytes = b"\n",
        key_delimiter: bytes | None = None,
        local: bool = False,
        verbose: bool = False,
        out: BinaryIO | None = None,
        err: TextIO | None = None,
        is_terminal: bool | None = None,
    ) -> None:
        self._program = program
        self._as_json = as_json
        self._terminator = terminator
        self._key_delimiter = key_delimiter
        self._local = local
        self._verbose = verbose
        self._out = out or standard_output()
        self._err = err
        self._is_terminal = sys.stdout.isatty() if is_terminal is None else is_terminal
        self._colour = err is None and sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        self.records = 0
        self.corrupt = 0
        self.lost = False
        self.names_logs = False
        """Several logs are printed: what is said of one names it."""

    @property
    def status(self) -> int:
        """The exit status of what was printed so far."""
        return EXIT_DATA_LOSS if self.lost or self.corrupt else EXIT_OK

    def print_batch(self, batch: RecordBatch) -> None:
        """Print all records of a batch and flush, then its gaps."""
        corrupt = batch.payloads.count(None)
        self.records += len(batch) - corrupt
        if batch.payloads:
            put(self._out, self._json_of(batch) if self._as_json else self._raw_of(batch))
        for gap in batch.gaps:
            self.print_gap(batch.log, gap)
        if corrupt:
            self.corrupt += corrupt
            for lsn, offset, payload in zip(batch.lsns, batch.batch_offsets, batch.payloads, strict=True):
                if payload is None:
                    self._note_of(
                        batch.log, f"{format_lsn(lsn)} offset {offset}: the record was appended damaged", alarm=True
                    )

    def _json_of(self, batch: RecordBatch) -> bytes:
        lines: list[str] = []
        at = 0
        for run in batch.runs:
            lines += run_as_json(batch.log, run, batch.payloads[at : at + run.count], local=self._local)
            at += run.count
        if self._is_terminal:
            lines = [make_safe(line.encode()) for line in lines]
        lines.append("")
        return "\n".join(lines).encode()

    def _raw_of(self, batch: RecordBatch) -> bytes:
        end = self._terminator
        payloads: list[bytes] = [payload for payload in batch.payloads if payload is not None]
        if (between := self._key_delimiter) is not None:
            payloads = [
                payload if key is None else key + between + payload
                for key, payload in zip(batch.keys, batch.payloads, strict=True)
                if payload is not None
            ]
        if not payloads:
            return b""
        if self._is_terminal:
            payloads = [make_safe(payload).encode() for payload in payloads]
        payloads.append(b"")
        return end.join(payloads)

    def print_gap(self, log: LogId, gap: Gap) -> None:
        """Losses and trims always, what nobody misses only when asked."""
        if gap.kind is GapKind.DATALOSS:
            self.lost = True
            self._note_of(log, f"data loss: {gap.lo} to {gap.hi}", alarm=True)
        elif gap.kind is GapKind.TRIM:
            self._note_of(log, f"trimmed: {gap.lo} to {gap.hi}")
        elif self._verbose:
            self._note_of(log, f"{gap.kind.value}: {gap.lo} to {gap.hi}")

    def _note_of(self, log: LogId, text: str, *, alarm: bool = False) -> None:
        self.note(f"log {log}: {text}" if self.names_logs else text, alarm=alarm)

    def note(self, text: str, *, alarm: bool = False) -> None:
        """A line on standard error."""
        say(self._program, text, alarm=alarm and self._colour, to=self._err)
