from __future__ import annotations

import io
import json
import time

import pytest

from client.cli.output import Printer, format_timestamp
from client.cli.program import EXIT_DATA_LOSS, EXIT_OK, make_safe
from client.read.batch import RecordBatch
from client.read.items import Gap, GapKind, RecordRun
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, compose_lsn
from logdevice_py.core.units import Timestamp


def batch_of(*payloads: bytes | None) -> RecordBatch:
    batch = RecordBatch(LogId(7))
    batch.add_records(list(payloads), RecordRun(compose_lsn(1, 5), Timestamp(1_500_000), 0, len(payloads)))
    return batch


class Printed:
    def __init__(self, *, as_json: bool = False, is_terminal: bool = False, verbose: bool = False, end: bytes = b"\n"):
        self.out, self.err = io.BytesIO(), io.StringIO()
        self.printer = Printer(
            "ldcat",
            as_json=as_json,
            terminator=end,
            verbose=verbose,
            out=self.out,
            err=self.err,
            is_terminal=is_terminal,
        )


def test_raw_records_are_written_as_they_are_when_nobody_looks() -> None:
    shown = Printed()
    shown.printer.print_batch(batch_of(b"a\x1b[2J", b"\xff\x00"))
    assert shown.out.getvalue() == b"a\x1b[2J\n\xff\x00\n"


def test_records_may_end_with_a_nul() -> None:
    shown = Printed(end=b"\0")
    shown.printer.print_batch(batch_of(b"a\nb", b"c"))
    assert shown.out.getvalue() == b"a\nb\0c\0"


def test_a_terminal_gets_no_control_characters() -> None:
    shown = Printed(is_terminal=True)
    shown.printer.print_batch(batch_of(b"a\x1b[2J\tb\r\nc\xff", "ü\u202e".encode()))
    assert shown.out.getvalue().decode() == "a\\x1b[2J\tb\\x0d\\x0ac\\xff\nü\\u202e\n"


def test_json_has_text_or_base64() -> None:
    shown = Printed(as_json=True)
    shown.printer.print_batch(batch_of("ü".encode(), b"\xff"))
    first, second = (json.loads(line) for line in shown.out.getvalue().splitlines())
    assert first == {
        "log": 7,
        "lsn": "e1n5",
        "batch_offset": 0,
        "timestamp": "1970-01-01T00:00:01.500000Z",
        "payload": "ü",
    }
    assert second["payload_base64"] == "/w=="
    assert second["batch_offset"] == 1


def test_json_on_a_terminal_is_safe_too() -> None:
    shown = Printed(as_json=True, is_terminal=True)
    shown.printer.print_batch(batch_of("\x9b31m".encode()))
    assert "\x9b" not in shown.out.getvalue().decode()


def test_data_loss_is_reported_and_changes_the_exit_status() -> None:
    shown = Printed()
    assert shown.printer.status == EXIT_OK
    shown.printer.print_gap(LogId(7), Gap(GapKind.DATALOSS, LSN(5), LSN(6)))
    assert shown.printer.status == EXIT_DATA_LOSS
    assert shown.err.getvalue() == "ldcat: data loss: e0n5 to e0n6\n"


def test_corrupt_records_are_named_and_change_the_exit_status() -> None:
    shown = Printed()
    shown.printer.print_batch(batch_of(b"a", None))
    assert shown.out.getvalue() == b"a\n"
    assert "e1n5 offset 1" in shown.err.getvalue()
    assert shown.printer.status == EXIT_DATA_LOSS


@pytest.mark.parametrize(("verbose", "text"), [(False, ""), (True, "ldcat: bridge: e0n5 to e0n6\n")])
def test_gaps_that_nobody_misses_are_shown_on_request(verbose: bool, text: str) -> None:
    shown = Printed(verbose=verbose)
    shown.printer.print_gap(LogId(7), Gap(GapKind.BRIDGE, LSN(5), LSN(6)))
    assert shown.err.getvalue() == text


