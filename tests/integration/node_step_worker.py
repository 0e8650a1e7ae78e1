"""``logdeviced`` that kills itself when it comes to a step that a test has armed: `DIRECTORY`, and then the arguments of ``logdeviced``.

A step is a moment at which something of the node has reached others or a disk, and what follows has not:

- ``takes MESSAGE``: before a message is handled; ``sent MESSAGE``: when one has left;
- ``runs EFFECT`` and ``ran EFFECT``: before and after an effect of another kind is begun;
- ``asks OPERATION``, ``asked OPERATION``, ``answered OPERATION``: before and after the epoch store is asked, and before its answer is handled;
- ``appends RECORD``, ``appended RECORD``, ``trims LOG``: around what a node writes to logs of the cluster itself: the event log and the log tree.

Their names follow from what the code declares, so a new message, effect, operation, updater or event is a step as well.
"""

from __future__ import annotations

import os
import signal
import sys
import typing
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from client.replica.log_replica import LogReplica
from epoch_store import interface
from epoch_store.sqlite import SqliteEpochStore
from logdevice_py.core import ids
from logdevice_py.event_log import events
from logdevice_py.protocol import messages as m
from logdevice_py.protocol.declare import CODEC_OF
from logdevice_py.runtime.driver import Driver
from logdevice_py.runtime.transport import Transport
from sequencer.effects import LogNotice
from server import logdeviced
from server.event_log.notices import EventLogNotice
from server.node import Node
from storage_node.repair.notices import Notice

ARMED, KILLED, REACHED, DECLARED = "armed", "killed", "reached", "declared"
"""In the directory: an empty file for each step that is armed, one for each at which a node died, with its process, and what nodes say of steps."""
NODE_PACKAGES = ("epoch_store.", "sequencer.", "server.")
"""Where updaters of metadata are defined."""
LINES = (Notice, LogNotice, EventLogNotice)
"""Effects that are lines for people."""
SILENT = "silent"
"""A file in the directory: while it is there, the epoch store does not answer."""
OWN_LOGS = {
    ids.EVENT_LOG_DELTAS: "event log",
    ids.EVENT_LOG_SNAPSHOTS: "snapshots of the event log",
    ids.LOG_TREE_DELTAS: "log tree",
    ids.LOG_TREE_SNAPSHOTS: "snapshots of the log tree",
}


def operation_of(operation: Any) -> str:
    """What an operation of the epoch store is called; each updater of metadata makes one of its own."""
    kind = type(operation)
    return type(operation.updater).__name__ if kind is interface.UpdateMetadata else kind.__name__


def _updaters_in(module: Any) -> Iterator[type]:
    """Classes that a module defines whose objects change the metadata of an epoch."""
    for each in vars(module).values():
        if isinstance(each, type) and module.__name__.startswith(NODE_PACKAGES) and each.__module__ == module.__name__:
            call = vars(each).get("__call__")
            if call is not None and call.__code__.co_varnames[1:2] == ("current",):
                yield each


def declared_steps(effects: Sequence[type]) -> list[str]:
    """All steps, for a node that runs these kinds of effects."""
    connection = (m.Hello, m.Ack)  # are no matter of the node, whose connections have tests of their own
    sent = [kind.__name__ for kind in CODEC_OF if kind not in connection]
    updates = sorted({each.__name__ for module in list(sys.modules.values()) for each in _updaters_in(module)})
    operations = [
        kind.__name__ for kind in typing.get_args(interface.Operation) if kind is not interface.UpdateMetadata
    ]
    kinds = [kind.__name__ for kind in effects if kind not in (interface.EpochStoreRequest, *LINES)]
    records = [each.__name__ for each in typing.get_args(events.Event)]
    records += [name for log, name in OWN_LOGS.items() if log != ids.EVENT_LOG_DELTAS]
    return [
        *(f"{does} {kind}" for kind in sent for does in ("takes", "sent")),
        *(f"{does} {kind}" for kind in kinds for does in ("runs", "ran")),
        *(f"{does} {each}" for each in operations + updates for does in ("asks", "asked", "answered")),
        *(f"{does} {each}" for each in records for does in ("appends", "appended")),
        *(f"trims {name}" for name in OWN_LOGS.values()),
    ]


