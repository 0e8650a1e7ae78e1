"""Deliberate faults: small breaks of the production code, made at run time, that show whether the checks of the simulator would see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from tests.simulation.run_mode import RunMode

Place = tuple[type | ModuleType, str]
"""A class or module, and the name of its attribute that is replaced."""


class MisplacedFaultError(Exception):
    """What a fault replaces is not there any more: it was renamed or moved, and the fault has to follow."""


@dataclass(frozen=True, slots=True)
class DeliberateFault:
    """One break. `breaks` says in a line what the code does while it is planted."""

    name: str
    breaks: str
    change: Callable[[Any], Any]
    """Makes the broken attribute from the right one."""
    places: tuple[Place, ...]
    mode: RunMode = RunMode.USUAL
    """Of the runs in which it is looked for."""
    likely: str = ""
    """What runs are devoted to that bring it out most often, a profile, moves or removals; of applications, the one that is run; empty: nothing in
    particular."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The code is broken as long as the context lasts."""
        before: list[tuple[type | ModuleType, str, Any]] = []
        try:
            for target, name in self.places:
                if name not in vars(target):
                    raise MisplacedFaultError(f"{self.name}: {target.__name__} has no {name}")
                original = vars(target)[name]
                before.append((target, name, original))
                broken = self.change(original)
                if isinstance(original, FunctionType):
                    vars(broken).update(vars(original))  # which messages it handles
                setattr(target, name, staticmethod(broken) if isinstance(original, staticmethod) else broken)
            yield
        finally:
            for target, name, original in reversed(before):
                setattr(target, name, original)


FAULTS: dict[str, DeliberateFault] = {}
"""All of them by name, in the order in which the catalogues list them."""


def deliberate(
    breaks: str, *places: Place, mode: RunMode = RunMode.USUAL, likely: str = ""
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Make a function from the right attribute to the broken one a fault, named like the function. `mode` and `likely`: see `DeliberateFault`."""

    def register(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
        name = change.__name__
        if name in FAULTS:
            raise MisplacedFaultError(f"two faults are called {name}")
        FAULTS[name] = DeliberateFault(name, breaks, change, places, mode, likely)
        return change

    return register