def test_what_is_said_of_one_of_several_logs_names_it() -> None:
    shown = Printed()
    shown.printer.names_logs = True
    shown.printer.print_gap(LogId(8), Gap(GapKind.TRIM, LSN(5), LSN(6)))
    shown.printer.print_batch(batch_of(None))
    assert shown.err.getvalue().splitlines() == [
        "ldcat: log 8: trimmed: e0n5 to e0n6",
        "ldcat: log 7: e1n5 offset 0: the record was appended damaged",
    ]


def test_timestamps_out_of_the_calendar_are_numbers() -> None:
    assert format_timestamp(1 << 62) == str(1 << 62)


def test_safe_text_keeps_tabs() -> None:
    assert make_safe(b"a\tb\x7f") == "a\tb\\x7f"


AWKWARD = ["", 'a "quoted" \\ text', "tab\tnewline\n\r\x00\x7f", "grüße 漢字 \u2028 \U0001f600", "{}%s"]


def test_json_lines_are_what_a_json_encoder_makes_of_each_record() -> None:
    shown = Printed(as_json=True)
    batch = batch_of(*(text.encode() for text in AWKWARD))
    batch.add_records([b"next"], RecordRun(compose_lsn(1, 6), Timestamp(2), 4, 1))
    shown.printer.print_batch(batch)
    wanted = [
        {"log": 7, "lsn": "e1n5", "batch_offset": offset, "timestamp": "1970-01-01T00:00:01.500000Z", "payload": text}
        for offset, text in enumerate(AWKWARD)
    ]
    wanted.append(
        {"log": 7, "lsn": "e1n6", "batch_offset": 4, "timestamp": "1970-01-01T00:00:00.000002Z", "payload": "next"}
    )
    assert shown.out.getvalue().decode() == "".join(
        json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in wanted
    )


def test_json_names_corrupt_records_among_others() -> None:
    shown = Printed(as_json=True)
    shown.printer.print_batch(batch_of(b"a", None, b"\xff"))
    rows = [json.loads(line) for line in shown.out.getvalue().splitlines()]
    assert [set(row) - {"log", "lsn", "batch_offset", "timestamp"} for row in rows] == [
        {"payload"},
        {"corrupt"},
        {"payload_base64"},
    ]
    assert [row["batch_offset"] for row in rows] == [0, 1, 2]
    assert shown.printer.status == EXIT_DATA_LOSS


def keyed_batch(*records: tuple[bytes | None, bytes | None]) -> RecordBatch:
    batch = RecordBatch(LogId(7))
    keys, payloads = [key for key, _ in records], [payload for _, payload in records]
    batch.add_records(payloads, RecordRun(compose_lsn(1, 5), Timestamp(0), 0, len(records), keys))
    return batch


def test_keys_are_in_json_as_text_or_base64() -> None:
    shown = Printed(as_json=True)
    shown.printer.print_batch(keyed_batch((b"k", b"a"), (b"\xff", b"b"), (None, b"c"), (b"", b""), (b"k", None)))
    rows = [json.loads(line) for line in shown.out.getvalue().splitlines()]
    assert [(row.get("key"), row.get("key_base64")) for row in rows] == [
        ("k", None),
        (None, "/w=="),
        (None, None),
        ("", None),
        ("k", None),
    ]


def test_raw_records_may_begin_with_their_keys() -> None:
    out = io.BytesIO()
    printer = Printer("ldcat", as_json=False, key_delimiter=b":", out=out, err=io.StringIO(), is_terminal=False)
    printer.print_batch(keyed_batch((b"k", b"a"), (None, b"b"), (b"", b"c"), (b"k", None)))
    assert out.getvalue() == b"k:a\nb\n:c\n"


def test_local_times_say_how_far_they_are_from_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XYZ-03:30")
    time.tzset()
    try:
        assert format_timestamp(1_500_000, local=True) == "1970-01-01T03:30:01.500000+03:30"
        assert format_timestamp(1 << 62, local=True) == str(1 << 62)
    finally:
        monkeypatch.undo()
        time.tzset()
