"""ldwrite: what counts as a record."""

from __future__ import annotations

import pytest

from client.cli.input_lines import split_lines
from client.cli.line_writer import WriteAccount
from client.cli.write import main, parser, report


def records(*chunks: bytes) -> list[bytes]:
    return [line for lines in split_lines(iter(chunks)) for line in lines]


def test_a_record_is_a_line_without_its_newline_and_nothing_else_is_touched() -> None:
    assert records(b"a\n\nb\r\n\xff\x00\n") == [b"a", b"", b"b\r", b"\xff\x00"]


def test_a_last_line_without_newline_counts() -> None:
    assert records(b"a\nb") == [b"a", b"b"]


def test_nothing_is_no_record_and_a_newline_is_an_empty_one() -> None:
    assert records() == []
    assert records(b"\n") == [b""]


@pytest.mark.parametrize("size", range(1, 9))
def test_where_chunks_end_does_not_matter(size: int) -> None:
    text = b"one\ntwo\n\n\nlonger than a chunk\nend"
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    assert records(*chunks) == text.split(b"\n")


def test_without_a_log_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["-c", "cluster.toml"])
    assert caught.value.code == 2
    assert "LOG" in capsys.readouterr().err


def test_a_cluster_file_that_is_not_there_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-c", "/nowhere/cluster.toml", "7"]) == 2
    assert "/nowhere/cluster.toml" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "told"), [([], False), (["--synced"], True), (["--synced", "--json"], False)])
def test_lines_that_were_to_be_synced_and_may_not_be_are_told(
    options: list[str], told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    account = WriteAccount()
    account.records = account.acknowledged = 3
    account.unsynced = 2
    assert report(account, parser().parse_args(["-c", "c.toml", "7", *options]), interrupted=False) == 0
    assert ("2 of those acknowledged may not be synced" in capsys.readouterr().err) is told
