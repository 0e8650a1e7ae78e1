"""A process that does something with streams, and kills itself at one of its steps: `CLUSTER ROLE STEP FIRST`; STEP -1: at none.

Steps of a janitor and of an owner are before and after each command to the namespace, after each thing that the janitor or the store of its copies tells of, and before
and after each append. Those of the others are when a message has left that changes something in the cluster, by what is declared of messages, and before
its answer is handled.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from functools import partial
from typing import Any
from unittest.mock import patch

from client.client import Client
from logdevice_py.protocol import messages as m
from logdevice_py.protocol.declare import CODEC_OF, Needs
from logdevice_py.runtime.driver import Driver
from logdevice_py.runtime.transport import Transport
from streams.cold.store import ColdStore
from streams.namespace import Namespace
from streams.stream_subscriptions import Subscription
from streams.upkeep import janitor as upkeep

WRITTEN = 6
"""Records of a writer."""
READ_AT_ONCE = 2
"""Records of which a reader says together that they are handled."""
CHANGES = {kind for kind, codec in CODEC_OF.items() if codec.needs in (Needs.APPEND, Needs.TRIM, Needs.ADMIN)}
"""Messages that change something."""
OUTCOMES = {m.Appended, m.Trimmed}
"""Their answers."""


class Fate:
    """Counts steps, and kills the process at one of them."""

    def __init__(self, step: int) -> None:
        self._left = step

    def step(self, *told: object) -> None:
        """One more."""
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


FATE = Fate(-1)


async def keep_up(namespace: Namespace) -> None:
    """Two rounds of the janitor: what the first one trims the second one tells."""
    async with upkeep.Janitor(namespace, lease="300ms", on_step=FATE.step) as janitor:
        for _ in range(2):
            await janitor.round()
        assert janitor.failures == {}, janitor.failures


async def own(namespace: Namespace, first: int) -> None:
    """Write as the owner, and say what is acknowledged."""
    stream = await namespace.open("ledger")
    async with stream.exclusive_writer(owner=f"worker {os.getpid()}", lease="300ms") as writer:
        for number in range(first, first + WRITTEN):
            FATE.step()
            print("begun", number, flush=True)
            await writer.write(b"%d" % number)
            print("stored", number, flush=True)
            FATE.step()


async def write(namespace: Namespace, first: int) -> None:
    """Write to a stream to which others write as well: several under way, and then one that must follow."""
    stream = await namespace.open("orders")
    async with stream.writer() as writer:
        STEPS.begin()
        numbers = range(first, first + WRITTEN, 2)
        print("begun", *range(first, first + WRITTEN + 1), flush=True)
        writes = [writer.write_many([b"%d" % n, b"%d" % (n + 1)], txids=[n + 1, n + 2]) for n in numbers]
        for number, written in zip(numbers, writes, strict=True):
            receipts = await written
            print("stored", number, number + 1, flush=True)
        last = first + WRITTEN
        await writer.write(b"%d" % last, txid=last + 1, expect=receipts[-1].position)
        print("stored", last, flush=True)


async def manage(namespace: Namespace, first: int) -> None:
    """All that is done to a stream as a whole; says what has returned."""

    def told(*words: str) -> None:
        print(*words, flush=True)

    before, after, another = (f"{name}{first}" for name in ("before", "after", "another"))
    STEPS.begin()
    stream = await namespace.create(before, txid="writer")
    told("created", before)
    async with stream.writer() as writer:
        receipts = await writer.write_many([b"one", b"two"], txids=[1, 2])
    await stream.truncate(receipts[1].position)
    told("truncated", before)
    await stream.untruncate()
    told("untruncated", before)
    await stream.mark_end()
    told("ended", before)
    await namespace.rename(before, after)
    told("renamed", after)
    await namespace.delete(after)
    told("deleted", after)
    await namespace.create(another)
    told("created", another)


async def subscribe(namespace: Namespace, first: int) -> None:
    """Read a stream for a subscription to its end; says what is handled, and what is committed."""
    stream = await namespace.open("read")
    async with stream.reader(Subscription("billing"), until="tail") as reader:
        STEPS.begin()
        while batch := await reader.read(READ_AT_ONCE):
            print("handled", *(payload.decode() for payload in batch.payloads if payload is not None), flush=True)
            await reader.commit()
            print("committed", *(payload.decode() for payload in batch.payloads if payload is not None), flush=True)


class MessageSteps:
    """Steps of a process that are messages which change something."""

    def __init__(self) -> None:
        self._begun = False

    def begin(self) -> None:
        """Those before are of no interest: the process connects and reads."""
        self._begun = True
        FATE.step()

    def patches(self) -> list[Any]:
        """What makes the process come to them."""
        send, flush, on_message = Transport.send, Transport.flush, Driver.on_message
        queued: list[Any] = []

        def queue(transport: Transport, to: Any, message: Any) -> None:
            if self._begun and type(message) in CHANGES:
                queued.append(message)
            send(transport, to, message)

        def leave(transport: Transport) -> None:
            flush(transport)
            if queued:
                queued.clear()
                FATE.step()

        def take(driver: Driver, peer: Any, message: Any) -> None:
            if self._begun and type(message) in OUTCOMES:
                FATE.step()
            on_message(driver, peer, message)

        return [
            patch.object(Transport, "send", queue),
            patch.object(Transport, "flush", leave),
            patch.object(Driver, "on_message", take),
        ]


STEPS = MessageSteps()
BY_MESSAGES = {"writer": write, "manager": manage, "subscriber": subscribe}


async def work(cluster: str, role: str, first: int) -> None:
    """Do it, up to the step."""
    propose = Namespace.propose

    async def counted(self: Namespace, *arguments: Any, **options: Any) -> Any:
        FATE.step()
        outcome = await propose(self, *arguments, **options)
        FATE.step()
        return outcome

    if role in BY_MESSAGES:
        patches = STEPS.patches()
    else:
        store = partial(ColdStore, on_step=FATE.step)
        patches = [patch.object(Namespace, "propose", counted), patch.object(upkeep, "ColdStore", store)]
    for each in patches:
        each.start()
    async with Client(cluster) as client, Namespace(client) as namespace:
        if role in BY_MESSAGES:
            await BY_MESSAGES[role](namespace, first)
        else:
            await (keep_up(namespace) if role == "janitor" else own(namespace, first))


def main() -> None:
    """The program."""
    global FATE
    cluster, role, step, first = sys.argv[1:]
    FATE = Fate(int(step))
    asyncio.run(work(cluster, role, int(first)))
