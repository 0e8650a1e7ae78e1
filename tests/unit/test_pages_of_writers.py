"""Pages for application writers show appends that do not wait for each other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def programs(text: str) -> list[ast.Module]:
    """The programs of a page."""
    sources = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [compile(source, "page", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT) for source in sources]


def awaited_in_loops(text: str) -> list[str]:
    """Appends of a writer that a program awaits one by one."""
    loops = [
        node
        for program in programs(text)
        for node in ast.walk(program)
        if isinstance(node, ast.For | ast.AsyncFor | ast.While)
    ]
    awaited = [node.value for loop in loops for node in ast.walk(loop) if isinstance(node, ast.Await)]
    return [call for call in map(ast.unparse, awaited) if "writer.append(" in call]


@pytest.mark.parametrize("page", ["kafka-users.md", "applications.md"])
def test_a_page_collects_what_writers_return(page: str) -> None:
    text = (DOCS / page).read_text()
    assert "asyncio.gather(*" in text
    assert "keys=[" in text
    assert awaited_in_loops(text) == []


def test_an_append_that_is_awaited_in_a_loop_is_noticed() -> None:
    page = "```python\nfor each in events:\n    await writer.append(1, each)\n```\n"
    assert awaited_in_loops(page) == ["writer.append(1, each)"]
