"""The interval of the history that a stream reads at this moment, and what the silence of its shards proves."""

from __future__ import annotations

from client.read.epochs import EpochHistory
from client.read.gap_detection import GapDetector
from client.read.read_set import ReadPosition, ReadSet
from client.read.sender_state import Sender
from client.read.shard_statuses import ShardStatuses
from logdevice_py.config.cluster import ClusterConfig


class CurrentInterval:
    """Where it ends is in the `ReadPosition`. What its shards lost counts in the detector as soon as it is known."""

    __slots__ = ("_config", "_history", "_position", "_read_set", "_statuses", "detector")

    def __init__(self, history: EpochHistory, position: ReadPosition, read_set: ReadSet, config: ClusterConfig) -> None:
        self.detector: GapDetector | None = None
        """None before the first interval."""
        self._history = history
        self._position = position
        self._read_set = read_set
        self._config = config
        self._statuses = ShardStatuses()

    @property
    def is_closed(self) -> bool:
        """It gets no more epochs."""
        return self._history.is_closed(self._position.interval)

    def enter(self, index: int) -> GapDetector:
        """Read from the shards of another interval, which the position names."""
        self._read_set.enter(self._history.interval(index), self._config)
        self.write_off()
        return self._detect()

    def on_config(self, config: ClusterConfig, *, reading: bool) -> bool:
        """A new version of the cluster file holds; returns whether the stream reads from shards that it may concern."""
        self._config = config
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
