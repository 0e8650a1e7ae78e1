"""No module imports one that imports it in turn, not within a function either: only imports for type checkers may go round in circles."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tests.unit.test_class_names import PACKAGES, ROOT


def imported(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """(module, names that are taken from it), wherever an import stands, but for type checkers."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import(names=names):
                yield from ((each.name, []) for each in names)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                yield module, [each.name for each in names]
        yield from imported(node)


def imports(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """For each module the others that it imports."""
    found: dict[str, set[str]] = {}
    for module, source in sources.items():
        wanted: set[str] = set()
        for name, parts in imported(ast.parse(source)):
            submodules = {f"{name}.{part}" for part in parts} & sources.keys()
            wanted |= submodules or {name} & sources.keys()
        found[module] = wanted - {module}
    return found


def in_circles(found: Mapping[str, set[str]]) -> set[str]:
    """Modules that are in a circle, or between two: those that are left when who imports none of the rest, or is imported by none, is taken out again and again."""
    left = {module: set(wanted) for module, wanted in found.items()}
    while True:
        wanted_by_others = set().union(*left.values())
        ends = {module for module, wanted in left.items() if not wanted or module not in wanted_by_others}
        if not ends:
            return set(left)
        left = {module: wanted - ends for module, wanted in left.items() if module not in ends}


def test_there_are_no_circles() -> None:
    sources = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    assert len(sources) > 500
    assert in_circles(imports(sources)) == set()


def test_circles_are_seen() -> None:
    sources = {
        "a": "import b",
        "b": "def f():\n    from c import d",
        "c": "",
        "c.d": "from typing import TYPE_CHECKING\nfrom a import x\nif TYPE_CHECKING:\n    from e import y",
        "e": "from a import x",
        "f": "import g",
        "g": "",
    }
    assert in_circles(imports(sources)) == {"a", "b", "c.d"}