class Fate:
    """Ends the process at a step that is armed, the first process that comes to it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._name = f"{os.getpid()}"
        self._reached: set[str] = set()

    def epoch_store_is_silent(self) -> bool:
        """Whether a test wants it to answer later."""
        return (self._directory / SILENT).exists()

    def declare(self, effects: Sequence[type]) -> None:
        """Say which steps there are."""
        whole = self._directory / f"{DECLARED}.{self._name}"
        whole.write_text("\n".join(declared_steps(effects)))
        whole.replace(self._directory / DECLARED)

    def step(self, name: str) -> None:
        """The process has come to it."""
        if name not in self._reached:
            self._reached.add(name)
            with (self._directory / REACHED).open("a") as file:  # one write, which is not mixed with others
                file.write(f"{name}\n")
        try:
            os.rename(f"{self._directory}/{ARMED}/{name}", f"{self._directory}/{KILLED}/{name}")
        except FileNotFoundError:
            return
        (self._directory / KILLED / name).write_text(self._name)
        os.kill(os.getpid(), signal.SIGKILL)


def _record_of(log: int, payload: bytes) -> str:
    return type(events.decode_event(payload)).__name__ if log == ids.EVENT_LOG_DELTAS else OWN_LOGS[ids.LogId(log)]


def _around_effects(step: Callable[[str], None], kind: type, run: Callable[[list[Any]], None]) -> Callable[..., None]:
    def around(same: list[Any]) -> None:
        step(f"runs {kind.__name__}")
        run(same)
        step(f"ran {kind.__name__}")

    return run if kind in (interface.EpochStoreRequest, *LINES) else around


def patches(fate: Fate) -> list[Any]:
    """What has to be patched in so that the process comes to its steps."""
    step = fate.step
    on_message, append, trim = Node.on_message, LogReplica.append, LogReplica._trim
    send, flush, submit, begin = Transport.send, Transport.flush, SqliteEpochStore.submit, Driver.__init__
    queued: deque[str] = deque()

    def take(self: Node, peer: Any, message: Any, now: Any) -> None:
        step(f"takes {type(message).__name__}")
        on_message(self, peer, message, now)

    def queue(self: Transport, to: Any, message: Any) -> None:
        queued.append(type(message).__name__)
        send(self, to, message)

    def leave(self: Transport) -> None:
        flush(self)
        while queued:
            step(f"sent {queued.popleft()}")

    def ask(self: SqliteEpochStore, operations: Sequence[Any], done: Callable[..., None]) -> None:
        if fate.epoch_store_is_silent():
            self._loop.call_later(0.1, ask, self, operations, done)
            return
        names = [operation_of(each) for each in operations]

        def answered(results: list[Any]) -> None:
            for name in names:
                step(f"answered {name}")
            done(results)

        for name in names:
            step(f"asks {name}")
        submit(self, operations, answered)
        for name in names:
            step(f"asked {name}")

    def write(self: Any, log: Any, payload: bytes, handle: Callable[..., None], *rest: Any, **named: Any) -> bool:
        record = _record_of(log, payload)

        def handled(outcome: Any, now: Any) -> None:
            step(f"appended {record}")
            handle(outcome, now)

        step(f"appends {record}")
        return append(self, log, payload, handled, *rest, **named)

    def cut(self: Any, log: Any, lsn: Any, now: Any) -> None:
        if lsn:
            step(f"trims {OWN_LOGS[log]}")
        trim(self, log, lsn, now)

    def drive(self: Driver, machine: Any, *arguments: Any, effects: Any, **named: Any) -> None:
        if isinstance(machine, Node):
            fate.declare(list(effects))
            effects = {kind: _around_effects(step, kind, run) for kind, run in effects.items()}
        begin(self, machine, *arguments, effects=effects, **named)

    return [
        patch.object(Node, "on_message", take),
        patch.object(Transport, "send", queue),
        patch.object(Transport, "flush", leave),
        patch.object(SqliteEpochStore, "submit", ask),
        patch.object(LogReplica, "append", write),
        patch.object(LogReplica, "_trim", cut),
        patch.object(Driver, "__init__", drive),
    ]


def main() -> int:
    """The program."""
    for each in patches(Fate(Path(sys.argv.pop(1)))):
        each.start()
    return logdeviced.main()
