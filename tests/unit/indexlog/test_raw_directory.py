"""Directories of raw files: what writers leave there, and what is found out about it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from indexlog.cli.raw_files import told
from indexlog.raw_directory import RawFileWriter, RawSurvey, survey_raw_files
from indexlog.raw_files import RawFileSummary, TimeRange, raw_frame
from indexlog.records import LogRecord, Modification, encode_record
from logdevice_py.core.status import CorruptEntryError, LogDeviceError, Status

BEGIN = 1_700_000_000_000


def record(number: int) -> LogRecord:
    """Written at second `number`."""
    return LogRecord(
        "books", f"doc-{number % 5}", Modification(True, {"n": f"{number:02}"}, {}, {}, BEGIN + number * 1000)
    )


def write(parent: Path, name: str, first: int = 0, last: int = 60, each: int = 10) -> None:
    """A writer that is there from second `first` to `last`, with a file for each ten modifications."""
    size = len(raw_frame(encode_record(record(0))))
    with RawFileWriter(parent, name, BEGIN + first * 1000, bytes_max=each * size) as writer:
        for number in range(first, last):
            writer.append(record(number), BEGIN + number * 1000)
        writer.close(BEGIN + last * 1000)


def lose(parent: Path, writer: str, *seconds: int) -> None:
    for second in seconds:
        (parent / writer / f"{BEGIN + second * 1000}.raw").unlink()


def numbers(survey: RawSurvey) -> list[int]:
    return [int((each.change.fields or {})["n"]) for each in survey.history()]


def range_of(first: int, last: int) -> TimeRange:
    return TimeRange(BEGIN + first * 1000, BEGIN + last * 1000)


def test_three_writers_with_gaps_in_each_but_none_in_all_have_the_whole_history(tmp_path: Path) -> None:
    write(tmp_path, "one", 0, 40)
    write(tmp_path, "two", 10, 60)
    write(tmp_path, "three", 0, 60)
    lose(tmp_path, "one", 0, 20)
    lose(tmp_path, "two", 10, 30, 40)
    lose(tmp_path, "three", 10, 50)
    survey = survey_raw_files([tmp_path])
    assert numbers(survey) == list(range(60))
    assert survey.covered == [range_of(0, 60)]
    assert survey.gaps == []
    assert survey.records == 20 + 20 + 40
    together = tmp_path / "together"  # thrown into one directory, with names of their own, as some are the same
    together.mkdir()
    for path in sorted(tmp_path.glob("*/*")):
        shutil.copy(path, together / f"{path.stem}-{path.parent.name}{path.suffix}")
    assert numbers(survey_raw_files([together])) == list(range(60))


def test_a_file_has_50_mb_at_most_and_is_named_by_the_time_at_which_it_begins(tmp_path: Path) -> None:
    body = "x" * 999_000
    with RawFileWriter(tmp_path, "one", BEGIN) as writer:
        for number in range(60):
            change = Modification(True, {"body": body}, {}, {}, BEGIN + number)
            writer.append(LogRecord("books", f"{number}", change), BEGIN + number)
        writer.close(BEGIN + 60)
    sizes = {path.name: path.stat().st_size for path in sorted((tmp_path / "one").glob("*.raw"))}
    assert list(sizes) == [f"{BEGIN}.raw", f"{BEGIN + 50}.raw"]
    assert 49_000_000 < sizes[f"{BEGIN}.raw"] <= 50_000_000
    survey = survey_raw_files([tmp_path])
    assert survey.covered == [TimeRange(BEGIN, BEGIN + 60)]
    assert survey.gaps == []


def test_a_gap_in_all_is_said_with_its_range(tmp_path: Path) -> None:
    write(tmp_path, "one")
    write(tmp_path, "two")
    lose(tmp_path, "one", 20, 30)
    lose(tmp_path, "two", 30, 40)
    survey = survey_raw_files([tmp_path])
    assert survey.gaps == [range_of(30, 40)]
    assert numbers(survey) == [*range(30), *range(40, 60)]
    assert "gap in all: 2023-11-14-22-13-50-000 to 2023-11-14-22-14-00-000 (1700000030000 to 1700000040000)" in told(
        survey
    )


def test_a_file_that_is_damaged_covers_nothing_and_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    write(tmp_path, "one")
    path = tmp_path / "one" / f"{BEGIN + 10_000}.raw"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    survey = survey_raw_files([tmp_path])
    assert survey.gaps == [range_of(10, 20)]
    (damaged,) = survey.damaged
    assert damaged.path == path
    assert "are no modifications" in damaged.damage
    assert numbers(survey) == [*range(10 + damaged.records), *range(20, 60)]
    assert damaged.records == 5
    write(tmp_path, "two")
    assert survey_raw_files([tmp_path]).gaps == []


def test_a_file_that_lost_its_last_modifications_is_not_what_was_written(tmp_path: Path) -> None:
    write(tmp_path, "one", each=30)
    path = tmp_path / "one" / f"{BEGIN + 30_000}.raw"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - len(raw_frame(encode_record(record(59))))])
    survey = survey_raw_files([tmp_path])
    assert survey.covered == [range_of(0, 30)]
    assert "29 modifications" in survey.damaged[0].damage


def test_completeness_of_files_of_others_is_unknown(tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    (others / "5.raw").write_bytes(b"".join(raw_frame(encode_record(record(number))) for number in range(3)))
    (others / "notes.raw").write_bytes(b"x")
    survey = survey_raw_files([others])
    assert numbers(survey) == [0, 1, 2]
    assert (survey.covered, survey.gaps) == ([], [])
    assert told(survey) == [
        f"completeness unknown: 1 files have no summary, 3 modifications, {others / '5.raw'} for one"
    ]


def test_what_is_no_modification_ends_a_file(tmp_path: Path) -> None:
    (tmp_path / "5.raw").write_bytes(raw_frame(encode_record(record(0))) + raw_frame(b"x") + raw_frame(b""))
    survey = survey_raw_files([tmp_path])
    assert numbers(survey) == [0]
    assert survey.damaged[0].damage.startswith("modification 1: this is no modification of a document")


def test_a_writer_that_was_killed_leaves_a_file_of_unknown_completeness(tmp_path: Path) -> None:
    with RawFileWriter(tmp_path, "one", BEGIN) as writer:
        writer.append(record(0), BEGIN)
        writer.sync()
        writer.append(record(1), BEGIN + 1000)
    with (tmp_path / "one" / f"{BEGIN}.raw").open("ab") as file:
        file.write(raw_frame(encode_record(record(2)))[:20])
    survey = survey_raw_files([tmp_path])
    assert numbers(survey) == [0, 1]
    assert [file.damage for file in survey.damaged] == [
        f"20 bytes from byte {2 * len(raw_frame(encode_record(record(0))))} on are no modifications"
    ]
    assert len(survey.without_summary) == 1


def test_who_stopped_never_writes_again_under_its_name(tmp_path: Path) -> None:
    write(tmp_path, "one")
    with pytest.raises(LogDeviceError, match="EXISTS: there was a writer one"):
        RawFileWriter(tmp_path, "one", BEGIN + 99_000)
    with pytest.raises(LogDeviceError, match="INVALID_PARAM: the name of a writer"):
        RawFileWriter(tmp_path, "a/b", BEGIN)
    other = tmp_path / "elsewhere"
    write(other, "one", 5, 15)
    with pytest.raises(LogDeviceError, match="are both file 0 of writer one, and differ") as refused:
        survey_raw_files([tmp_path])
    assert refused.value.status is Status.INVALID_PARAM


def test_files_that_are_there_twice_count_once(tmp_path: Path) -> None:
    write(tmp_path, "one")
    shutil.copytree(tmp_path / "one", tmp_path / "again")
    survey = survey_raw_files([tmp_path / "one", tmp_path / "again", tmp_path / "one"])
    assert numbers(survey) == list(range(60))
    assert survey.copies == 6
    damaged = tmp_path / "again" / f"{BEGIN}.raw"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert survey_raw_files([tmp_path]).covered == [range_of(0, 60)]


def test_where_there_is_nothing_to_import_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(LogDeviceError, match="NOTFOUND: there are no files"):
        survey_raw_files([tmp_path])
    with pytest.raises(LogDeviceError, match="NOTFOUND: there is no directory"):
        survey_raw_files([tmp_path / "none"])


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"format": 2}', b"\xff", b"[" * 100_000]
    + [
        RawFileSummary("one", 0, 5, 9, 1, 1, 1).encode().replace(old, new)
        for old, new in [(b"5", b"50"), (b'"one"', b'"a/b"'), (b"9", b"-9"), (b"9", b"null"), (b'"end"', b'"ends"')]
    ],
)
def test_what_is_no_summary_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptEntryError, match="this is no summary of a raw file"):
        RawFileSummary.decode(data)
