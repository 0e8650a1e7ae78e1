"""Asking shards whether a later sequencer has stored anything of a log: the check of a tail while the epoch store is silent.

A later sequencer's first STOREs leave soft seals on their copyset. Its nodeset may be another than ours, so all storage shards of the
cluster are asked, and the answers must meet every copyset that the replication property allows. Which failure domains its epoch has is not known either:
the file may have moved nodes to other racks since. So only nodes are counted, and as many of them silent as there are copies prove nothing, whatever
rack they stand in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from logdevice_py.config.location import Scope
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core import marks
from logdevice_py.core.ids import LogId, ShardId, node_peer
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.units import Micros
from logdevice_py.placement.failure_domains import FailureDomains, FMajority
from logdevice_py.protocol.messages import CheckSeal, SealChecked
from sequencer.context import SequencerContext
from sequencer.sequencer import Sequencer

_GOOD = (FMajority.COMPLETE, FMajority.INCOMPLETE)


@dataclass(slots=True)
class _Check:
    sequencer: Sequencer
    epoch: Epoch
    done: Callable[[bool, Micros], None]
    answered: set[ShardId] = field(default_factory=set)


class SealChecks:
    """The checks in progress; one a log at most."""

    __slots__ = ("_checks", "_context")

    def __init__(self, context: SequencerContext) -> None:
        self._context = context
        self._checks: dict[LogId, _Check] = {}

    def start(self, sequencer: Sequencer, done: Callable[[bool, Micros], None], now: Micros) -> None:
        """Ask every shard; `done` is called when enough have answered, or with False at the deadline of requests."""
        log = sequencer.log
        check = self._checks[log] = _Check(sequencer, sequencer.epoch, done)
        deadline = now + self._context.settings.sequencer_state_timeout_us
        for shard in self._context.config.storage_shards():
            request_id = self._context.requests.ask_shard(
                shard, SealChecked, partial(self._on_seal_checked, check), deadline=deadline
            )
            self._context.outbox.send(node_peer(shard), CheckSeal(request_id=request_id, shard=shard, logs=[log]))

        def expire(now: Micros) -> None:
            if self._checks.get(log) is check:
                del self._checks[log]
                check.done(False, now)

        self._context.timers.at(deadline, expire)

    def _on_seal_checked(self, check: _Check, message: SealChecked, now: Micros) -> None:
        log = check.sequencer.log
        if self._checks.get(log) is not check:
            marks.hit("seal_check_stale")  # what it says held before the present check began
            return
        for answered in message.logs:
            if answered.log != log:
                continue
            if answered.seal_epoch >= check.epoch:
                del self._checks[log]
                check.sequencer.on_sealed(answered.seal_epoch, answered.seal_node, now)
                check.done(False, now)
                return
            check.answered.add(message.shard)
        if self._met_by_every_copyset(check):
            del self._checks[log]
            check.done(check.sequencer.epoch == check.epoch, now)

    def _met_by_every_copyset(self, check: _Check) -> bool:
        config, metadata = self._context.config, check.sequencer.metadata
        if metadata is None:
            return False  # the log is not sequenced here any more
        copies = min(check.sequencer.attributes.replication.copies, metadata.current.replication.copies)
        domains = FailureDomains(config.storage_shards(), ReplicationProperty.of({Scope.NODE: copies}), ())
        return domains.f_majority(check.answered) in _GOOD
