"""Mutants of a source file: one small change each, made in the bodies of its functions.

No mutants are made of what is no behaviour of a machine: texts, annotations, asserts (they check what holds anyway), coverage marks and
representations. A removed statement never removes a local variable: every test would notice.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Final

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
"""The boundary, then the opposite."""
_BINARY: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_CALLS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_TEXTS: Final = (ast.JoinedStr, ast.Assert, ast.arguments, ast.ClassDef)
_NO_BEHAVIOUR: Final = frozenset({"annotation", "returns", "decorator_list", "exc", "cause"})
_REPRESENTATIONS: Final = frozenset({"__repr__", "__str__"})
_WIDTH: Final = 90


@dataclass(eq=False)
class Mutant:
    """One change of a source file."""

    path: str
    function: str
    """Qualified name of the function, or name of the constant, that is changed."""
    lines: range
    before: str
    after: str
    tree: ast.Module
    parent: ast.AST
    field: str
    index: int | None
    replacement: ast.AST
    constant: bool = False
    number: int = 0
    """Tells apart equal changes of one function."""

    @property
    def name(self) -> str:
        """The same as long as the function has that code, wherever its file is."""
        return f"{self.function}: {self.before} -> {self.after}" + (f" #{self.number}" if self.number else "")

    @contextmanager
    def _applied(self) -> Iterator[None]:
        value = getattr(self.parent, self.field)
        original = value if self.index is None else value[self.index]
        self._put(self.replacement)
        try:
            yield
        finally:
            self._put(original)

    def _put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node

    def compile(self, filename: str) -> CodeType:
        """The changed module."""
        with self._applied():
            return compile(self.tree, filename, "exec", dont_inherit=True)


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Every mutant of the file, in the order of its lines."""
    tree = ast.parse(source)
    found: list[Mutant] = []
    for function, node in _functions(tree, ""):
        if node.name in _REPRESENTATIONS:
            continue
        for parent, field, index, original, replacement, lines in _changes(node, node, range(0)):
            ast.copy_location(replacement, original)
            ast.fix_missing_locations(replacement)
            before, after = _text(original), _text(replacement)
            found.append(Mutant(path, function, lines, before, after, tree, parent, field, index, replacement))
    for statement in tree.body:
        found.extend(_of_constant(path, tree, statement))
    seen: Counter[str] = Counter()
    for mutant in found:
        name = mutant.name
        mutant.number = seen[name]
        seen[name] += 1
    return found


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _WIDTH else text[:_WIDTH] + "..."


def _of_constant(path: str, tree: ast.Module, statement: ast.stmt) -> Iterator[Mutant]:
    """Of a number with a private name: nobody but the module has copied it."""
    match statement:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=value)
        ):
            if name.startswith("_") and value is not None:
                for replacement in _numbers(value):
                    ast.copy_location(replacement, value)
                    lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
                    change = (_text(value), _text(replacement))
                    yield Mutant(path, name, lines, *change, tree, statement, "value", None, replacement, constant=True)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    """The outermost functions; what is defined in them belongs to them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")


_Change = tuple[ast.AST, str, int | None, ast.AST, ast.AST, range]


def _changes(node: ast.AST, function: Function, lines: range) -> Iterator[_Change]:
    for field, value in ast.iter_fields(node):
        if field in _NO_BEHAVIOUR:
            continue
        children: list[tuple[int | None, Any]] = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if not isinstance(child, ast.AST) or isinstance(child, _TEXTS) or _is_mark(child):
                continue
            own = _own_lines(child) if isinstance(child, ast.stmt) else lines
            for replacement in _replacements(child, function):
                yield node, field, index, child, replacement, own
            if not _is_metric(child):
                yield from _changes(child, function, own)


def _own_lines(statement: ast.stmt) -> range:
    """Who reaches one of them reaches the statement: its lines, of a compound one those before its body."""
    match statement:
        case ast.Match(cases=[first, *_]):
            return range(statement.lineno, max(first.pattern.lineno, statement.lineno + 1))
        case (
            ast.If(body=[first, *_])
            | ast.For(body=[first, *_])
            | ast.While(body=[first, *_])
            | ast.With(body=[first, *_])
        ):
            return range(statement.lineno, max(first.lineno, statement.lineno + 1))
        case ast.Try() | ast.AsyncFor() | ast.AsyncWith() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return range(statement.lineno, statement.lineno + 1)
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _is_mark(node: ast.AST) -> bool:
    match node:
        case ast.If(body=body, orelse=[]):
            return all(map(_is_mark, body))
        case ast.Raise(exc=ast.Name(id="NotImplementedError")):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="marks")) | ast.Name(id="hit"))):
            return True
    return False


def _is_metric(node: ast.AST) -> bool:
    """`metrics.name += 1` and its like: whether it is counted, not how."""
    match node:
        case ast.AugAssign(
            target=ast.Attribute(value=ast.Name(id="metrics") | ast.Attribute(attr="metrics" | "_metrics"))
        ):
            return True
    return False


def _replacements(node: ast.AST, function: Function) -> Iterator[ast.AST]:
    if isinstance(node, ast.expr):
        yield from _of_expression(node)
    elif isinstance(node, ast.stmt):
        yield from _of_statement(node, function)


def _numbers(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)


def _of_expression(node: ast.expr) -> Iterator[ast.expr]:
    yield from _numbers(node)
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=right):
            for other in _COMPARISONS[type(operator)]:
                yield ast.Compare(left, [other()], right)
        case ast.Compare(left=left, ops=[first, second], comparators=right):
            yield ast.Compare(left, [_COMPARISONS[type(first)][0](), second], right)
            yield ast.Compare(left, [first, _COMPARISONS[type(second)][0]()], right)
        case ast.BoolOp(op=ast.And(), values=values):
            yield ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(op=ast.Or(), values=values):
            yield ast.BoolOp(ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=operator, right=addend) if type(operator) in _BINARY:
            yield ast.BinOp(left, _BINARY[type(operator)](), addend)
        case ast.IfExp(test=test, body=body, orelse=orelse) if _is_plain(test):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _CALLS:
            yield ast.Call(ast.Name(_CALLS[name], ast.Load()), args, keywords)


def _is_plain(test: ast.expr) -> bool:
    """No mutant of its parts is its opposite."""
    match test:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Constant():
            return False
    return True


def _of_statement(node: ast.stmt, function: Function) -> Iterator[ast.stmt]:
    match node:
        case ast.If(test=test, body=body, orelse=orelse) if _is_plain(test):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.While(test=test, body=body, orelse=orelse) if _is_plain(test):
            yield ast.While(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            if isinstance(function.returns, ast.Name) and function.returns.id == "bool":
                if _is_plain(value):
                    yield ast.Return(ast.UnaryOp(ast.Not(), value))
            else:
                yield ast.Return(ast.Constant(None))
        case ast.AugAssign(target=target, op=operator, value=value):
            if type(operator) in _BINARY and not _is_metric(node):
                yield ast.AugAssign(target, _BINARY[type(operator)](), value)
            yield ast.Pass()
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete() | ast.Raise() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.Return(value=None):
            yield ast.Pass()
        case ast.Assign(targets=targets) if function.name != "__init__":
            if all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets):
                yield ast.Pass()


def relative(path: Path, root: Path) -> str:
    """As names of files stand in reports."""
    return path.relative_to(root).as_posix()
