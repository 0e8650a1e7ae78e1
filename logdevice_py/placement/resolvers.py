"""Where nodes stand, by their names: resolvers of several kinds, what is remembered of their answers, and how long an answer must last to count.

A resolver is asked by whoever keeps the cluster's configuration (``ldctl locations``), never by a node while it appends: what it finds becomes part of the
configuration, and counts for new epochs only.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from logdevice_py.config.location import NOWHERE, Location
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros
from logdevice_py.placement.settings import PlacementSettings

_HOST_NAME = re.compile(r"([A-Za-z0-9_]+)-([A-Za-z0-9_]+)-.+")
_PARTS_MAX: Final = 2


class LocationResolver(Protocol):
    """Tells where hosts stand. A class of this kind is made without arguments."""

    def resolve(self, names: Sequence[str]) -> Sequence[str | None]:
        """One location for each name, in the same order: a network path like ``/region/rack``, or as in the cluster file. None: not known."""

    def reload(self) -> None:
        """Forget what is remembered: the next answers shall be new."""


class ScriptResolver:
    """Asks a program, which gets names as arguments and prints as many locations, separated by white space.

    Args:
        run: starts the program with arguments and returns what it printed; raises when it failed.
        arguments_max: names at a time.
    """

    def __init__(self, run: Callable[[Sequence[str]], str], arguments_max: int) -> None:
        self._run = run
        self._arguments_max = arguments_max

    def resolve(self, names: Sequence[str]) -> Sequence[str | None]:
        """See `LocationResolver`. A batch whose answer has another number of locations is not known at all."""
        found: list[str | None] = []
        for start in range(0, len(names), self._arguments_max):
            batch = names[start : start + self._arguments_max]
            printed = self._run(batch).split()
            found += printed if len(printed) == len(batch) else [None] * len(batch)
        return found

    def reload(self) -> None:
        """See `LocationResolver`: a program remembers nothing."""


class HostNames:
    """Takes host names apart: ``us-r7-db3.example.com`` stands in region us and rack r7."""

    def resolve(self, names: Sequence[str]) -> Sequence[str | None]:
        """See `LocationResolver`."""
        matches = (_HOST_NAME.fullmatch(name) for name in names)
        return [None if match is None else f"/{match[1]}/{match[2]}" for match in matches]

    def reload(self) -> None:
        """See `LocationResolver`: nothing is remembered."""


class RememberedLocations:
    """A resolver's answers, each asked for once; what it does not know stands at the default location, and is asked for again next time.

    Args:
        default: for names that the resolver does not know, or when it fails.
    """

    def __init__(self, resolver: LocationResolver, default: Location = NOWHERE) -> None:
        self.failures: dict[str, str] = {}
        """Names that got the default location when they were last asked for, and why."""
        self._resolver = resolver
        self._default = default
        self._known: dict[str, Location] = {}

    def resolve(self, names: Sequence[str]) -> list[Location]:
        """One location for each name, in the same order."""
        unknown = [name for name in dict.fromkeys(names) if name not in self._known]
        if unknown:
            self._ask(unknown)
        return [self._known.get(name, self._default) for name in names]

    def reload(self) -> None:
        """Forget all answers: the next ones are new."""
        self._known.clear()
        self.failures.clear()
        self._resolver.reload()

    def _ask(self, names: Sequence[str]) -> None:
        try:
            found = list(self._resolver.resolve(names))
            if len(found) != len(names):
                raise ValueError(f"{len(found)} locations for {len(names)} names")
        except Exception as error:  # noqa: BLE001  (somebody else's code must not stop a node)
            self.failures.update(dict.fromkeys(names, f"{type(error).__name__}: {error}"))
            return
        for name, text in zip(names, found, strict=True):
            self.failures.pop(name, None)
            if text is None:
                self.failures[name] = "not known to the resolver"
                continue
            try:
                self._known[name] = parse_network_path(text)
            except ValueError as error:
                self.failures[name] = str(error)


class StableLocations:
    """Delays what flaps: another location of a node counts once it was found for a whole period without a break.

    Args:
        period_us: 0: it counts at once.
        in_force: where nodes stand by the configuration.
    """

    def __init__(self, period_us: int, in_force: Mapping[NodeId, Location]) -> None:
        self._period_us = period_us
        self._in_force = dict(in_force)
        self._candidates: dict[NodeId, tuple[Location, Micros]] = {}

    def on_found(self, found: Mapping[NodeId, Location], now: Micros) -> dict[NodeId, Location]:
        """The nodes whose location changes, with the new one; from now on it is in force.

        Args:
            found: what was found now; a node that is missing, because its resolver failed, stays where it is.
        """
        changed: dict[NodeId, Location] = {}
        for node, location in found.items():
            if location == self._in_force.get(node):
                self._candidates.pop(node, None)
                continue
            candidate, since = self._candidates.get(node, (None, now))
            if candidate != location:
                since = now
                self._candidates[node] = location, since
            if now - since >= self._period_us:
                changed[node] = self._in_force[node] = location
                del self._candidates[node]
        for node in self._candidates.keys() - found.keys():
            del self._candidates[node]
        return changed

    @property
    def pending(self) -> dict[NodeId, Location]:
        """Other locations that were found, but not for long enough."""
        return {node: location for node, (location, _) in self._candidates.items()}


def parse_network_path(text: str) -> Location:
    """A location from ``/rack``, ``/region/rack``, or as in the cluster file.

    Raises:
        ValueError: it is none.
    """
    if not text.startswith("/"):
        return Location.parse(text)
    parts = text[1:].split("/")
    if len(parts) > _PARTS_MAX or not all(parts):
        raise ValueError(f"{text!r}: write /rack, /region/rack, or region.datacenter.cluster.row.rack")
    return Location.parse(parts[0] if len(parts) == 1 else f"{parts[0]}....{parts[1]}")


def load_resolver(settings: PlacementSettings, run: Callable[[Sequence[str]], str]) -> RememberedLocations:
    """The resolver that is configured.

    Args:
        run: as of `ScriptResolver`, for the configured script.

    Raises:
        LogDeviceError: INVALID_CONFIG: none is configured, or it cannot be made.
    """
    try:
        default = parse_network_path(settings.default_location)
    except ValueError as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"[settings.placement] default_location: {error}") from None
    if bool(settings.resolver_script) == bool(settings.resolver_class):
        raise LogDeviceError(
            Status.INVALID_CONFIG, "[settings.placement]: set resolver_script or resolver_class, one of both"
        )
    if settings.resolver_script:
        return RememberedLocations(ScriptResolver(run, settings.resolver_arguments_max), default)
    module, _, attribute = settings.resolver_class.partition(":")
    try:
        made: Any = getattr(importlib.import_module(module), attribute)()
    except Exception as error:
        raise LogDeviceError(
            Status.INVALID_CONFIG,
            f'[settings.placement] resolver_class: {settings.resolver_class!r} cannot be made, write "module:Class": '
            f"{type(error).__name__}: {error}",
        ) from error
    return RememberedLocations(made, default)
