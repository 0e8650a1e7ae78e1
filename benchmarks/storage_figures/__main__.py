"""Measures what the disks of a cluster promise over months: ``python -m benchmarks.storage_figures --help``."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from pathlib import Path

from benchmarks.storage_figures.copyset_index import measure_copyset_index
from benchmarks.storage_figures.large_shard import LargeShard
from benchmarks.storage_figures.lost_nodes import LostNodes
from benchmarks.storage_figures.processes import say

_STEPS = ("fill", "open", "drop", "lose", "lose-two", "drain", "index")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.storage_figures",
        description="Figures of storage: a large shard is opened cold, looked up in, and trimmed; nodes of five are lost and drained under load.",
    )
    parser.add_argument("steps", nargs="*", default=[], help=f"{', '.join(_STEPS)}; all of them when none is named")
    parser.add_argument(
        "--directory", type=Path, help="of the cluster, kept; by default a temporary one that is deleted"
    )
    parser.add_argument("--gigabytes", type=float, default=20, help="of payloads in the large shard (20)")
    parser.add_argument("--lost-gigabytes", type=float, default=2, help="of entries on each of the five nodes (2)")
    parser.add_argument("--appends", type=int, default=200, help="measured in a second (200)")
    parser.add_argument(
        "--sync-delay",
        default="0us",
        help="every sync of the nodes that are lost, drained or left takes this much longer, like 2ms: what a disk of its own takes, on a file system in memory",
    )
    parser.add_argument("--pieces", type=int, default=1, help="trim in so many pieces, with a control before each (1)")
    arguments = parser.parse_args()
    unknown = set(arguments.steps) - set(_STEPS)
    if unknown:
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    return arguments


async def _run(arguments: argparse.Namespace, directory: Path) -> None:
    steps = arguments.steps or _STEPS
    large = LargeShard(directory, int(arguments.gigabytes * 1e9))
    if "fill" in steps:
        await large.fill()
    if "open" in steps:
        await large.open_and_look_up()
    if "drop" in steps:
        await large.drop(arguments.pieces, arguments.appends)
    if "index" in steps:
        measure_copyset_index()
    lost = LostNodes(directory / "lost", int(arguments.lost_gigabytes * 1e9), arguments.appends, arguments.sync_delay)
    try:
        for step, measure in (("lose", lost.lose_one), ("lose-two", lost.lose_two), ("drain", lost.drain)):
            if step in steps:
                await measure()
    finally:
        await lost.discard()


def main() -> None:
    """Run the steps that are asked for."""
    arguments = _arguments()
    if arguments.directory is not None:
        arguments.directory.mkdir(parents=True, exist_ok=True)
        asyncio.run(_run(arguments, arguments.directory))
        return
    directory = Path(tempfile.mkdtemp(prefix="storage-figures-"))
    try:
        asyncio.run(_run(arguments, directory))
    finally:
        say("deleting the data")
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
