"""A client's replica of the log tree, what is proposed to it, and who waits for what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from client.log_tree.commands import Attributes, TreeCommand, encode
from client.log_tree.state import LOG_TREE, LogTreeState, Node, TreeDirectory, TreeGroup
from client.log_tree.view import LogTreeView
from client.promise import Promise, break_, keep
from client.read.settings import ReadSettings
from client.replica.command_replica import CommandReplica
from client.replica.commands import CommandOutcome, CommandRefused, StateVersion, refusal
from client.session import ClientSession
from logdevice_py.config.attributes import ATTRIBUTES, LogAttributes, attribute_key, parse_attribute, render_attribute
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.logs import LogGroup
from logdevice_py.config.validate import check_replication
from logdevice_py.core.ids import LOG_TREE_DELTAS, LOG_TREE_SNAPSHOTS, LogId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros

_FILE: Final = "file"
_LIVE: Final = "live"
_REMOVING: Final = "removing"


@dataclass(frozen=True, slots=True)
class LogTreeEntry:
    """A directory or a group of logs: what it sets, and what holds for it."""

    path: str
    state: str
    """``live``; ``removing``: its logs take nothing any more; ``file``: it stands in the cluster file, which alone changes it."""
    own: Attributes
    """What it sets itself, as in the cluster file."""
    version: StateVersion | None
    """Of its last change, for `expect`; None: it stands in the cluster file."""
    lo: LogId | None = None
    """The first log of a group; None: it is a directory."""
    hi: LogId | None = None
    """The last one."""
    attributes: LogAttributes | None = None
    """What holds for the logs of a group."""
    hidden: bool = False
    """The cluster file has a group of this path, so the logs of this one are reached by their ids only."""

    @property
    def logs(self) -> range:
        """The ids of the group's logs; none for a directory."""
        return range(0) if self.lo is None or self.hi is None else range(self.lo, self.hi + 1)


def entry_of_file(group: LogGroup) -> LogTreeEntry:
    """A group of the cluster file."""
    own = dict(render_attribute(name, value) for name, value in group.overrides.items())
    return LogTreeEntry(group.path, _FILE, own, None, group.lo, group.hi, group.attributes)


def checked(attributes: Mapping[str, Any] | None, config: ClusterConfig) -> Attributes:
    """Attributes as people give them, as they are kept.

    Raises:
        LogDeviceError: INVALID_PARAM: there is no such attribute, the value is wrong, or the cluster cannot replicate so.
    """
    found: dict[str, str | int | bool] = {}
    for name, raw in (attributes or {}).items():
        key = attribute_key(name)
        if key is None:
            known = ", ".join(ATTRIBUTES)
            raise LogDeviceError(Status.INVALID_PARAM, f"there is no attribute {str(name)[:50]!r}; there are {known}")
        try:
            field, value = parse_attribute(key, raw)
        except (ValueError, OverflowError) as error:
            raise LogDeviceError(Status.INVALID_PARAM, str(error)) from None
        if field == "replication":
            try:
                check_replication("replicate", config, value, config.storage_shards())
            except LogDeviceError as error:
                raise LogDeviceError(Status.INVALID_PARAM, error.detail) from None
        key, written = render_attribute(field, value)
        found[key] = written
    return found


