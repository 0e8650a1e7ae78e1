"""A log is copied by a pipe, and the copy is proved: ``ldcat --format json 1 | ldwrite --format json 2``.

``python -m benchmarks.copy_by_pipe --records 1000000`` starts a cluster of three nodes (two copies of everything), writes records with keys
to one log, keys and payloads of arbitrary bytes, copies it to another one, and compares what ``ldcat --proof`` says of the contents of both. Exits with 1
when they differ.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from client.client import Client
from logdevice_py.programs import own_program
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_writable
from server.dev.supervisor import Supervisor, write_cluster_file

SOURCE, TARGET = 1, 2
_AT_ONCE = 10_000
_PAYLOAD_MAX = 200
_KEY_MAX = 20


def records(count: int, seed: int) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
    """Payloads and keys, some at a time; one of ten has no key."""
    chance = random.Random(seed)
    while count > 0:
        some = min(count, _AT_ONCE)
        payloads = [chance.randbytes(chance.randrange(_PAYLOAD_MAX)) for _ in range(some)]
        keys = [None if chance.random() < 0.1 else chance.randbytes(chance.randrange(_KEY_MAX)) for _ in range(some)]
        yield payloads, keys
        count -= some


async def write(file: str, count: int, seed: int) -> None:
    """Fill the source."""
    async with Client(file) as client, client.buffered_writer() as writer:
        for payloads, keys in records(count, seed):
            await writer.ready()
            writer.append_many(SOURCE, payloads, keys=keys)


async def output_of(command: str) -> bytes:
    """What a line of shell prints; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        "bash", "-o", "pipefail", "-c", command, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"{command}: exit status {process.returncode}")
    return out


async def copy(directory: Path, count: int, seed: int) -> bool:
    """Write, copy and compare; whether both logs hold the same."""
    config = make_config(directory, nodes=3, logs=2, replicate="node:2", racks=1, epoch_store=None)
    write_cluster_file(directory, config)
    supervisor = Supervisor(directory, config)
    await supervisor.listen()
    try:
        await supervisor.start_all()
        path = layout.cluster_file(directory)
        await wait_until_writable(path, timeout=60)
        file = str(path)

        def program(module: str, *arguments: object) -> str:
            return shlex.join([*map(str, own_program(f"client.cli.{module}", "-c", file, *arguments))])

        began = time.monotonic()
        await write(file, count, seed)
        written = time.monotonic()
        pipe = (
            f"{program('cat', '--format', 'json', SOURCE)} | {program('write', '--format', 'json', '--quiet', TARGET)}"
        )
        await output_of(pipe)
        copied = time.monotonic()
        proofs: list[dict[str, Any]] = [
            json.loads(await output_of(program("cat", "--proof", log))) for log in (SOURCE, TARGET)
        ]
    finally:
        await supervisor.stop_all()
    source, target = proofs
    equal = (
        (source["records"], source["contents"])
        == (target["records"], target["contents"])
        == (count, source["contents"])
    )
    print(
        f"{count:,} records written in {written - began:.1f} s, copied by the pipe in {copied - written:.1f} s "
        f"({count / (copied - written):,.0f}/s)\nlog {SOURCE}: {source['records']:,} records, contents {source['contents']}\n"
        f"log {TARGET}: {target['records']:,} records, contents {target['contents']}\n{'equal' if equal else 'DIFFERENT'}"
    )
    return equal


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit status."""
    options = argparse.ArgumentParser(prog="benchmarks.copy_by_pipe", description=__doc__)
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument(
        "--dir", type=Path, help="where the cluster lives for the time being (default: a directory for temporary files)"
    )
    arguments = options.parse_args(argv)
    directory = Path(tempfile.mkdtemp(prefix="copy-", dir=arguments.dir))
    try:
        return 0 if asyncio.run(copy(directory, arguments.records, arguments.seed)) else 1
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main())
