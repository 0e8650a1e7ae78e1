"""How many copies of a record there are, and how far apart they are kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logdevice_py.config.location import SCOPE_NAMES, Scope
from logdevice_py.core.ids import COPYSET_SIZE_MAX

_FACTOR = re.compile(r"\s*([A-Za-z_]+)\s*:\s*(\d{1,9})\s*")
_EXAMPLE = 'write it like "rack:2,node:3": copies on 3 nodes in at least 2 racks'


@dataclass(frozen=True, slots=True)
class ReplicationProperty:
    """In how many domains of each scope the copies of a record are. Make it with `parse` or `of`.

    `factors` goes from the largest scope to the smallest with strictly growing factors: two regions are two racks anyway, so a scope that
    asks for no more than a larger one is left out.
    """

    factors: tuple[tuple[Scope, int], ...]

    @classmethod
    def of(cls, factors: Mapping[Scope, int] | Iterable[tuple[Scope, int]]) -> ReplicationProperty:
        """From factors in any order.

        Raises:
            ValueError: none is given, one is out of range, or a scope asks for fewer domains than a larger one does.
        """
        pairs = list(factors.items() if isinstance(factors, Mapping) else factors)
        if not pairs:
            raise ValueError(f"the replication property is empty: {_EXAMPLE}")
        if len({scope for scope, _ in pairs}) != len(pairs):
            raise ValueError("a scope is named twice in the replication property")
        distinct: list[tuple[Scope, int]] = []
        for scope, factor in sorted(pairs, reverse=True):
            name = f"{scope.name.lower()}:{factor}"
            if not 1 <= factor <= COPYSET_SIZE_MAX:
                raise ValueError(f"{name}: a replication factor is 1 to {COPYSET_SIZE_MAX}")
            if distinct and factor < distinct[-1][1]:
                larger, more = distinct[-1]
                raise ValueError(f"{name} is less than {larger.name.lower()}:{more}, which needs {more} of them anyway")
            if not distinct or factor > distinct[-1][1]:
                distinct.append((scope, factor))
        return cls(tuple(distinct))

    @classmethod
    def parse(cls, text: str) -> ReplicationProperty:
        """From ``rack:2,node:3``; ValueError says what would be right."""
        pairs: list[tuple[Scope, int]] = []
        for part in text.split(","):
            match = _FACTOR.fullmatch(part)
            if match is None:
                raise ValueError(f"{part.strip()!r} is no scope with a factor: {_EXAMPLE}")
            name = match[1].lower()
            if name not in SCOPE_NAMES:
                raise ValueError(f"{match[1]!r} is no scope; there are {', '.join(SCOPE_NAMES)}")
            pairs.append((Scope[name.upper()], int(match[2])))
        return cls.of(pairs)

    def __str__(self) -> str:
        return ",".join(f"{scope.name.lower()}:{factor}" for scope, factor in self.factors)

    @property
    def copies(self) -> int:
        """How many copies there are: the largest factor."""
        return self.factors[-1][1]

    def to_wire(self) -> list[list[int]]:
        """Plain lists for messages and files."""
        return [[int(scope), factor] for scope, factor in self.factors]

    @classmethod
    def from_wire(cls, raw: Any) -> ReplicationProperty:
        """From `to_wire`; anything else raises ValueError."""
        if not isinstance(raw, Sequence) or len(raw) > len(Scope):
            raise ValueError(f"{raw!r:.100} is no replication property")
        pairs: list[tuple[Scope, int]] = []
        for item in raw:
            if not isinstance(item, Sequence) or len(item) != 2 or any(type(number) is not int for number in item):
                raise ValueError(f"{item!r:.100} is no scope with a factor")
            pairs.append((Scope(item[0]), item[1]))
        return cls.of(pairs)
