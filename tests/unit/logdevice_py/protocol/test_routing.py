"""Routes: derived from what methods declare, and refused when a message has no handler, or two."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logdevice_py.core.ids import PeerId
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import Append, Gossip, Hello, Seal, Sealed, Store, Stored
from logdevice_py.protocol.routing import RoutingError, check_routes, handlers_of, handles, merge

ROOT = Path(__file__).parents[4]


class Writer:
    """Handles two kinds with one method, one of them from clients too."""

    def __init__(self, name: str = "writer") -> None:
        self.got: list[tuple[str, PeerId, Any, int]] = []
        self.name = name

    @handles(Store, Stored)
    def on_store(self, peer: PeerId, message: Any, now: Micros) -> None:
        self.got.append((self.name, peer, message, now))

    @handles(Append)
    def on_append(self, peer: PeerId, message: Any, now: Micros) -> None: ...

    def on_other(self, peer: PeerId, message: Any, now: Micros) -> None:
        """Declares nothing."""


class Sealer:
    @handles(Seal)
    def on_seal(self, peer: PeerId, message: Any, now: Micros) -> None: ...


class AnotherSealer:
    @handles(Gossip, Seal)
    def on_two(self, peer: PeerId, message: Any, now: Micros) -> None: ...


class TwoMethods:
    @handles(Seal)
    def on_seal(self, peer: PeerId, message: Any, now: Micros) -> None: ...

    @handles(Seal)
    def on_seal_too(self, peer: PeerId, message: Any, now: Micros) -> None: ...


TWO_SEALERS = re.escape("Seal has two handlers: Sealer.on_seal and AnotherSealer.on_two")


class TestHandlers:
    def test_objects_handle_what_their_methods_declare(self) -> None:
        writer = Writer()
        routes = handlers_of(writer, Sealer(), object(), None)
        assert set(routes) == {Store, Stored, Append, Seal}
        routes[Stored](PeerId(3), "message", Micros(7))
        assert writer.got == [("writer", 3, "message", 7)]

    def test_each_object_of_a_class_has_its_own(self) -> None:
        first, second = Writer("first"), Writer("second")
        handlers_of(second)[Store](PeerId(3), "message", Micros(7))
        assert (first.got, [got[0] for got in second.got]) == ([], ["second"])

    def test_two_handlers_of_a_message_are_refused(self) -> None:
        with pytest.raises(RoutingError, match=TWO_SEALERS):
            handlers_of(Sealer(), AnotherSealer())
        with pytest.raises(RoutingError, match=TWO_SEALERS):
            merge(handlers_of(Sealer()), handlers_of(AnotherSealer()))
        with pytest.raises(RoutingError, match=r"TwoMethods\.on_seal and TwoMethods\.on_seal_too"):
            handlers_of(TwoMethods())
        with pytest.raises(RoutingError, match="Append has two handlers"):
            handlers_of(Writer(), Writer())


class TestCheck:
    def test_every_message_has_a_handler_in_some_process_or_is_named(self) -> None:
        check_routes([Seal, Store, Gossip, Hello], [Sealer, Writer], [AnotherSealer], elsewhere=[Hello])

    def test_a_message_that_nobody_handles_is_named(self) -> None:
        with pytest.raises(RoutingError, match="nobody handles Gossip, Sealed: declare"):
            check_routes([Seal, Sealed, Gossip], [Sealer], [Writer], elsewhere=[])

    def test_two_handlers_in_one_process_are_refused_and_not_in_two(self) -> None:
        check_routes([Seal], [Sealer], [AnotherSealer], elsewhere=[])
        with pytest.raises(RoutingError, match=TWO_SEALERS):
            check_routes([Seal], [Sealer, AnotherSealer], elsewhere=[])


PLANT = """
from logdevice_py.protocol import declare, messages
from logdevice_py.protocol.routing import handles
{plant}
import server.node
"""


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        ("", ""),
        (
            "class Unknown: pass\ndeclare.CODEC_OF[Unknown] = declare.CODEC_OF[messages.Hello]",
            "RoutingError: nobody handles Unknown: declare a handler with @handles",
        ),
        (
            "import storage_node.writing.store as store\nstore.StoreHandler.on_seal = handles(messages.Seal)(lambda *arguments: None)",
            "RoutingError: Seal has two handlers: ",
        ),
    ],
    ids=["as it is", "nobody", "two"],
)
def test_a_node_whose_routes_are_wrong_does_not_import(plant: str, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLANT.format(plant=plant)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) is (told == ""), done.stderr
    assert told in done.stderr.splitlines()[-1] if told else done.stderr == ""
