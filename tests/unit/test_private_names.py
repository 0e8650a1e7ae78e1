"""Tests call and import what is public: a private name may change its meaning with every change of the code around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.unit.test_class_names import PACKAGES, ROOT

TESTS = ROOT / "tests"
OF_OTHERS = {
    "_replace": "of named tuples",
    "_repr_html_": "notebooks call it",
}
"""Names that are public although they do not look it."""
EXCEPTIONS = {
    ("simulation/index_log_processes.py", "_read"): "a stand-in for Spark's source reads ranges as the index log does",
    ("property/sequencer/test_extra_copies.py", "_tell"): "a rule that is left out calls the code that it replaces",
}
"""By file and name: why there is no other way."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.AST) -> set[str]:
    """Of the functions and classes that a module defines."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds) and is_private(node.name)}


def is_own(owner: ast.expr) -> bool:
    """Whether a call goes to the object itself, perhaps to what it inherits."""
    return ast.unparse(owner) in ("self", "cls", "super()")


def uses(tree: ast.AST, private: set[str]) -> Iterator[tuple[str, int]]:
    """Each call of one of these names of another object, and each import of a private name of the packages; with the line. What the module itself
    defines does not count: another object of its own may be meant."""
    elsewhere = private - private_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in elsewhere and not is_own(node.func.value):
                yield node.func.attr, node.lineno
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES:
            for each in node.names:
                if is_private(each.name):
                    yield each.name, node.lineno


def test_no_test_calls_or_imports_a_private_name() -> None:
    product = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    private = set().union(*(private_names(ast.parse(path.read_text())) for path in product))
    private -= OF_OTHERS.keys()
    assert len(private) > 1000
    found = []
    excused = set()
    for path in sorted(TESTS.rglob("*.py")):
        place = path.relative_to(TESTS).as_posix()
        for name, line in uses(ast.parse(path.read_text()), private):
            if (place, name) in EXCEPTIONS:
                excused.add((place, name))
            else:
                found.append(f"{place}:{line} {name}")
    assert found == []
    assert excused == EXCEPTIONS.keys(), "an exception that is not needed any more"


def test_the_rule_sees_private_names() -> None:
    source = """
from client.reader import Reader, _open
from tests.fakes import _fake
class Own:
    def _mine(self):
        self._close()
        super()._close()
        other._close()
        other._mine()
        self.part._close()
    def close(self):
        _close()
        module._Hidden()
        other.close()
"""
    found = list(uses(ast.parse(source), {"_close", "_mine", "_Hidden"}))
    assert sorted(found) == [("_Hidden", 13), ("_close", 8), ("_close", 10), ("_open", 2)]
