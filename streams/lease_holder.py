"""Waiting for a lease of a namespace, and keeping it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import msgpack

from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros
from streams.leases import Lease, seen_of

if TYPE_CHECKING:
    from streams.commands import NamespaceCommand
    from streams.namespace import Namespace

_RENEWALS: Final = 4
"""Signs of life in the time that others wait for one."""


class LeaseCommands(Protocol):
    """What a lease is for."""

    def look(self) -> Lease | None:
        """As it stands in this process's copy of the state."""

    def acquire(self, lease_us: int, token: int, beats: int) -> NamespaceCommand:
        """Take it if it is as it was seen; the result is the next token."""

    def renew(self, token: int) -> NamespaceCommand:
        """A sign of life."""

    def release(self, token: int) -> NamespaceCommand:
        """Let the next one in."""


class LeaseHolder:
    """Takes a lease once nobody has it, or who has it has shown no life for as long as he said, by this process's monotonic clock; then shows life."""

    def __init__(self, namespace: Namespace, commands: LeaseCommands, lease_us: int, name: str) -> None:
        """
        Args:
            lease_us: how long others wait for a sign of life before they take over.
            name: of the task that shows life.
        """
        self._namespace = namespace
        self._commands = commands
        self._lease_us = lease_us
        self._name = name
        self.renewing: asyncio.Task[None] | None = None
        self.token = 0
        """That was got last; 0: none was, or it was released."""
        self.lost: LogDeviceError | None = None
        """Why the lease is not held any more, as far as this process has heard."""

    async def acquire(self, wait_us: int | None = None) -> tuple[Lease, int] | None:
        """Take the lease, also after it was lost. None: it is held. Otherwise who has it after `wait_us`, and how long that was.

        Args:
            wait_us: how long to wait for it; 0: take it now or not at all; None: for ever.
        """
        await self._stop()
        namespace, client = self._namespace, self._namespace.client
        await namespace.current()
        began = since = client.now()
        seen: Lease | None = None
        while True:
            lease, now = self._commands.look(), client.now()
            if lease != seen:
                seen, since = lease, now
            if lease is None or now - since >= lease.lease_us:
                if await self._try(lease):
                    break
                continue
            due = since + lease.lease_us
            if wait_us is not None:
                if now >= began + wait_us:
                    return lease, now - began
                due = min(due, began + wait_us)
            await namespace.wait_for_change(max(0, due - now) / 1e6)
        self.renewing = client.loop.create_task(self._renew(), name=self._name)
        return None

    async def _try(self, lease: Lease | None) -> bool:
        command = self._commands.acquire(self._lease_us, *seen_of(lease))
        try:
            outcome = await self._namespace.propose(command)
        except LogDeviceError as error:
            if error.status is not Status.CONFLICT:
                raise
            return False
        self.token, self.lost = msgpack.unpackb(outcome.result), None
        return True

    async def _renew(self) -> None:
        """Show life until the lease is lost or released."""
        client = self._namespace.client
        due = client.now()
        while self.lost is None:
            due = Micros(max(due + self._lease_us // _RENEWALS, client.now()))
            await asyncio.sleep(max(0, due - client.now()) / 1e6)
            try:
                await self._namespace.propose(self._commands.renew(self.token), timeout=self._lease_us / 1e6)
            except LogDeviceError as error:
                if not error.retriable and not error.maybe_applied:
                    self.lost = error

    async def _stop(self) -> None:
        if self.renewing is not None:
            self.renewing.cancel()
            await asyncio.gather(self.renewing, return_exceptions=True)
            self.renewing = None

    async def release(self) -> LogDeviceError | None:
        """Let the next one in at once. Returns what went wrong: whoever waits takes over when the lease is over."""
        await self._stop()
        token, self.token = self.token, 0
        if not token or self.lost is not None:
            return None
        try:
            await self._namespace.propose(self._commands.release(token), timeout=self._lease_us / 1e6)
        except LogDeviceError as error:
            self.lost = error
        return self.lost
