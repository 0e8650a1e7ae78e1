"""What an extent store must hold after a crash: a run that is cut off at any call of its disk, and what may be left of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from logdevice_py.core.entry import body_of
from logdevice_py.core.ids import Generation, LogId, metadata_log_of
from logdevice_py.core.lsn import LSN_INVALID, Epoch, Lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store.extents.simulated_disk import PowerCutError, SimulatedDisk, Survives
from storage_node.log_store.extents.store import ExtentLogStore
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.interface import Contents, EpochMetadataKind, LogMetadataKind, WriteBatch
from storage_node.log_store.precedence import header_apart
from storage_node.log_store.settings import LogStoreSettings
from tests.unit.storage_node.log_store.extent_stores import open_extents
from tests.unit.storage_node.log_store.images import LOG, SHARD, at, image_of, put, read_all

MARKER = ShardMarker(b"c" * 16, SHARD, Generation(2))
OTHER = LogId(8)
INTERNAL = metadata_log_of(LOG)
LOGS = (LOG, OTHER, INTERNAL)
SETTINGS = LogStoreSettings(
    free_space_min=0,
    extent_bytes=64 << 10,
    extent_rows_max=30,
    checkpoint_bytes=20_000,
    partition_duration_us=5_000,
    partition_bytes=20_000,
    blob_bytes_min=1_000,
    directory_save_bytes=4096,
)
State = tuple[Any, ...]


def entries_of(store: ExtentLogStore) -> State:
    """Of all logs."""
    reads = []
    for log in LOGS:
        result = read_all(store, log)
        assert not result.corrupt, result.corrupt
        reads.append(tuple(result.entries))
    return tuple(reads)


def state_of(store: ExtentLogStore, contents: Contents) -> State:
    """All that a store says that it holds."""
    return (
        entries_of(store),
        tuple(sorted(contents.log_metadata)),
        tuple(sorted(contents.epoch_metadata)),
        tuple(sorted(contents.highest)),
    )


@dataclass
class ChainModel:
    """What was written, and what was called durable."""

    entries: dict[tuple[LogId, Lsn], bytes] = field(default_factory=dict)
    log_metadata: dict[tuple[LogId, LogMetadataKind], bytes] = field(default_factory=dict)
    epoch_metadata: dict[tuple[LogId, Epoch, EpochMetadataKind], bytes] = field(default_factory=dict)

    def state(self) -> State:
        """As of `state_of`."""
        reads: dict[LogId, list[tuple[Lsn, bytes]]] = {log: [] for log in LOGS}
        for (log, lsn), image in sorted(self.entries.items()):
            reads[log].append((lsn, image))
        highest = {log: found[-1][0] for log, found in reads.items() if found}
        return (
            tuple(map(tuple, reads.values())),
            tuple(sorted((*key, value) for key, value in self.log_metadata.items())),
            tuple(sorted((*key, value) for key, value in self.epoch_metadata.items())),
            tuple(sorted(highest.items())),
        )


def open_on(
    disk: SimulatedDisk, boot: str, now: int = 1_000, settings: LogStoreSettings = SETTINGS
) -> tuple[ExtentLogStore, Contents]:
    """Open, adopt and load."""
    store = open_extents(disk, settings, boot=boot)
    if store.adopt(MARKER, boot=boot, now=Timestamp(now)) is not Status.OK:
        raise LogDeviceError(Status.FAILED, "cannot adopt")
    return store, store.load()


class Scenario:
    """A run with all that a store does, which is cut off at some call of its disk."""

    def __init__(self, disk: SimulatedDisk, seed: int = 1, *, rounds: int = 30) -> None:
        self.disk = disk
        self.model = ChainModel()
        self.states: list[State] = [self.model.state()]
        """After each batch."""
        self.durable = 0
        """How many of these batches a sync covers."""
        self.begun = 0
        """How many may have been written."""
        self._rng = random.Random(seed)
        self._rounds = rounds
        self._sync_every = self._rng.choice([3, 3, 20])
        self._chore_every = self._rng.choice([2, 2, 1])
        self._esn = dict.fromkeys(LOGS, 0)
        self._trimmed = dict.fromkeys(LOGS, 0)

    def run(self, boot: str = "boot 1") -> None:
        """Raises PowerCutError where it is cut off."""
        store, _ = open_on(self.disk, boot)
        for number in range(self._rounds):
            self._write(store)
            if number % self._sync_every == 1:
                written = len(self.states) - 1
                assert store.sync() is Status.OK
                self.durable = written
            if number % 4 == 2:
                store.maintain(Timestamp(2_000 + number * 2_000))
            chore = store.next_chore() if number % self._chore_every == 0 else None
            if chore is not None:
                chore()
        if self._rng.random() < 0.5:
            store.close()
            self.durable = len(self.states) - 1

    def _write(self, store: ExtentLogStore) -> None:
        rng, batch, model = self._rng, WriteBatch(), self.model
        if rng.random() < 0.25:
            log = rng.choice(LOGS)
            upto = rng.randint(self._trimmed[log], self._esn[log]) if self._esn[log] else 0
            if upto > self._trimmed[log]:
                self._trimmed[log] = upto
                batch.delete_entries(log, LSN_INVALID, at(upto))
                for key in [key for key in model.entries if key[0] == log and key[1] <= at(upto)]:
                    del model.entries[key]
                batch.put_log_metadata(log, LogMetadataKind.TRIM_POINT, str(upto).encode())
                model.log_metadata[log, LogMetadataKind.TRIM_POINT] = str(upto).encode()
        for _ in range(rng.randint(1, 4)):
            log = rng.choice(LOGS)
            self._esn[log] += 1
            lsn = at(self._esn[log])
            body = rng.randbytes(rng.choice([5, 300, 1_500, 6_000]))
            model.entries[log, lsn] = put(batch, lsn, body, log=log)
            value = str(lsn).encode()
            batch.put_epoch_metadata(log, Epoch(1), EpochMetadataKind.MUTABLE, value)
            model.epoch_metadata[log, Epoch(1), EpochMetadataKind.MUTABLE] = value
        self.begun += 1
        state = model.state()
        self.states.append(state)
        assert store.write([batch]) == [Status.OK]

    def process_dies(self) -> None:
        """The process alone was cut off: another one takes what is there, all of it, and by that makes it durable."""
        self.disk.dies_at = None
        store, contents = open_on(self.disk, "boot 1")
        state = state_of(store, contents)
        store.abandon()
        assert state in self.states[-2:], "a process that dies takes nothing with it"
        end = len(self.states) if state == self.states[-1] else len(self.states) - 1
        self.states = self.states[:end]
        self.durable = len(self.states) - 1

    def allowed(self) -> list[State]:
        """What may be there after the crash."""
        return self.states[self.durable :]


REWRITING = replace(
    SETTINGS,
    partition_duration_us=14_000,
    partition_bytes=60_000,
    checkpoint_bytes=60_000,
    partition_compact_percent=10,
)


class RewritingScenario(Scenario):
    """A run in which a log is trimmed within partitions that another one needs, and copies are taken out of their extents."""

    def run(self, boot: str = "boot 1") -> None:
        """As of `Scenario`."""
        store, _ = open_on(self.disk, boot, settings=REWRITING)
        for number in range(self._rounds):
            self._write(store)
            if number % self._sync_every == 1:
                written = len(self.states) - 1
                assert store.sync() is Status.OK
                self.durable = written
            if number % 2:
                store.maintain(Timestamp(2_000 + number * 2_000))
            for _ in range(self._chore_every):
                chore = store.next_chore()
                if chore is not None:
                    chore()
            if number % 11 == 10:
                # as if each could not be read
                store._extents.suspects.extend(store._extents.indexes)
                store._extents.make_indexes_anew()
            if number % 7 == 6:
                assert entries_of(store) == self.model.state()[0]

    def _write(self, store: ExtentLogStore) -> None:
        rng, batch, model = self._rng, WriteBatch(), self.model
        if rng.random() < 0.3:
            upto = rng.randint(self._trimmed[LOG], self._esn[LOG])
            self._delete(batch, LOG, self._trimmed[LOG], upto)
            self._trimmed[LOG] = upto
        if rng.random() < 0.1 and self._esn[OTHER] > 2:
            some = rng.randint(1, self._esn[OTHER])
            self._delete(batch, OTHER, some, some)
        if rng.random() < 0.5:
            self._put_header(batch)
        for _ in range(rng.randint(1, 4)):
            log = rng.choice([LOG, LOG, LOG, OTHER, INTERNAL])
            self._esn[log] += 1
            lsn = at(self._esn[log])
            model.entries[log, lsn] = put(batch, lsn, rng.randbytes(rng.choice([5, 1_500, 6_000])), log=log)
        self.begun += 1
        self.states.append(model.state())
        assert store.write([batch]) == [Status.OK]

    def _delete(self, batch: WriteBatch, log: LogId, first: int, last: int) -> None:
        batch.delete_entries(log, at(first), at(last))
        for key in [key for key in self.model.entries if key[0] == log and at(first) <= key[1] <= at(last)]:
            del self.model.entries[key]

    def _put_header(self, batch: WriteBatch) -> None:
        """An entry that is there gets another header."""
        found = [key for key, image in self.model.entries.items() if key[0] != INTERNAL and len(image) > 1_000]
        if not found:
            return
        log, lsn = self._rng.choice(found)
        before = self.model.entries[log, lsn]
        copyset = self._rng.choice([(768,), (769,)])
        image = image_of(lsn, body_of(before), log=log, copyset=copyset)
        header = header_apart(image)
        assert header is not None
        batch.put_header(log, lsn, by_recovery=False, wave=1, header=header)
        self.model.entries[log, lsn] = image


def survivors(mode: str, seed: int) -> Survives:
    """What outlives a power cut."""
    rng = random.Random(seed)
    if mode == "nothing":
        return lambda: False
    if mode == "all":
        return lambda: True
    share = rng.choice([0.1, 0.5, 0.9, 0.99])
    return lambda: rng.random() < share


def crash_and_check(disk: SimulatedDisk, allowed: list[State], mode: str, seed: int, *, again_at: int | None) -> State:
    """The power goes; the store is opened, once more cut off while it is, and holds one of the allowed states, both times the same."""
    disk.power_cut(survivors(mode, seed))
    looked, contents = None, None
    if again_at is not None:
        disk.dies_at = disk.steps + again_at
        try:
            looked, contents = open_on(disk, "boot 2")
            before = state_of(looked, contents)
            assert before in allowed
            allowed = [before]
        except PowerCutError:
            pass
        disk.power_cut(survivors(mode, seed + 1))
    store, contents = open_on(disk, "boot 3")
    state = state_of(store, contents)
    assert state in allowed, f"{len(allowed)} states are allowed"
    store.abandon()
    return state
