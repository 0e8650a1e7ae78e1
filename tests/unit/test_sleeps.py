"""Unit tests wait for what happens, not for time: what a sleep hopes for comes later on a busy machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
SIMULATED = ("logdevice_py.simulation", "server.simulation")
"""Who imports one of these sleeps in virtual time."""


def sleeps(tree: ast.AST, polls: bool = False) -> Iterator[int]:
    """Lines with a sleep. Within a `while` it is the pause of who polls another thread or process; of 0 it lets other tasks run."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call) and not polls:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name == "sleep" and ast.unparse(node.args[0]) != "0":
                yield node.lineno
        yield from sleeps(node, polls or isinstance(node, ast.While))


def test_no_unit_test_sleeps() -> None:
    found = []
    looked_at = 0
    for path in sorted(HERE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        if not any(module.startswith(SIMULATED) for module in imported):
            looked_at += 1
            found += [f"{path.relative_to(HERE)}:{line}" for line in sleeps(tree)]
    assert looked_at > 100
    assert found == []


def test_the_rule_sees_sleeps() -> None:
    source = """
async def test():
    await asyncio.sleep(0)
    time.sleep(0.1)
    while not ready():
        await asyncio.sleep(0.01)
    sleep(x)
"""
    assert list(sleeps(ast.parse(source))) == [4, 7]
