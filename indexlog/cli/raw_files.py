"""The verbs ``import`` and ``export`` of ``ldindex``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from client.cli.program import EXIT_DATA_LOSS, EXIT_OK, put, say, standard_output
from indexlog.manifest.parts import shown_time
from indexlog.raw_directory import RawFileWriter, RawSurvey, survey_raw_files
from indexlog.raw_exchange import export_raw_files, import_raw_files
from indexlog.raw_files import TimeRange

if TYPE_CHECKING:
    from indexlog.index_log import IndexLog


def import_options(options: argparse.ArgumentParser) -> None:
    """Those of ``import``."""
    options.add_argument(
        "directories", nargs="+", type=Path, metavar="DIR", help="directories of raw files, also of several writers"
    )
    options.add_argument(
        "--index", action="append", default=[], metavar="INDEX", help="of this index only (may be repeated)"
    )
    options.add_argument("--check", action="store_true", help="say what there is, and import nothing")
    options.add_argument("--accept-gaps", action="store_true", help="import although some time is in no file")


def export_options(options: argparse.ArgumentParser) -> None:
    """Those of ``export``."""
    options.add_argument("directory", type=Path, metavar="DIR", help="where a directory of raw files is made")
    options.add_argument("--name", default="export", help="of the directory, and of the writer (default: export)")


async def import_files(log: IndexLog, arguments: argparse.Namespace, program: str) -> int:
    """Say what there is, and write it to the index log unless something of it is missing."""
    survey = survey_raw_files(arguments.directories)
    put(standard_output(), "".join(f"{line}\n" for line in told(survey)).encode())
    may_import = not survey.gaps or arguments.accept_gaps
    if arguments.check or not may_import:
        if survey.gaps and not arguments.check:
            say(program, "nothing was imported: find the missing files, or use --accept-gaps", alarm=True)
        return EXIT_DATA_LOSS if survey.gaps else EXIT_OK
    count = await import_raw_files(log, survey, indexes=arguments.index or None, accept_gaps=arguments.accept_gaps)
    say(program, f"{count} modifications imported")
    return EXIT_OK


def told(survey: RawSurvey) -> list[str]:
    """A survey for people, a fact a line."""
    lines = []
    for name, files in survey.writers.items():
        records = sum(file.records for file in files)
        lines.append(f"writer {name}: {len(files)} files, {records} modifications")
    lines += [
        f"damaged: {file.path}: {file.damage}; {file.records} modifications can be read" for file in survey.damaged
    ]
    if survey.copies:
        lines.append(f"{survey.copies} files are there more than once")
    if survey.covered:
        lines.append(f"covered: {_shown(TimeRange(survey.covered[0].begin, survey.covered[-1].end))}")
    lines += [f"gap in all: {_shown(gap)}" for gap in survey.gaps]
    if survey.without_summary:
        records = sum(file.records for file in survey.without_summary)
        lines.append(
            f"completeness unknown: {len(survey.without_summary)} files have no summary, {records} modifications, {survey.without_summary[0].path} for one"
        )
    return lines


def _shown(range_: TimeRange) -> str:
    return f"{shown_time(range_.begin)} to {shown_time(range_.end)} ({range_.begin} to {range_.end})"


async def export_files(log: IndexLog, arguments: argparse.Namespace, program: str) -> int:
    """Write what the raw logs hold."""
    done = await export_raw_files(log, lambda now: RawFileWriter(arguments.directory, arguments.name, now))
    left_out = f", {done.dropped} of dropped indexes left out" if done.dropped else ""
    unreadable = f", {done.unreadable} records are no modifications" if done.unreadable else ""
    say(program, f"{done.records} modifications exported{left_out}{unreadable}")
    return EXIT_OK
