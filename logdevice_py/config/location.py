"""Where a node stands, and which failure domains it therefore shares with others.

A location is written ``region.datacenter.cluster.row.rack``. Shorter forms name the small scopes: ``rack7`` is a rack, ``row2.rack7`` a row
and a rack. A label may be left empty: ``eu....`` is a region and nothing else.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.ids import NodeId


class Scope(enum.IntEnum):
    """Kinds of failure domains, small to large. Values are on disk and on the wire: never reused."""

    NODE = 0
    RACK = 1
    ROW = 2
    CLUSTER = 3
    DATACENTER = 4
    REGION = 5


SCOPE_NAMES: Final = tuple(scope.name.lower() for scope in Scope)
_LABELS: Final = 5
_LABEL = re.compile(r"[A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Location:
    """The labels from region to rack; "" where nothing is known."""

    labels: tuple[str, str, str, str, str] = ("", "", "", "", "")

    @classmethod
    def parse(cls, text: str) -> Location:
        """From ``region.datacenter.cluster.row.rack`` or the right-hand part of it; "" is nowhere in particular.

        Raises:
            ValueError: too many labels, or one holds other characters than letters, digits, ``_`` and ``-``.
        """
        labels = text.split(".")
        if len(labels) > _LABELS:
            raise ValueError(f"{text!r} has {len(labels)} labels: write region.datacenter.cluster.row.rack, or less")
        for label in labels:
            if _LABEL.fullmatch(label) is None:
                raise ValueError(f"{text!r}: the label {label!r} may hold letters, digits, _ and - only")
        region, datacenter, cluster, row, rack = [""] * (_LABELS - len(labels)) + labels
        return cls((region, datacenter, cluster, row, rack))

    def __str__(self) -> str:
        """The shortest form; `parse` reads it back."""
        labels = list(self.labels)
        while labels and not labels[0]:
            del labels[0]
        return ".".join(labels)

    @property
    def region(self) -> str:
        """The first label; "" where nothing is known."""
        return self.labels[0]

    def domain(self, scope: Scope, node: NodeId) -> str:
        """A label of the domain at `scope`, unique in the cluster: it spells out all larger domains.

        Domains nest: nodes that share one share all larger ones. Nodes whose label is empty at `scope` count as one domain of
        whatever larger domain they share, because nothing says that they are apart.
        """
        if scope is Scope.NODE:
            return f"N{node}"
        return ".".join(self.labels[: _LABELS + 1 - scope])

    def within(self, area: Location) -> bool:
        """Whether every label that `area` names is the same here; an empty area holds everything."""
        return all(wanted in ("", label) for wanted, label in zip(area.labels, self.labels, strict=True))


NOWHERE: Final = Location()


@dataclass(frozen=True, slots=True)
class Areas:
    """Places in order of preference, each with everything within it; none: anywhere."""

    ordered: tuple[Location, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Areas:
        """From locations with commas between them, like ``us...., eu....``; "" is anywhere.

        Raises:
            ValueError: one of them is no location, is empty, or comes twice.
        """
        if not text.strip():
            return cls()
        areas = tuple(Location.parse(part.strip()) for part in text.split(","))
        if NOWHERE in areas:
            raise ValueError(f"{text!r}: a place between commas is empty")
        if len(set(areas)) < len(areas):
            raise ValueError(f"{text!r} names a place twice")
        return cls(areas)

    def __str__(self) -> str:
        """`parse` reads it back."""
        return ", ".join(map(str, self.ordered))


ANYWHERE: Final = Areas()
