"""The end of groups that are being removed: no log of them takes an append any more, whoever sequenced it.

For each log, one node takes an epoch, recovers all earlier ones, which seals an f-majority of each, and disables the log in the epoch store as long as
its own epoch is the last. `docs/decisions/0011-log-tree.md` says why that is enough. When the node dies, another one begins anew.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from client.log_tree.state import TreeGroup
from client.log_tree.view import LogTreeView
from epoch_store.interface import ReadMetadata, Result, UpdateMetadata
from epoch_store.updaters import Retire
from logdevice_py.config.attributes import LogAttributes
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.placement.sequencer_locator import locate_sequencer
from sequencer.node import SequencerNode
from sequencer.sequencer import Sequencer, SequencerPhase

_LOOK_US: Final = 20 * MILLISECOND
_AGAIN_US: Final = 200 * MILLISECOND
"""After something failed."""
_LOGS_AT_A_TIME: Final = 20


class LogEnd(enum.Enum):
    """How far the end of one log is."""

    READING = enum.auto()  # whether it is disabled already
    RECOVERING = enum.auto()  # its last epoch is being got, and those before it recovered
    DISABLING = enum.auto()  # the epoch store was asked to give no further epoch
    PAUSED = enum.auto()  # something failed; it begins anew
    DONE = enum.auto()  # it takes nothing any more


class _EndingLog:
    """One log."""

    def __init__(self, log: LogId, attributes: LogAttributes, node: SequencerNode, now: Micros) -> None:
        self.log = log
        self._attributes = attributes
        self._node = node
        self._sequencer: Sequencer | None = None
        self._again_at = Micros(0)
        self.state = LogEnd.PAUSED
        self.look(now)

    def look(self, now: Micros) -> None:
        """Go on as far as possible."""
        if self.state is LogEnd.PAUSED and now >= self._again_at:
            self.state = LogEnd.READING
            self._node.context.epoch_store.submit(ReadMetadata(self.log), self._on_metadata, now)
        elif self.state is LogEnd.RECOVERING:
            self._look_at_sequencer(now)

    def _pause(self, now: Micros) -> None:
        self.state = LogEnd.PAUSED
        self._again_at = Micros(now + _AGAIN_US)

    def _on_metadata(self, result: Result | None, now: Micros) -> None:
        if self.state is not LogEnd.READING:
            return
        if result is not None and isinstance(result.value, EpochMetaData) and result.value.disabled:
            hit("removed_log_was_disabled_before")
            self.stop(now)
            self.state = LogEnd.DONE
        elif result is not None and result.status in (Status.OK, Status.EMPTY):
            self.state = LogEnd.RECOVERING
            self._sequencer = self._node.end_earlier_epochs(self.log, self._attributes, now)
        else:
            self._pause(now)

    def _look_at_sequencer(self, now: Micros) -> None:
        sequencer = self._sequencer
        if sequencer is None or self._node.sequencers.get(self.log) is not sequencer:
            self._pause(now)
        elif sequencer.activation is not None:
            return
        elif sequencer.state is not SequencerPhase.ACTIVE:
            hit("removed_log_was_taken_over")
            self._node.forget(self.log, now)
            self._pause(now)
        elif sequencer.is_released:
            self.state = LogEnd.DISABLING
            operation = UpdateMetadata(self.log, Retire(sequencer.epoch), self._node.node)
            epoch_store = self._node.context.epoch_store
            epoch_store.submit(operation, partial(self._on_disabled, sequencer.epoch), now)

    def _on_disabled(self, epoch: Epoch, result: Result | None, now: Micros) -> None:
        if self.state is not LogEnd.DISABLING:
            return
        if result is not None and result.status is Status.OK:
            self.stop(now)
            self.state = LogEnd.DONE
        else:
            hit("removed_log_is_not_disabled_yet")
            self._pause(now)  # somebody who had not heard of the removal took an epoch, or the store is away

    def stop(self, now: Micros) -> None:
        """Others do it, or it is done."""
        if self._sequencer is not None and self._node.sequencers.get(self.log) is self._sequencer:
            self._node.forget(self.log, now)
        self._sequencer = None
        self.state = LogEnd.PAUSED


class _EndingGroup:
    """One group: its logs, some at a time."""

    def __init__(self, group: TreeGroup) -> None:
        self._waiting = deque(map(LogId, range(group.lo, group.lo + group.count)))
        self._running: list[_EndingLog] = []

    def look(self, attributes: LogAttributes, node: SequencerNode, now: Micros) -> bool:
        """Go on; whether all its logs are done."""
        for each in self._running:
            each.look(now)
        self._running = [each for each in self._running if each.state is not LogEnd.DONE]
        while self._waiting and len(self._running) < _LOGS_AT_A_TIME:
            self._running.append(_EndingLog(self._waiting.popleft(), attributes, node, now))
        return not self._running and not self._waiting

    def stop(self, now: Micros) -> None:
        """Others do it."""
        for each in self._running:
            each.stop(now)


class Retirement:
    """The groups that this node ends: those of which it would sequence the first log."""

    def __init__(
        self, node: SequencerNode, view: LogTreeView, propose_retired: Callable[[LogId, Micros], None]
    ) -> None:
        """
        Args:
            propose_retired: called when all logs of the group that begins with this one are ended, again and again until the tree shows it.
        """
        self._node = node
        self._view = view
        self._propose_retired = propose_retired
        self._groups: dict[LogId, _EndingGroup] = {}
        self._proposed_at: dict[LogId, Micros] = {}
        self._is_armed = False

    def on_change(self, now: Micros) -> None:
        """The tree, or the state of the cluster, is another one."""
        if not self._is_armed and (self._view.state.removing or self._groups):
            self._is_armed = True
            self._look(now)

    def _look(self, now: Micros) -> None:
        removing = self._view.state.removing
        for lo in [lo for lo in self._groups if lo not in removing or not self._is_ours(lo)]:
            self._groups.pop(lo).stop(now)
            self._proposed_at.pop(lo, None)
        for lo, group in removing.items():
            if self._is_ours(lo):
                self._end(group, now)
        self._is_armed = bool(removing or self._groups)
        if self._is_armed:
            self._node.context.timers.at(Micros(now + _LOOK_US), self._look)

    def _is_ours(self, log: LogId) -> bool:
        context = self._node.context
        cluster = context.cluster
        if not cluster.may_sequence(context.node) or cluster.isolated():
            return False
        return locate_sequencer(log, context.config, cluster.may_sequence) == context.node

    def _end(self, group: TreeGroup, now: Micros) -> None:
        ending = self._groups.get(group.lo)
        if ending is None:
            ending = self._groups[group.lo] = _EndingGroup(group)
        attributes = self._view.attributes_of(group, self._node.context.config)
        if ending.look(attributes, self._node, now) and now >= self._proposed_at.get(group.lo, 0):
            self._proposed_at[group.lo] = Micros(now + SECOND)
            self._propose_retired(group.lo, now)