class ClientLogTree:
    """The log tree as one client knows it."""

    def __init__(self, session: ClientSession, view: LogTreeView, read_settings: ReadSettings) -> None:
        self.session = session
        self.view = view
        self._waiting: list[tuple[Callable[[], bool], Promise]] = []
        self.replica: CommandReplica[LogTreeState] = CommandReplica(
            session,
            LOG_TREE,
            LOG_TREE_DELTAS,
            LOG_TREE_SNAPSHOTS,
            self._on_change,
            snapshot_every=0,
            read_settings=read_settings,
        )

    def start(self, now: Micros) -> None:
        """Begin to read the tree."""
        self.replica.start(now)

    def stop(self) -> None:
        """Proposals and whoever waits fail."""
        self.replica.stop()
        waiting, self._waiting = self._waiting, []
        for _, promise in waiting:
            break_(promise, LogDeviceError(Status.SHUTDOWN, "the client was closed", retriable=False))

    def _on_change(self, now: Micros) -> None:
        self.view.take(self.replica.state.value, is_known=self.replica.caught_up)
        self.view.confirmed_at = self.replica.confirmed_at
        self._look()

    def _look(self) -> None:
        waiting, self._waiting = self._waiting, []
        for holds, promise in waiting:
            if promise.done():
                continue
            if holds():
                keep(promise, None)
            else:
                self._waiting.append((holds, promise))

    # Waiting

    def when(
        self, holds: Callable[[], bool], promise: Promise, text: Callable[[], str], now: Micros, timeout_us: int
    ) -> None:
        """Keep the promise when something holds of the tree; `text` says after the timeout what was waited for."""
        self._waiting.append((holds, promise))
        self._limit(promise, text, now, timeout_us)
        self._look()

    def when_known(self, promise: Promise, now: Micros, timeout_us: int) -> None:
        """Keep it when the tree is read for the first time."""
        self.when(lambda: self.view.is_known, promise, self._late, now, timeout_us)

    def when_current(self, promise: Promise, now: Micros, timeout_us: int) -> None:
        """Keep it when everything is known that was acknowledged to anybody before this call."""

        def confirmed(error: BaseException | None, at: Micros) -> None:
            if promise.done():
                return
            if error is None:
                keep(promise, None)
            else:
                break_(promise, error)

        self._limit(promise, self._late, now, timeout_us)
        self.replica.confirm(confirmed, now, timeout_us)

    def _limit(self, promise: Promise, text: Callable[[], str], now: Micros, timeout_us: int) -> None:
        def expire(at: Micros) -> None:
            if not promise.done():
                break_(promise, LogDeviceError(Status.TIMEDOUT, text(), maybe_applied=False))

        self.session.timers.at(Micros(now + timeout_us), expire)

    def _late(self) -> str:
        return f"the log tree is not known whole in time; its replica waits for {self.replica.waiting_for()}"

    # Changes

    def propose(self, command: TreeCommand, promise: Promise, now: Micros, timeout_us: int) -> None:
        """The promise gets the `CommandOutcome` of a command that was applied, or the error with which it was refused.

        Raises:
            LogDeviceError: as `CommandReplica.propose`.
        """
        self.replica.propose(encode(command), _Judged(promise), now, timeout_us)

    # Looking

    def find(self, path: str) -> Node | None:
        """What the tree has at a path, as it is known here."""
        try:
            return self.view.state.find(path)
        except CommandRefused as error:
            raise LogDeviceError(*refusal(str(error))) from None

    def entry(self, node: Node) -> LogTreeEntry:
        """What is told of a directory or group."""
        config = self.session.config
        if isinstance(node, TreeDirectory):
            return LogTreeEntry(node.path, _LIVE, dict(node.attributes), node.version)
        path = node.path
        return LogTreeEntry(
            path,
            _REMOVING if node.removing else _LIVE,
            dict(node.attributes),
            node.version,
            node.lo,
            node.hi,
            self.view.attributes_of(node, config),
            hidden=config.logs.group_at(path) is not None,
        )

    def group(self, log: LogId) -> TreeGroup | None:
        """The group of a log."""
        return self.view.state.group(log)


class _Judged:
    """Takes an outcome apart: the promise behind it is kept when the command was applied, and broken when it was refused."""

    def __init__(self, promise: Promise) -> None:
        self._promise = promise

    def done(self) -> bool:
        return self._promise.done()

    def set_result(self, result: Any, /) -> None:
        outcome = result
        assert isinstance(outcome, CommandOutcome)
        if outcome.applied:
            self._promise.set_result(outcome)
        else:
            status, text = refusal(outcome.reason)
            self._promise.set_exception(LogDeviceError(status, text, retriable=False, maybe_applied=False))

    def set_exception(self, exception: BaseException, /) -> None:
        self._promise.set_exception(exception)

    def exception(self) -> BaseException | None:
        return self._promise.exception()
