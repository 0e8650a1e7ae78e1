"""docs/kafka-users.md does what it says: its commands and programs run in their order, and answer as they are shown to."""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import os
import re
import sys
from pathlib import Path

import pytest

from logdevice_py import LSN, Client, Gap
from tests.integration.process_cluster import process_cluster
from tests.integration.test_cli import diagnostics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kafka-users.md"
PROGRAMS = Path(sys.executable).parent
NAMES = {"Client": Client, "Gap": Gap, "LSN": LSN}
"""What programs of the page may use without importing it."""
MATCHES = doctest.OutputChecker().check_output


def blocks() -> list[tuple[str, str]]:
    """Language and text of what can be run."""
    return re.findall(r"^```(console|python)\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[tuple[str, str]]:
    """Each command with what it should print."""
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, flags=re.MULTILINE)
    assert "".join(f"$ {command}\n{answer}" for command, answer in found) == block, "it begins with a command"
    return found


async def shell(command: str, directory: Path) -> tuple[int | None, str]:
    """Exit status, and all that it said, but that it waits for the cluster."""
    places = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-o",
        "pipefail",
        "-c",
        command,
        cwd=directory,
        env={**os.environ, "LOGDEVICE_CLUSTER": "cluster.toml", "PATH": places},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode, diagnostics(said).decode()


async def run_program(source: str) -> None:
    """Run a program that awaits outside of functions."""
    code = compile(source, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, dict(NAMES))
    if inspect.isawaitable(result):
        await result


@pytest.mark.slow
async def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    ran = 0
    wrong = []
    async with process_cluster(tmp_path, nodes=3, logs=8, replicate="node:2", racks=1) as cluster:
        directory = Path(cluster.file).parent
        for language, block in blocks():
            if language == "python":
                await run_program(block.replace('"cluster.toml"', repr(cluster.file)))
                ran += 1
                continue
            for command, wanted in commands(block):
                status, said = await shell(command, directory)
                ran += 1
                if status != 0 or not MATCHES(wanted, said, doctest.ELLIPSIS):
                    wrong.append((command, status, wanted, said))
    assert wrong == []
    assert ran > 35, "commands and programs are found"


def test_there_are_thirty_answers() -> None:
    assert len(re.findall(r"^### ", PAGE.read_text(), flags=re.MULTILINE)) >= 30
