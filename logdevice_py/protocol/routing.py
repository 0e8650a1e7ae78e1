"""Who handles which message: methods declare it, the routes of processes follow from that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import Any, TypeVar

from logdevice_py.core.ids import PeerId
from logdevice_py.core.units import Micros

Handler = Callable[[PeerId, Any, Micros], None]
"""(sender, message, now)"""
_Method = TypeVar("_Method", bound=Callable[..., None])
_Any = TypeVar("_Any")


class RoutingError(Exception):
    """A message has no handler, or two."""


def handles(*kinds: type[Any]) -> Callable[[_Method], _Method]:
    """Declare that a method (peer, message, now) takes messages of these classes."""

    def declare(method: _Method) -> _Method:
        method.handles = kinds  # type: ignore[attr-defined]
        return method

    return declare


def declared(*owners: type[Any]) -> dict[type[Any], Any]:
    """The method for each message that classes handle.

    Raises:
        RoutingError: two handle the same message.
    """
    methods = [method for owner in owners for name in dir(owner) if hasattr(method := getattr(owner, name), "handles")]
    return merge(*({kind: method} for method in methods for kind in method.handles))


def handlers_of(*owners: object) -> dict[type[Any], Handler]:
    """What objects handle.

    Raises:
        RoutingError: two handle the same message.
    """
    return merge(
        *({kind: MethodType(method, owner) for kind, method in declared(type(owner)).items()} for owner in owners)
    )


def merge(*parts: Mapping[type[Any], _Any]) -> dict[type[Any], _Any]:
    """The handlers of several parts together.

    Raises:
        RoutingError: two handle the same message.
    """
    merged: dict[type[Any], _Any] = {}
    for part in parts:
        for kind, handler in part.items():
            if kind in merged:
                raise RoutingError(f"{kind.__name__} has two handlers: {_name(merged[kind])} and {_name(handler)}")
            merged[kind] = handler
    return merged


def _name(handler: Any) -> str:
    return str(getattr(handler, "__qualname__", handler))


def check_routes(
    messages: Iterable[type[Any]], *processes: Iterable[type[Any]], elsewhere: Iterable[type[Any]]
) -> None:
    """Check that all messages have handlers. To be called when the modules of roots are imported.

    Args:
        messages: all message classes.
        processes: of each kind of process the classes that make up its routes.
        elsewhere: messages that no machine handles.
    Raises:
        RoutingError: some message is handled by two classes of a process, or nowhere.
    """
    handled = set(elsewhere).union(*(declared(*owners) for owners in processes))
    missing = sorted(kind.__name__ for kind in messages if kind not in handled)
    if missing:
        raise RoutingError(f"nobody handles {', '.join(missing)}: declare a handler with @handles")
