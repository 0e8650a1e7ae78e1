"""What a line of ldwrite's input is."""

from __future__ import annotations

import argparse

import pytest

from client.cli.contents import ContentDigest
from client.cli.record_lines import LineError, json_lines, keyed_lines, parse_delimiter, whole_lines
from client.cli.write import main
from client.read.batch import RecordBatch
from client.read.items import RecordRun
from logdevice_py.core.ids import LogId
from logdevice_py.core.units import Timestamp


def test_a_line_is_a_payload_without_key() -> None:
    assert whole_lines([b"a:b", b""]) == ([b"a:b", b""], None)


def test_the_first_delimiter_ends_the_key_and_a_line_without_one_has_no_key() -> None:
    parse = keyed_lines(b"::")
    assert parse([b"k::a::b", b"no:key", b"::empty"]) == ([b"a::b", b"no:key", b"empty"], [b"k", None, b""])


def test_a_json_line_has_payload_and_key_as_text_or_base64() -> None:
    lines = [
        b'{"payload":"\xc3\xbc","key":"k","lsn":"e1n1"}',
        b'{"payload_base64":"/w==","key_base64":""}',
        b'{"payload":""}',
    ]
    assert json_lines(lines) == ([b"\xc3\xbc", b"\xff", b""], [b"k", b"", None])
    assert json_lines([b'{"payload":"a","key":null}']) == ([b"a"], None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"[1]", "no JSON object"),
        (b"[" * 100_000, "recursion|no JSON"),
        (b"\xff", "utf-8"),
        (b"{}", "neither payload nor payload_base64"),
        (b'{"corrupt":true}', "appended damaged"),
        (b'{"payload":1}', "its payload is no string"),
        (b'{"payload":"a","payload_base64":"YQ=="}', "both payload and payload_base64"),
        (b'{"payload_base64":"*"}', "not base64"),
        (b'{"payload_base64":"\xc3\xbc"}', "not base64"),
        (b'{"payload":"\\ud800"}', "surrogate"),
        (b'{"payload":"a","key":[]}', "its key is no string"),
    ],
)
def test_a_json_line_that_is_no_record_is_named_with_the_reason(line: bytes, reason: str) -> None:
    with pytest.raises(LineError, match=reason) as caught:
        json_lines([b'{"payload":"fine"}', line])
    assert caught.value.index == 1


def test_a_delimiter_is_any_bytes_but_none() -> None:
    assert (parse_delimiter(r"\t"), parse_delimiter("=>")) == (b"\t", b"=>")
    with pytest.raises(argparse.ArgumentTypeError):
        parse_delimiter("")


@pytest.mark.parametrize("options", [["-0"], ["-K", ":"]])
def test_what_says_nothing_in_json_is_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["-c", "c.toml", "1", "--format", "json", *options])
    assert caught.value.code == 2
    assert "goes with --format raw" in capsys.readouterr().err


def _digest(*runs: list[tuple[bytes | None, bytes | None]]) -> str:
    contents = ContentDigest()
    for records in runs:
        batch = RecordBatch(LogId(1))
        keys, payloads = [key for key, _ in records], [payload for _, payload in records]
        batch.add_records(payloads, RecordRun(1, Timestamp(0), 0, len(records), keys if any(keys) else None))
        contents.add(batch)
    return contents.digest()


def test_contents_are_equal_however_records_are_batched_and_differ_else() -> None:
    assert _digest([(b"k", b"a"), (None, b"b")]) == _digest([(b"k", b"a")], [(None, b"b")])
    different = [
        [(None, b"ab")],
        [(None, b"a"), (None, b"b")],
        [(b"a", b"b")],
        [(b"ab", b"")],
        [(None, None)],
        [(None, b"corrupt;")],
        [(None, b"b"), (None, b"a")],
    ]
    assert len({_digest(records) for records in different}) == len(different)
