"""No test passes because a loop was empty or a condition never held: what its assertions stand behind is sure to happen.

An assertion within a loop counts when the loop runs over something that the test itself writes down (a literal, a range, a constant, a
parameter), when another assertion speaks of what it runs over, or when the loop counts what it saw and that is asserted after it. One within
an `if` counts when parameters of the test decide, when the other branch asserts as well, or when what was met is counted likewise.

Property tests are left out: what they assert depends on what is drawn.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
PASSING_ON = frozenset(
    {"range", "enumerate", "zip", "sorted", "reversed", "list", "tuple", "set", "dict", "product", "permutations"}
)
"""Not empty where an argument is not."""
COLLECTING = frozenset({"append", "add", "extend", "update"})
Test = ast.FunctionDef | ast.AsyncFunctionDef
Branching = ast.For | ast.AsyncFor | ast.If


def asserts(nodes: list[ast.stmt]) -> list[ast.Assert]:
    return [found for node in nodes for found in ast.walk(node) if isinstance(found, ast.Assert)]


def names(node: ast.AST) -> set[str]:
    return {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}


class Unsure:
    """Finds what one test asserts behind something that may not happen."""

    def __init__(self, test: Test) -> None:
        self.test = test
        arguments = test.args
        self.parameters = {each.arg for each in (*arguments.args, *arguments.kwonlyargs)}
        self.written: dict[str, list[ast.expr]] = {}
        """What names of the test are bound to."""
        for node in ast.walk(test):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.written.setdefault(target.id, []).append(node.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self.written.setdefault(node.target.id, []).append(node.value)

    def found(self) -> list[int]:
        return [node.lineno for node in ast.walk(self.test) if isinstance(node, Branching) and self._is_unsure(node)]

    def _is_unsure(self, node: Branching) -> bool:
        if not asserts(node.body) or self._is_counted(node):
            return False
        if isinstance(node, ast.If):
            return not (asserts(node.orelse) or names(node.test) <= self._decided())
        return not (self._is_sure(node.iter) or self._is_spoken_of(node))

    def _decided(self) -> set[str]:
        """Names that whoever wrote the test chose, and what code they are compared with."""
        loops = [node for node in ast.walk(self.test) if isinstance(node, ast.For) and self._is_sure(node.iter)]
        chosen = self.parameters | {name for loop in loops for name in names(loop.target)}
        return chosen | {name for node in ast.walk(self.test) for name in names(node) if is_constant(name)}

    def _is_sure(self, node: ast.expr) -> bool:
        """Whether it has elements, as far as the test's own text says."""
        match node:
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                return any(not isinstance(each, ast.Starred) or self._is_sure(each.value) for each in elements)
            case ast.Dict(keys=keys):
                return bool(keys)
            case ast.Constant(value=str() | bytes() as value):
                return bool(value)
            case ast.Name(id=name):
                bound = self.written.get(name)
                return (
                    name in self.parameters
                    or is_constant(name)
                    or (bool(bound) and all(map(self._is_sure, bound or ())))
                )
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args) if name in PASSING_ON:
                return name == "range" or any(map(self._is_sure, args))
            case ast.Call(func=ast.Attribute(value=value, attr="items" | "values" | "keys")):
                return self._is_sure(value)
            case ast.BinOp(left=left, right=right):
                return self._is_sure(left) or self._is_sure(right)
            case ast.Subscript(value=value, slice=ast.Slice()):
                return self._is_sure(value)
            case (
                ast.ListComp(generators=[only])
                | ast.GeneratorExp(generators=[only])
                | ast.SetComp(generators=[only])
                | ast.DictComp(generators=[only])
            ):
                return not only.ifs and self._is_sure(only.iter)
        return False

    def _outside(self, node: Branching) -> list[ast.Assert]:
        inside = set(map(id, asserts([node])))
        return [each for each in asserts(self.test.body) if id(each) not in inside]

    def _is_spoken_of(self, loop: ast.For | ast.AsyncFor) -> bool:
        wanted = root(loop.iter)
        return any(wanted in ast.unparse(each) for each in self._outside(loop))

    def _is_counted(self, node: Branching) -> bool:
        counted: set[str] = set()
        for each in ast.walk(node):
            match each:
                case ast.AugAssign(target=target):
                    counted |= names(target)
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in COLLECTING:
                    counted.add(name)
        return any(counted & names(each) for each in self._outside(node))


def is_constant(name: str) -> bool:
    """A constant of a module, or a class such as an enum."""
    return name.lstrip("_")[:1].isupper()


def root(node: ast.expr) -> str:
    """What a loop runs over, without what only arranges it."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in PASSING_ON:
            return root(first)
        case (
            ast.Call(func=ast.Attribute(value=value, attr="items" | "values" | "keys"))
            | ast.Subscript(value=value, slice=ast.Slice())
        ):
            return root(value)
    return ast.unparse(node)


def unsure(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, Test) and node.name.startswith("test"):
            yield from Unsure(node).found()


def test_no_assertion_stands_behind_what_may_not_happen() -> None:
    paths = [path for path in sorted(TESTS.rglob("test_*.py")) if "property" not in path.parts]
    assert len(paths) > 300
    assert [f"{path.relative_to(TESTS)}:{line}" for path in paths for line in unsure(ast.parse(path.read_text()))] == []


def test_the_rule_sees_them() -> None:
    source = """
def test_loops(given, frames=()):
    for each in found():
        assert each
    for each in given:
        assert each
    for each in (1, 2):
        assert each
    assert len(seen) == 2
    for each in sorted(seen):
        assert each
    number = 0
    for each in others():
        number += 1
        assert each
    assert number == 3
    for each in [each for each in (1, 2) if each > 2]:
        assert each

def test_conditions(given):
    if given:
        assert True
    if found():
        assert True
    if found():
        assert True
    else:
        assert False
    if any(found()):
        number = 1
"""
    assert [source.splitlines()[line - 1].strip() for line in unsure(ast.parse(source))] == [
        "for each in found():",
        "for each in [each for each in (1, 2) if each > 2]:",
        "if found():",
    ]
