"""The part of a client that makes, changes and removes logs while the cluster runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from client.arguments import flag_argument, is_integer, log_argument, timeout_argument
from client.client_operations import ClientOperations
from client.log_tree.client_log_tree import ClientLogTree, LogTreeEntry, checked, entry_of_file
from client.log_tree.commands import (
    LOGS_PER_GROUP_MAX,
    MakeDirectory,
    MakeLogGroup,
    Remove,
    Rename,
    SetAttributes,
    TreeCommand,
)
from client.log_tree.state import Node, TreeDirectory, TreeGroup
from client.replica.commands import CommandOutcome, StateVersion
from logdevice_py.config.attributes import attribute_key
from logdevice_py.config.logs import is_pattern
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.suggestion import nearest

_MAY_BE_THERE: Final = frozenset({Status.AGAIN, Status.NOTFOUND})


class LogTreeOperations(ClientOperations):
    """Logs that are made at run time. `timeout` is in seconds everywhere, in place of the client's append timeout."""

    log_tree: ClientLogTree | None
    """None: the cluster file enables none."""

    # What the client has

    def log_id(self, log: int | str) -> LogId:
        """The id of a log named by id or path."""
        raise NotImplementedError

    def log_ids(self, *names: int | str) -> list[LogId]:
        """The logs of ids, paths and patterns."""
        raise NotImplementedError

    # Changes

    async def make_log_group(
        self,
        path: str,
        logs: int = 1,
        attributes: Mapping[str, Any] | None = None,
        *,
        parents: bool = False,
        timeout: float | None = None,
    ) -> LogTreeEntry:
        """Make a group of logs. They can be used from here on, by this client and by all others.

        Args:
            path: like ``/team/clicks``.
            logs: how many; they get ids that no log ever had.
            attributes: what holds for them, as in the cluster file: ``{"replicate": "node:3", "backlog": "7d"}``. What is not set here holds as the
                directories above and ``[defaults]`` say.
            parents: make directories above it that are missing.
            timeout: seconds.

        Raises:
            LogDeviceError: EXISTS; NOTFOUND: a directory is missing; INVALID_PARAM; TOOBIG; NOSPC: the tree is full. Each says what stands there.
                TIMEDOUT, with `maybe_applied` where it may have been made.
        """
        if not is_integer(logs) or not 1 <= logs <= LOGS_PER_GROUP_MAX:
            raise LogDeviceError(Status.INVALID_PARAM, f"logs is {logs!r}; a group has 1 to {LOGS_PER_GROUP_MAX}")
        self._check_free(path)
        own = checked(attributes, self.session.config)
        await self._make(MakeLogGroup(path, logs, own, flag_argument("parents", parents)), timeout)
        found = self._tree().find(path)
        if not isinstance(found, TreeGroup):
            raise LogDeviceError(Status.NOTFOUND, f"{path} was made, and was renamed or removed at once")
        return self._tree().entry(found)

    async def make_directory(
        self,
        path: str,
        attributes: Mapping[str, Any] | None = None,
        *,
        parents: bool = False,
        timeout: float | None = None,
    ) -> StateVersion:
        """Make a directory of log groups, with attributes for those below it that do not set them.

        Raises:
            LogDeviceError: as `make_log_group`.
        """
        self._check_free(path)
        own = checked(attributes, self.session.config)
        return (await self._make(MakeDirectory(path, own, flag_argument("parents", parents)), timeout)).version

    async def set_attributes(
        self,
        path: str,
        attributes: Mapping[str, Any] | None = None,
        *,
        unset: Iterable[str] = (),
        expect: StateVersion | None = None,
        timeout: float | None = None,
    ) -> StateVersion:
        """Change what a group or a directory sets itself; ``/`` is the root. Nodes use it as soon as they hear of it; another replication makes
        a new epoch.

        Args:
            path: of the group or directory.
            attributes: those to be set, as in the cluster file.
            unset: those for which the directories above hold again.
            expect: change nothing unless it has this version: see `get_log_group`.
            timeout: seconds.

        Raises:
            LogDeviceError: NOTFOUND; VERSION_MISMATCH, which says the version that it has; as `make_log_group`.
        """
        self._check_not_in_file(path)
        own = checked(attributes, self.session.config)
        command = SetAttributes(path, own, [attribute_key(name) or name for name in unset], expect)
        return (await self._change(command, timeout)).version

    async def rename(
        self, path: str, to: str, *, expect: StateVersion | None = None, timeout: float | None = None
    ) -> StateVersion:
        """Move a group or a directory, with all that is in it, to a path that is free. Ids stay; other clients find them at the new path as soon as they
        hear of it.

        Raises:
            LogDeviceError: as `set_attributes`.
        """
        self._check_not_in_file(path)
        self._check_free(to)
        return (await self._change(Rename(path, to, expect), timeout)).version

    async def remove(self, path: str, *, expect: StateVersion | None = None, timeout: float | None = None) -> None:
        """Remove a directory that is empty, or a group with all its logs. An append that begins after this returned is never acknowledged; records are
        deleted by and by.

        Raises:
            LogDeviceError: NOTEMPTY; as `set_attributes`. TIMEDOUT with `maybe_applied`: nodes go on to remove it, and calling this again waits for that.
        """
        self._check_not_in_file(path)
        tree = self._tree()
        deadline = self.now() + self._timeout(timeout)
        node = tree.find(path)
        try:
            await self._change(Remove(path, expect), timeout)
            node = tree.find(path)
        except LogDeviceError as error:
            if error.status is not Status.NOTFOUND or not isinstance(node, TreeGroup) or not node.removing:
                raise
        if not isinstance(node, TreeGroup):
            return
        lo = node.lo
        future = self.future()
        text = f"{path} is being removed, and some node may still take appends to its logs; nodes go on with it"
        tree.when(lambda: tree.group(lo) is None, future, lambda: text, self.now(), max(1, deadline - self.now()))
        try:
            await self._answer(future)
        except LogDeviceError as error:
            raise LogDeviceError(error.status, error.detail, maybe_applied=True) from None

    # Looking

    async def get_log_group(self, log: int | str, *, timeout: float | None = None) -> LogTreeEntry:
        """A group or a directory, by path or by the id of a log in it, as it is at this moment: changes that were made anywhere before this call are known.

        Raises:
            LogDeviceError: NOTFOUND; TIMEDOUT when the tree could not be asked.
        """
        name = log_argument(log)
        config = self.session.config
        in_file = config.logs.group(LogId(name)) if isinstance(name, int) else config.logs.group_at(name)
        if in_file is not None:
            return entry_of_file(in_file)
        await self._current(timeout)
        tree = self._tree()
        found: Node | None = tree.group(LogId(name)) if isinstance(name, int) else tree.find(name)
        if found is None:
            raise LogDeviceError(
                Status.NOTFOUND, f"there is nothing at {name}" if isinstance(name, str) else f"there is no log {name}"
            )
        return tree.entry(found)

    async def list_logs(self, path: str = "/", *, timeout: float | None = None) -> list[LogTreeEntry]:
        """What a directory holds, in order of names, as it is at this moment: groups of the cluster file below it as well, with their whole paths.

        Raises:
            LogDeviceError: NOTFOUND; INVALID_PARAM: it is a group.
        """
        prefix = path.rstrip("/") + "/"
        of_file = [entry_of_file(each) for each in self.session.config.logs.groups if each.path.startswith(prefix)]
        found: list[LogTreeEntry] = []
        if self.log_tree is not None:
            await self._current(timeout)
            node = self.log_tree.find(path)
            if isinstance(node, TreeDirectory):
                found = [self.log_tree.entry(child) for child in node.children.values()]
            elif node is not None:
                raise LogDeviceError(Status.INVALID_PARAM, f"{path} is a group of logs and no directory")
            elif not of_file:
                raise LogDeviceError(Status.NOTFOUND, f"there is no directory {path}")
        return sorted([*of_file, *found], key=lambda entry: entry.path)

    # What they share

    def _tree(self) -> ClientLogTree:
        if self.log_tree is None and self.session.config.has_log_tree:
            text = "the cluster file enables the log tree since this client was opened: open another one"
            raise LogDeviceError(Status.NOTSUPPORTED, text)
        if self.log_tree is None:
            raise LogDeviceError(
                Status.NOTSUPPORTED,
                "the cluster has no log tree: put enabled = true under [settings.log_tree] of its file, or add the log there",
            )
        return self.log_tree

    def _timeout(self, timeout: float | None) -> int:
        given = timeout_argument(timeout)
        return self.settings.append_timeout_us if given is None else given

    def _check_free(self, path: str) -> None:
        if not isinstance(path, str):
            raise LogDeviceError(Status.INVALID_PARAM, f"a path is a str, not {path!r}")
        self._tree()
        tree = self.session.config.logs
        if tree.group_at(path) is not None:
            raise LogDeviceError(Status.EXISTS, f"{path} is a group of logs of the cluster file")
        above = path.rpartition("/")[0]
        while above:
            if tree.group_at(above) is not None:
                raise LogDeviceError(
                    Status.INVALID_PARAM, f"{above} is a group of logs of the cluster file and no directory"
                )
            above = above.rpartition("/")[0]

    def _check_not_in_file(self, path: str) -> None:
        tree = self._tree()
        if self.session.config.logs.group_at(path) is not None and tree.find(path) is None:
            raise LogDeviceError(
                Status.INVALID_PARAM, f"{path} stands in the cluster file, which alone changes it (ldctl logs update)"
            )

    async def _change(self, command: TreeCommand, timeout: float | None) -> CommandOutcome:
        future = self.future()
        self._tree().propose(command, future, self.now(), self._timeout(timeout))
        outcome = await self._answer(future)
        assert isinstance(outcome, CommandOutcome)
        return outcome

    async def _make(self, command: MakeLogGroup | MakeDirectory, timeout: float | None) -> CommandOutcome:
        try:
            return await self._change(command, timeout)
        except LogDeviceError as error:
            close = self._near_directory(command.path) if error.status is Status.NOTFOUND else None
            if close is None:
                raise
            detail = f"{error.detail}; did you mean {close}?"
            raise LogDeviceError(error.status, detail, retriable=False, maybe_applied=False) from None

    def _near_directory(self, path: str) -> str | None:
        """The directory that may be meant in place of the first one above a path that is not there."""
        directory: TreeDirectory = self._tree().view.state.root
        for name in path.strip("/").split("/")[:-1]:
            child = directory.children.get(name)
            if child is None:
                others = [each for each, node in directory.children.items() if isinstance(node, TreeDirectory)]
                close = nearest(name, others)
                return None if close is None else f"{directory.path.rstrip('/')}/{close}"
            if not isinstance(child, TreeDirectory):
                return None
            directory = child
        return None

    async def _current(self, timeout: float | None) -> None:
        """Wait until everything is known of the tree that was acknowledged before."""
        future = self.future()
        self._tree().when_current(future, self.now(), self._timeout(timeout))
        await self._answer(future)

    def may_be_made(self, log: int | str, error: LogDeviceError) -> bool:
        """Whether a look-up failed only because this client has not heard of the log."""
        if self.log_tree is None or error.status not in _MAY_BE_THERE:
            return False
        return error.status is Status.AGAIN or (isinstance(log, str) and log.startswith("/"))

    async def known_log(self, log: int | str, timeout: float | None = None) -> LogId:
        """The id of a log named by id or path; asks for the newest tree before it says that there is none.

        Raises:
            LogDeviceError: NOTFOUND, INVALID_PARAM; TIMEDOUT when the tree could not be asked.
        """
        try:
            return self.log_id(log)
        except LogDeviceError as error:
            if not self.may_be_made(log, error):
                raise
        await self._current(timeout)
        try:
            return self.log_id(log)
        except LogDeviceError as error:
            if error.status is not Status.AGAIN:
                raise
            raise LogDeviceError(Status.NOTFOUND, f"there is no log {log}") from None

    async def known_logs(self, *names: int | str, timeout: float | None = None) -> list[LogId]:
        """The logs of ids, paths and patterns like ``/team/*``: in that order, each once; asks as `known_log` does.

        Raises:
            LogDeviceError: as `known_log`.
        """
        found: dict[LogId, None] = {}
        for name in names:
            if not is_pattern(name):
                found[await self.known_log(name, timeout)] = None
                continue
            try:
                logs = self.log_ids(name)
            except LogDeviceError as error:
                if not self.may_be_made(name, error):
                    raise
                await self._current(timeout)
                logs = self.log_ids(name)
            found.update(dict.fromkeys(logs))
        return list(found)
