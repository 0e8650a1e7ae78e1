"""What a stranger gives to the demo, and what it shows him."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from server.dev.demo import DemoOutcome, main, summary
from server.dev.demo_input import RECORD_MAX, DemoInputError, lines_of
from server.dev.demo_progress import DemoProgress


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\n\n", [b"a", b""]),
        (b"\n", [b""]),
        (b"a\r\n\xff", [b"a\r", b"\xff"]),
    ],
)
def test_every_line_is_a_record_and_nothing_else_is(tmp_path: Path, text: bytes, lines: list[bytes]) -> None:
    (tmp_path / "file").write_bytes(text)
    assert lines_of(tmp_path / "file") == lines


def test_without_a_file_there_is_plenty() -> None:
    assert len(lines_of(None)) > 100_000


def test_a_file_that_cannot_be_used_is_refused_in_one_line_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"short\n" + bytes(RECORD_MAX + 1))
    for name, says in [
        ("", f"{tmp_path} is a directory"),
        ("none", "none: No such file or directory"),
        ("empty", "empty is empty"),
        ("empty/below", "Not a directory"),
        ("binary", "line 2 has 1,048,577 bytes, a record may have 1,048,576"),
    ]:
        assert main(["--file", str(tmp_path / name)]) == 2
        text = capsys.readouterr().err
        assert text.startswith("demo: ")
        assert says in text
        assert text.count("\n") == 1


def test_a_file_that_must_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").touch()

    def read_bytes(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    with pytest.raises(DemoInputError, match="secret: Permission denied"):
        lines_of(tmp_path / "secret")


def test_elsewhere_than_on_a_terminal_a_phase_takes_four_lines_and_claims_no_rate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not sys.stderr.isatty()
    progress = DemoProgress("write", 1000)
    for done in range(0, 1001, 10):
        progress.show(done)
    progress.end()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["25%", "50%", "75%", "100%"]
    assert "1,000 records after" in lines[-1]
    assert not any("/s" in line for line in lines)


def test_a_rate_is_given_for_many_records_only() -> None:
    few = summary(DemoOutcome(records=3, bytes=30, write_seconds=0.4, read_seconds=0.2), "sync", "SQLite")
    assert "records/s" not in few
    assert "in 0.40 s" in few
    many = summary(DemoOutcome(records=100_000, bytes=3_000_000, write_seconds=2.0, read_seconds=1.0), "sync", "SQLite")
    assert "50,000 records/s, 1.5 MB/s" in many
