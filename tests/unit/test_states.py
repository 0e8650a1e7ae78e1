"""Tables of states: complete, without dead ends, and kept by the only method of a machine that changes its state."""

from __future__ import annotations

import ast
import enum
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from server.dev.render_docs import MACHINES

ROOT = Path(__file__).parents[2]
Transitions = Mapping[enum.Enum, Collection[enum.Enum]]


@pytest.mark.parametrize("transitions", MACHINES.values(), ids=MACHINES)
def test_every_state_has_a_row_and_can_be_reached(transitions: Transitions) -> None:
    states = list(type(next(iter(transitions))))
    assert list(transitions) == states
    reached, ahead = set(), [states[0]]
    while ahead:
        state = ahead.pop()
        if state not in reached:
            reached.add(state)
            ahead += transitions[state]
    assert reached == set(states)


@pytest.mark.parametrize("transitions", MACHINES.values(), ids=MACHINES)
def test_the_states_are_only_changed_where_the_table_is_looked_at(transitions: Transitions) -> None:
    """And set once more, in `__init__`."""
    enum_name = type(next(iter(transitions))).__name__
    first = next(iter(transitions))
    set_in: list[str] = []
    for package in ("client", "sequencer", "storage_node"):
        for path in sorted((ROOT / package).rglob("*.py")):
            source = path.read_text()
            if enum_name in source:
                set_in += [f"{name} = {value}" for name, value in _assignments(ast.parse(source)) if enum_name in value]
    assert set_in == [f"__init__ = {enum_name}.{first.name}"]


def _assignments(tree: ast.AST) -> list[tuple[str, str]]:
    """(function, value) of everything that is assigned to an attribute `state`."""
    return [
        (function.name, ast.unparse(node.value))
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == "state"
    ]


def test_assignments_are_seen() -> None:
    tree = ast.parse("def f(self):\n    self.state = A.B\n    other.state = A.C")
    assert _assignments(tree) == [("f", "A.B"), ("f", "A.C")]


def test_only_a_read_stream_and_its_delivery_change_its_position() -> None:
    changed_in = set()
    for path in (ROOT / "client/read").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AugAssign | ast.AnnAssign)
                else []
            )
            for target in targets:
                names = [ast.unparse(each.value) for each in ast.walk(target) if isinstance(each, ast.Attribute)]
                if {"position", "self._position"}.intersection(names):
                    changed_in.add(path.name)
    assert changed_in == {"delivery.py", "read_stream.py"}
