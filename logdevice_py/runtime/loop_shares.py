"""For how long the frames of each connection are handled, and in which order: nobody takes the event loop from the others."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, Final

from logdevice_py.core.units import SECOND, Micros

NODES_FACTOR: Final = 4
"""How many times as long as those of clients the frames of nodes are handled in a turn."""
_OTHERS_US: Final = SECOND
"""A client counts as served for so long after it was."""


class LoopShare:
    """The part of one connection in the time of the loop."""

    __slots__ = ("connection", "credit", "grant", "is_client", "is_waiting", "refilled_at")

    def __init__(self, connection: Any, *, is_client: bool, credit: int, now: Micros) -> None:
        self.connection = connection
        self.is_client = is_client
        self.credit = credit
        """Microseconds that it may use without standing in line; below 0 when it used more."""
        self.grant = 0
        """Microseconds left of its turn in line."""
        self.is_waiting = False
        """It stands in line: nothing more is read from it."""
        self.refilled_at = now


class LoopShares:
    """Shares the time of an event loop among the connections that a process accepted.

    1. In a turn of the loop the frames of one client are handled for `turn_us` at most, those of all clients for `clients_turn_us`. Whoever sent more stands
       in line. Nothing more is read from it meanwhile, so that its sender has to wait. Each turn begins with the line; whatever else is ready, as frames
       of nodes, timers and the disk, has its turn between.
    2. A client has credit, which grows by `share_percent` of the time up to `credit_us`, unless the client stands in line. A client with credit does not stand in
       line to begin with, and goes before those without when it must.
    3. While there are clients with credit that were served within the last second, those without stand in line, and get `greedy_percent` of the time, all
       together: the processors are for more than this loop. Otherwise they get all time that is left, and stand in line only for what a turn has no room for.
    4. Nodes have a line of their own, which goes first, and several times as long; they need no credit. Of the connections that claim to be the same node, the
       first counts as the node's as long as it stands, and the others as clients': anybody can claim that.

    At least one frame is handled whenever something is read, however long it takes: a frame is not divided.
    """

    def __init__(
        self, *, turn_us: int, clients_turn_us: int, credit_us: int, share_percent: int, greedy_percent: int
    ) -> None:
        """
        Args:
            turn_us: how long the frames of one client are handled in a turn.
            clients_turn_us: likewise, those of all clients.
            credit_us: what a client may use at once.
            share_percent: how fast it gets that back.
            greedy_percent: what clients without credit get of the time while others are served.
        """
        self._turn_us = turn_us
        self._budgets = {True: clients_turn_us, False: NODES_FACTOR * clients_turn_us}
        self._left = dict(self._budgets)
        """Microseconds of this turn, for clients and for nodes."""
        self._credit_us = credit_us
        self._share_percent = share_percent
        self._greedy_percent = greedy_percent
        self._nodes: deque[LoopShare] = deque()
        self._clients: deque[LoopShare] = deque()
        """Who has credit."""
        self._greedy: deque[LoopShare] = deque()
        """Who has none."""
        self._served: OrderedDict[LoopShare, Micros] = OrderedDict()
        """Clients that have credit, and when each was served last, if that is not long ago; who was served last is last."""
        self._allowance = turn_us
        """Microseconds for all who have no credit; below 0 when they used more."""
        self._allowed_at = Micros(0)

    def arrive(self, connection: Any, now: Micros, *, is_client: bool) -> LoopShare:
        """A peer has introduced itself. Its credit is small, so that a new connection is no way to more."""
        return LoopShare(connection, is_client=is_client, credit=min(self._turn_us, self._credit_us), now=now)

    def promote(self, share: LoopShare) -> None:
        """It counts as a node's from now on."""
        share.is_client = False
        self._served.pop(share, None)
        if share.is_waiting:
            self._nodes.append(share)

    def leave(self, share: LoopShare) -> None:
        """The connection is gone. It is skipped in line."""
        share.is_waiting = False
        self._served.pop(share, None)

    def may_use(self, share: LoopShare, now: Micros) -> int:
        """For how many microseconds frames that have come may be handled; 0: one frame is."""
        left = self._left[share.is_client]
        if not share.is_client:
            return min(left, NODES_FACTOR * self._turn_us)
        self._refill(share, now)
        if share.credit > 0:
            self._served[share] = now
            self._served.move_to_end(share)
            return min(left, self._turn_us)
        return min(left, share.grant if self._anyone_is_served(now) else self._turn_us)

    def use(self, share: LoopShare, used: int, now: Micros, *, more: bool) -> bool:
        """Account for what was used. True: it stands in line from now on.

        Args:
            more: frames have come that are not handled yet.
        """
        self._left[share.is_client] -= used
        if share.is_client:
            if share.credit <= 0:
                self._allowance = max(self._allowance - used, -self._credit_us)
            share.credit = max(share.credit - used, -self._credit_us)
            share.grant -= used
            if share.credit <= 0:
                self._served.pop(share, None)
            more = more or (share.credit <= 0 and share.grant <= 0 and self._anyone_is_served(now))
        if more and not share.is_waiting:
            share.is_waiting = True
            line = self._nodes if not share.is_client else self._clients if share.credit > 0 else self._greedy
            line.append(share)
        return more

    @property
    def is_low(self) -> bool:
        """So much of this turn is used that `begin_turn` should be called, after other work of the loop."""
        return any(2 * left < self._budgets[kind] for kind, left in self._left.items())

    def begin_turn(self) -> None:
        """Other work of the loop has had its turn."""
        self._left.update(self._budgets)

    def next(self, now: Micros) -> LoopShare | None:
        """Who of those in line goes on now: handle what waits of it, then read on. None: nobody does in this turn."""
        while True:
            if self._nodes and self._left[False] > 0:
                line = self._nodes
            elif self._left[True] <= 0:
                return None
            elif self._clients:
                line = self._clients
            elif self._greedy and self._greedy_wait(now) == 0:
                line = self._greedy
            else:
                return None
            share = line.popleft()
            if share.is_waiting:
                share.is_waiting = False
                share.refilled_at = now
                share.grant = self._turn_us
                return share

    def wait_us(self, now: Micros) -> int | None:
        """After how many microseconds somebody in line may go on, if the turn is over by then; None: nobody waits."""
        if self._nodes or self._clients:
            return 0
        return self._greedy_wait(now) if self._greedy else None

    def _anyone_is_served(self, now: Micros) -> bool:
        """Whether a client that has credit was served lately."""
        served = self._served
        while served and now - next(iter(served.values())) >= _OTHERS_US:
            served.popitem(last=False)
        return bool(served)

    def _greedy_wait(self, now: Micros) -> int:
        if not self._anyone_is_served(now):
            return 0
        grown = (now - self._allowed_at) * self._greedy_percent // 100
        if grown:
            self._allowance = min(self._turn_us, self._allowance + grown)
            self._allowed_at = now
        return max(0, (self._turn_us - self._allowance) * 100 // self._greedy_percent)

    def _refill(self, share: LoopShare, now: Micros) -> None:
        grown = (now - share.refilled_at) * self._share_percent // 100
        if grown:
            share.credit = min(self._credit_us, share.credit + grown)
            share.refilled_at = now
