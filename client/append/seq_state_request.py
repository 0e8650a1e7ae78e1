"""Questions to a log's sequencer. They change nothing that the asker depends on, so they are repeated until answered."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from client.append.router import Router, Routes
from client.inquiries import Inquiries
from client.links import Links
from client.request_history import RequestHistory, describe_timeout, name_asked
from client.settings import ClientSettings
from logdevice_py.core.ids import LogId, NodeId, PeerId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.machine import Rng, Timer, TimerQueue, backoff
from logdevice_py.core.status import TRAITS, Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import AppendFlags, GetSeqState, SeqState, SeqStateFlags
from logdevice_py.protocol.requests import Requests

_FINAL = frozenset({Status.NOTFOUND, Status.INVALID_PARAM, Status.NOTSUPPORTED, Status.DISABLED})


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A question without an answer."""

    status: Status
    why: str
    """What was waited for, and what came of it."""


Answered = Callable[[SeqState | NoAnswer, Micros], None]
"""Gets the OK answer, or why there is none."""


class QuestionState(enum.Enum):
    """Of one question."""

    ASKED = enum.auto()  # sent, or waiting for its connection
    PAUSED = enum.auto()  # refused; will be asked again
    DONE = enum.auto()  # answered, timed out or cancelled


class SeqStateRequest:
    """One question; ends with exactly one call of `done` unless cancelled."""

    __slots__ = (
        "_asked_at",
        "_began",
        "_deadline",
        "_done",
        "_flags",
        "_history",
        "_owner",
        "_pauses",
        "_round",
        "_router",
        "_status",
        "_timer",
        "accept",
        "log",
        "min_epoch",
        "node",
        "request_id",
        "state",
    )

    def __init__(
        self,
        owner: SeqStateRequests,
        log: LogId,
        flags: int,
        min_epoch: Epoch,
        deadline: int | None,
        done: Answered,
        accept: Callable[[SeqState], bool],
        now: Micros,
    ) -> None:
        self._owner = owner
        self.log = log
        self._flags = flags
        self.min_epoch = min_epoch
        self._deadline = deadline
        self._done = done
        self.accept = accept
        self.state = QuestionState.PAUSED
        self.request_id = 0
        self.node = NodeId(-1)
        """Whom the last try asked."""
        self._router = Router(owner.routes, log)
        self._round = 0
        self._status = Status.TIMEDOUT
        self._timer: Timer | None = None
        self._began = self._asked_at = now
        self._history = RequestHistory()
        self._pauses = backoff(owner.rng, initial_us=owner.settings.retry_us_min, max_us=owner.settings.retry_us_max)

    def start(self, now: Micros) -> None:
        """Ask, from the located node on."""
        if self._expired(self._status, now):
            return
        node = self._router.first()
        if node is None:
            self._pause(Status.NOSEQUENCER, now)
        else:
            self._ask(node, now)

    def cancel(self) -> None:
        """The answer is not wanted any more."""
        self._finish()

    def _on_answer(self, answer: SeqState, now: Micros) -> None:
        routes = self._owner.routes
        if answer.epoch:
            routes.saw_epoch(self.log, answer.epoch)
        if answer.status is Status.OK:
            if answer.epoch >= self.min_epoch and self.accept(answer):
                routes.learned(self.log, self.node)
                self._finish()
                self._done(answer, now)
            else:
                self._pause(Status.AGAIN, now)
        elif answer.status in (Status.REDIRECTED, Status.PREEMPTED):
            self._history.redirected(self.node, answer.redirect)
            node = self._router.redirected(self.node, answer.redirect, preempted=answer.status is Status.PREEMPTED)
            if node is None:
                self._pause(Status.NOSEQUENCER, now)
            else:
                self._ask(node, now)
        elif answer.status is Status.ACCESS:
            self._fail(answer.status, routes.refused(self.log, None).detail, now)
        elif answer.status in _FINAL:
            self._fail(answer.status, TRAITS[answer.status].meaning, now)
        else:
            if answer.status is Status.AGAIN:
                self._owner.inquiries.ask(self.log, self.node, now)
            self._pause(answer.status, now)

    def _ask(self, node: NodeId, now: Micros) -> None:
        self._forget_id()
        self.state = QuestionState.ASKED
        self._asked_at = now
        self.node = node
        flags = self._flags
        if self._router.flags & AppendFlags.NO_REDIRECT:
            flags |= SeqStateFlags.NO_REDIRECT
        if self._router.flags & AppendFlags.REACTIVATE_IF_PREEMPTED:
            flags |= SeqStateFlags.REACTIVATE_IF_PREEMPTED
        settings = self._owner.settings
        self._at(now + min(settings.unanswered_us, settings.attempt_us), self._inquire)
        self.request_id = self._owner.requests.ask(
            PeerId(node), SeqState, self._on_answer, failed=lambda status, at: self._pause(Status.CONNFAILED, at)
        )
        self._owner.links.send(
            PeerId(node),
            GetSeqState(request_id=self.request_id, log=self.log, flags=int(flags), min_epoch=self.min_epoch),
        )

    def _inquire(self, now: Micros) -> None:
        """It takes a while: have the node say why, again and again."""
        due = self._asked_at + self._owner.settings.attempt_us
        if now >= due or (self._deadline is not None and now >= self._deadline):
            self._unanswered(now)
            return
        self._owner.inquiries.ask(self.log, self.node, now)
        self._at(min(now + self._owner.settings.unanswered_us, due), self._inquire)

    def _unanswered(self, now: Micros) -> None:
        """Ask the same node again, then others: they know whether it is dead."""
        if self._expired(Status.TIMEDOUT, now):
            return
        self._history.unanswered(f"N{self.node}")
        self._owner.routes.look_further(self.log, self._owner.links)
        other = self._owner.routes.other_node(self.log, self.node, self._round)
        self._round += 1
        node = self._router.first()
        if node == self.node and other is not None:
            node = other
        if node is None:
            self._pause(Status.NOSEQUENCER, now)
        else:
            self._ask(node, now)

    def _pause(self, status: Status, now: Micros) -> None:
        self._forget_id()
        self._status = status
        self._history.refused(
            "" if status is Status.NOSEQUENCER and self.state is QuestionState.PAUSED else f"N{self.node}", status
        )
        if self._expired(status, now):
            return
        self.state = QuestionState.PAUSED
        self._owner.routes.forget(self.log, self.node)
        self._owner.routes.look_further(self.log, self._owner.links)
        self._at(now + next(self._pauses), self.start)

    def _expired(self, status: Status, now: Micros) -> bool:
        if self._deadline is None or now < self._deadline:
            return False
        self._fail(status, describe_timeout(now - self._began, self.waits_for(now)), now)
        return True

    def waits_for(self, now: Micros) -> str:
        """What it waits for, and what came of it so far."""
        asked = self.state is QuestionState.ASKED
        what = name_asked(self.node, now - self._asked_at, self._owner.links) if asked else "the next try"
        told = self._owner.inquiries.told(self.log, self.node, self._began, now)
        return self._history.explain(what, self._owner.routes.epoch(self.log), told)

    def _fail(self, status: Status, why: str, now: Micros) -> None:
        self._finish()
        self._done(NoAnswer(status, why), now)

    def _at(self, deadline: int, handler: Callable[[Micros], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._deadline is not None:
            deadline = min(deadline, self._deadline)
        self._timer = self._owner.timers.at(deadline, handler)

    def _forget_id(self) -> None:
        self._owner.requests.forget(self.request_id)
        self.request_id = 0

    def _finish(self) -> None:
        self._forget_id()
        self.state = QuestionState.DONE
        if self._timer is not None:
            self._timer.cancel()


def _any(_: SeqState) -> bool:
    return True


class SeqStateRequests:
    """The questions of one client that are under way."""

    __slots__ = ("inquiries", "links", "requests", "rng", "routes", "settings", "timers")

    def __init__(
        self,
        routes: Routes,
        links: Links,
        timers: TimerQueue,
        rng: Rng,
        requests: Requests,
        settings: ClientSettings,
        inquiries: Inquiries,
    ) -> None:
        self.inquiries = inquiries
        self.routes = routes
        self.links = links
        self.timers = timers
        self.rng = rng
        self.settings = settings
        self.requests = requests

    def ask(
        self,
        log: LogId,
        now: Micros,
        done: Answered,
        *,
        flags: int = 0,
        min_epoch: Epoch = Epoch(0),
        deadline: int | None = None,
        accept: Callable[[SeqState], bool] = _any,
    ) -> SeqStateRequest:
        """Ask the log's sequencer.

        Args:
            log: a data log.
            now: the time.
            done: gets the answer that `accept` takes, or the status at the deadline.
            flags: of `SeqStateFlags`.
            min_epoch: the sequencer moves the log to this epoch or a later one if it is below.
            deadline: None asks for ever.
            accept: an OK answer that it refuses is asked for again.
        """
        request = SeqStateRequest(self, log, flags, min_epoch, deadline, done, accept, now)
        request.start(now)
        return request
