"""The interval of the history that a stream reads at this moment, and what the silence of its shards proves."""

from __future__ import annotations

from typing import Final

from client.read.epochs import EpochHistory
from client.read.gap_detection import GapDetector
from client.read.read_set import ReadPosition, ReadSet
from client.read.sender_state import Sender, SenderStatus
from client.read.shard_statuses import ShardStatuses
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval

_NEVER: Final = Micros(-1)


class CurrentInterval:
    """Where it ends is in the `ReadPosition`. What its shards lost counts in the detector as soon as it is known."""

    __slots__ = ("_config", "_config_at", "_entered", "_history", "_position", "_read_set", "_statuses", "detector")

    def __init__(self, history: EpochHistory, position: ReadPosition, read_set: ReadSet, config: ClusterConfig) -> None:
        self.detector: GapDetector | None = None
        """None before the first interval."""
        self._history = history
        self._position = position
        self._read_set = read_set
        self._config = config
        self._config_at = Micros(0)
        """When the cluster file was heard of."""
        self._entered: EpochInterval | None = None
        self._statuses = ShardStatuses()

    @property
    def is_closed(self) -> bool:
        """It gets no more epochs."""
        return self._history.is_closed(self._position.interval)

    def enter(self, index: int) -> GapDetector:
        """Read from the shards of another interval, which the position names."""
        self._entered = self._history.interval(index)
        self._read_set.enter(self._entered, self._config)
        self.write_off()
        return self._detect()

    @property
    def is_wider_now(self) -> bool:
        """Shards joined its nodeset since it was entered."""
        entered = self._entered
        return entered is not None and entered.shards != self._history.interval(self._position.interval).shards

    @property
    def losses_heard_at(self) -> Micros:
        """When the last was heard that the verdict on what is missing rests on, beside what shards say that lost nothing; -1: there is no such."""
        return max((self._heard_at(sender) for sender in self._read_set.senders.values()), default=_NEVER)

    @property
    def rebuilt_heard_at(self) -> Micros:
        """When it was heard last that others have what a shard held; -1: of none."""
        statuses, senders = self._statuses, self._read_set.senders.values()
        return max((statuses.heard_at(sender) for sender in senders if statuses.is_empty(sender)), default=_NEVER)

    def _heard_at(self, sender: Sender) -> Micros:
        if sender.status is SenderStatus.ABSENT:
            return self._config_at if sender.lost else _NEVER
        statuses = self._statuses
        heard = statuses.heard_at(sender) if sender.written_off or statuses.is_empty(sender) else _NEVER
        return max(heard, sender.lost_at) if sender.lost and not sender.written_off else heard

    def on_config(self, config: ClusterConfig, *, reading: bool, now: Micros) -> bool:
        """A new version of the cluster file holds; returns whether the stream reads from shards that it may concern."""
        self._config, self._config_at = config, now
        if not reading or self.detector is None:
            return False
        self._read_set.set_config(config)
        self._detect()
        return True

    def on_statuses(self, statuses: ShardStatuses, *, reading: bool) -> bool:
        """The cluster says anew of which shards nobody waits for the data any more; returns whether the stream reads from shards."""
        self._statuses = statuses
        return self.look_again(reading=reading)

    def look_again(self, *, reading: bool) -> bool:
        """As `on_statuses`, when who can be reached is what changed."""
        if not reading or self.detector is None:
            return False
        self.write_off()
        self._detect()
        return True

    def write_off(self) -> None:
        """As in `ShardStatuses`, for the shards that are read from."""
        self._statuses.write_off(self._read_set.senders.values())

    def note_lost(self, sender: Sender) -> None:
        """Whether a shard lost its data is known anew."""
        assert self.detector is not None
        self.detector.set_lost(sender.shard, sender.lost, empty=self._statuses.is_empty(sender))

    def _detect(self) -> GapDetector:
        interval = self._history.interval(self._position.interval)
        self.detector = GapDetector(interval, self._config.location)
        for sender in self._read_set.senders.values():
            self.note_lost(sender)
        return self.detector
