"""The verb ``export-delta`` of ``ldindex``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from client.cli.program import EXIT_OK, say
from logdevice_py.core.status import LogDeviceError, Status

if TYPE_CHECKING:
    from indexlog.index_log import IndexLog


def delta_options(options: argparse.ArgumentParser) -> None:
    """Those of ``export-delta``."""
    options.add_argument("url", metavar="URL", help="the table: file:///DIRECTORY, s3://BUCKET/PATH")
    options.add_argument(
        "--index",
        action="append",
        default=[],
        metavar="INDEX",
        help="replace the rows of this index only (may be repeated)",
    )
    options.add_argument("--dealt-only", action="store_true", help="without what is not dealt")


async def export_table(log: IndexLog, arguments: argparse.Namespace, program: str) -> int:
    """Make the table the documents of this moment."""
    try:
        from indexlog.delta import export_delta
    except ModuleNotFoundError as error:
        if error.name != "deltalake":
            raise
        text = "it needs a further package: pip install 'logdevice-py[delta]'"
        raise LogDeviceError(Status.FAILED, text, retriable=False) from None
    done = await export_delta(log, arguments.url, indexes=arguments.index, live_tail=not arguments.dealt_only)
    say(
        program, f"{done.documents} documents of {done.indexes} indexes, state {done.state}, are version {done.version}"
    )
    return EXIT_OK
