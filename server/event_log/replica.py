"""A node's copy of what the event log amounts to.

Appending is never certain; whoever wants something appends its event again until the state shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from client.read.items import CorruptRecord, Gap, Record
from client.replica.log_replica import LogReplica
from client.session import ClientSession
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import EVENT_LOG_DELTAS, EVENT_LOG_SNAPSHOTS
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import Outbox, Rng, TimerQueue
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.event_log.events import Event, decode_event, encode_event
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.event_log.settings import RebuildingMetrics, RebuildingSettings
from logdevice_py.event_log.snapshots import SnapshotChoice
from logdevice_py.protocol.requests import Requests
from server.event_log.links import NodeLinks

_APPENDED_AGAIN_US: Final = 5 * SECOND
_RECORD_COST: Final = 100
_ENTRIES_PER_BYTE: Final = 4
"""An event counts for a byte more for so many entries of the state: it takes up to 0.5 us for each entry that there is."""
_MANY_ENTRIES: Final = 256
_PAUSE_US_PER_ENTRY: Final = 50
"""Where the state has many entries, the next events are looked at after so long for each: whoever floods the event log does not stop the node."""


class EventLogRules:
    """What is particular to the event log."""

    commands = EVENT_LOG_DELTAS
    snapshots = EVENT_LOG_SNAPSHOTS
    skips_losses = True
    """Shards say again what matters."""

    def __init__(self, metrics: RebuildingMetrics) -> None:
        self.events_since_snapshot = 0
        self._metrics = metrics

    def apply(self, state: RebuildingSet, item: Record | CorruptRecord) -> bool:
        """Take the next record; of an entry the first one counts."""
        event: Event | None = None
        if isinstance(item, Record):
            try:
                event = decode_event(item.payload)
            except CorruptEntryError:
                hit("event_log_record_is_no_event")
        if item.lsn <= state.version:
            return False
        self._metrics.events_applied += 1
        self.events_since_snapshot += 1
        return state.apply(event, Lsn(item.lsn))

    def on_loss(self, gap: Gap) -> None:
        """What the events were nobody knows, unless a snapshot does: nodes go on without them."""
        hit("event_log_lost_events")
        self._metrics.event_log_losses += 1

    def read_snapshots(self, needed: Lsn) -> SnapshotChoice:
        """Anybody may have written them."""
        return SnapshotChoice(needed)

    def snapshot(self, state: RebuildingSet) -> list[bytes]:
        """The whole state in one record."""
        return [state.encode()]

    def on_snapshot_written(self, version: Lsn) -> Lsn:
        """Events that it tells of can go."""
        self._metrics.snapshots_written += 1
        return version

    def cost(self, state: RebuildingSet) -> int:
        """Of an event."""
        return _RECORD_COST + len(state.shards) // _ENTRIES_PER_BYTE

    def pause_us(self, state: RebuildingSet) -> int:
        """After a change."""
        entries = len(state.shards)
        return entries * _PAUSE_US_PER_ENTRY if entries > _MANY_ENTRIES else 0


class EventLogReplica(LogReplica[RebuildingSet]):
    """The event log as one node knows it.

    Args:
        on_change: called when an event, or a snapshot, changed the state, and when it is caught up for the first time.
    """

    def __init__(
        self,
        config: ClusterConfig,
        settings: RebuildingSettings,
        metrics: RebuildingMetrics,
        outbox: Outbox,
        timers: TimerQueue,
        rng: Rng,
        requests: Requests,
        on_change: Callable[[Micros], None],
    ) -> None:
        session = ClientSession(config, timers, rng, links=NodeLinks(outbox), requests=requests)
        self._event_rules = EventLogRules(metrics)
        super().__init__(session, self._event_rules, RebuildingSet(), on_change)
        self._settings = settings
        self._metrics = metrics
        self._appended: dict[bytes, Micros] = {}

    @property
    def set(self) -> RebuildingSet:
        """The state."""
        return self.state

    def on_config(self, config: ClusterConfig, now: Micros) -> None:
        """Another version of the cluster file."""
        self.session.set_config(config, now)

    def append_event(self, event: Event, now: Micros) -> None:
        """Append an event, unless the same one was appended a moment ago."""
        payload = encode_event(event)
        if now < self._appended.get(payload, 0):
            return
        self._appended = {each: until for each, until in self._appended.items() if until > now}
        self._appended[payload] = Micros(now + _APPENDED_AGAIN_US)
        if self.append(EVENT_LOG_DELTAS, payload, lambda outcome, at: None, now):
            self._metrics.events_written += 1

    def write_snapshot_if_due(self, now: Micros) -> None:
        """Called now and then on the leader."""
        rules = self._event_rules
        if rules.events_since_snapshot >= self._settings.snapshot_events and self.write_snapshot(now):
            rules.events_since_snapshot = 0
