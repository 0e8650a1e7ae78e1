"""Both log stores against a dictionary: any sequence of batches, reads, reopenings and crashes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from logdevice_py.core.entry import EntryFlags, header_size, parse_header
from logdevice_py.core.ids import Generation, LogId, metadata_log_of
from logdevice_py.core.lsn import Epoch, Lsn, epoch_of, esn_of
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.interface import (
    EpochMetadataKind,
    LogMetadataKind,
    ReadDirectory,
    ReadLast,
    ReadResult,
    ReadShard,
    WriteBatch,
)
from storage_node.log_store.keys import is_partitioned
from storage_node.log_store.memory import MemoryDisk, MemoryLogStore
from storage_node.log_store.rocksdb import RocksLogStore
from storage_node.log_store.settings import LogStoreSettings
from storage_node.log_store.wanted import Wants, no_body
from tests.conformance.searching import find_time
from tests.unit.storage_node.log_store.images import LOG, SHARD, at, image_of

AMEND = int(EntryFlags.AMEND)
BY_RECOVERY = int(EntryFlags.WRITTEN_BY_RECOVERY)
HOLE = int(EntryFlags.HOLE)
MARKER = ShardMarker(b"c" * 16, SHARD, Generation(2))
AGE = 5_000
SETTINGS = LogStoreSettings(
    free_space_min=0,
    memtable_bytes=1 << 20,
    wal_bytes_max=16 << 20,
    partition_duration_us=AGE,
    partition_bytes=3_000,
    partitions_soft_max=4,
    partitions_max=7,
    blob_bytes_min=1_000,
)
LOGS = st.sampled_from([LOG, LogId(8), metadata_log_of(LOG)])
POSITIONS = st.builds(at, st.integers(1, 6), st.integers(1, 2))
TIMESTAMPS = [0, 1_000, 1_100, 1_101, 1_300, 2_000, 2_100, 2_200, 9_000]
RANGES = st.tuples(POSITIONS, POSITIONS).map(sorted)
Rank = tuple[bool, int]


def timestamp_of(lsn: Lsn) -> int:
    """Of the record at an LSN: two LSNs each share one."""
    return epoch_of(lsn) * 1_000 + esn_of(lsn) // 2 * 100


class ModelCopy:
    """One copy of an LSN: a full one, a plug, or an AMEND."""

    def __init__(
        self, log: LogId, lsn: Lsn, body: bytes, wave: int, flags: int, copyset: tuple[int, ...] = (768,)
    ) -> None:
        self.log, self.lsn, self.body, self.wave, self.flags, self.copyset = log, lsn, body, wave, flags, copyset

    @property
    def rank(self) -> Rank:
        return bool(self.flags & BY_RECOVERY), self.wave

    def image(self, flags: int) -> bytes:
        return image_of(
            self.lsn,
            self.body,
            log=self.log,
            wave=self.wave,
            flags=flags,
            copyset=self.copyset,
            timestamp=timestamp_of(self.lsn),
        )

    def moved(self, copyset: tuple[int, ...]) -> ModelCopy:
        return ModelCopy(self.log, self.lsn, self.body, self.wave, self.flags, copyset)


class StoreModel:
    """What a store holds."""

    def __init__(self) -> None:
        self.copies: dict[tuple[LogId, Lsn], dict[Rank, ModelCopy]] = {}
        self.log_metadata: dict[tuple[LogId, LogMetadataKind], bytes] = {}
        self.epoch_metadata: dict[tuple[LogId, Epoch, EpochMetadataKind], bytes] = {}

    def clone(self) -> StoreModel:
        made = StoreModel()
        made.copies = {key: dict(copies) for key, copies in self.copies.items()}
        made.log_metadata = dict(self.log_metadata)
        made.epoch_metadata = dict(self.epoch_metadata)
        return made

    def delete(self, log: LogId, first: Lsn, last: Lsn) -> None:
        for key in [key for key in self.copies if key[0] == log and first <= key[1] <= last]:
            del self.copies[key]

    def put(self, copy: ModelCopy) -> None:
        self.copies.setdefault((copy.log, copy.lsn), {})[copy.rank] = copy

    def entry(self, log: LogId, lsn: Lsn) -> tuple[ModelCopy, bytes] | None:
        """The copy that counts, and the image that a read gives; None: an AMEND without its body."""
        copies = self.copies[log, lsn]
        ranks = sorted(copies, reverse=True)
        best = copies[ranks[0]]
        if not best.flags & AMEND:
            return best, best.image(best.flags)
        if any(copies[rank].body == best.body and not copies[rank].flags & AMEND for rank in ranks[1:]):
            return best, best.image(best.flags & ~AMEND)
        return None

    def consolidate(self, log: LogId, lsn: Lsn) -> None:
        if (log, lsn) in self.copies and (found := self.entry(log, lsn)) is not None:
            best = found[0]
            whole = ModelCopy(log, lsn, best.body, best.wave, best.flags & ~AMEND, best.copyset)
            self.copies[log, lsn] = {whole.rank: whole}

    def lsns(self, log: LogId, first: Lsn, last: Lsn) -> list[Lsn]:
        return sorted(lsn for held, lsn in self.copies if held == log and first <= lsn <= last)


def wants_even(header: bytes) -> bool:
    return parse_header(header, alone=True).lsn % 2 == 0


def part_of(image: bytes, wanted: Wants | None) -> bytes:
    """What a read returns of an entry."""
    if wanted is None or wanted(image) or len(image) < SETTINGS.blob_bytes_min:
        return image
    return image[: header_size(image)]


@st.composite
def model_copies(draw: st.DrawFn) -> ModelCopy:
    log, lsn = draw(LOGS), draw(POSITIONS)
    flags = draw(st.sampled_from([0, 0, 0, BY_RECOVERY, AMEND, AMEND | BY_RECOVERY, HOLE | BY_RECOVERY]))
    body = b"" if flags & HOLE else f"body of {lsn}".encode() * draw(st.sampled_from([1, 1, 1, 400]))
    return ModelCopy(log, lsn, body, draw(st.integers(1, 3)), flags)


class LogStoreMachine(RuleBasedStateMachine):
    """Drives one store. `states` are the states of the model since the last sync, that one first."""

    store: Any

    def __init__(self) -> None:
        super().__init__()
        self.states = [StoreModel()]
        self.now = 1000

    @property
    def model(self) -> StoreModel:
        return self.states[-1]

    def make(self) -> Any:
        """Open the store on what is there."""
        raise NotImplementedError

    def boot(self) -> str:
        return "boot 1"

    @initialize()
    def begin(self) -> None:
        self.open()

    def open(self) -> None:
        """Open, and hold what it says that it holds against the model."""
        self.now += 1000
        self.store = self.make()
        assert self.store.adopt(MARKER, boot=self.boot(), now=Timestamp(self.now)) is Status.OK
        contents = self.store.load()
        model = self.model
        assert {(log, kind): value for log, kind, value in contents.log_metadata} == model.log_metadata
        assert {
            (log, epoch, kind): value for log, epoch, kind, value in contents.epoch_metadata
        } == model.epoch_metadata
        highest: dict[LogId, Lsn] = {}
        for log, lsn in model.copies:
            highest[log] = max(highest.get(log, Lsn(0)), lsn)
        assert dict(contents.highest) == highest
        # `adopt` has synced
        self.states = [model]

    # Writing

    def write(self, *batches: WriteBatch) -> None:
        assert self.store.write(batches) == [Status.OK] * len(batches)

    @rule(
        copies=st.lists(model_copies(), max_size=4),
        deletes=st.lists(st.tuples(LOGS, RANGES), max_size=1),
        kept=st.lists(st.tuples(LOGS, st.sampled_from(LogMetadataKind), st.binary(max_size=9)), max_size=2),
        epochs=st.lists(
            st.tuples(LOGS, st.integers(1, 2), st.sampled_from(EpochMetadataKind), st.binary(max_size=9)), max_size=2
        ),
        forgotten=st.lists(st.tuples(LOGS, st.integers(1, 2), st.sampled_from(EpochMetadataKind)), max_size=1),
    )
    def change(self, copies: Any, deletes: Any, kept: Any, epochs: Any, forgotten: Any) -> None:
        batch, model = WriteBatch(), self.model.clone()
        for log, (first, last) in deletes:
            batch.delete_entries(log, first, last)
            model.delete(log, first, last)
        for log, epoch, kind in forgotten:
            batch.delete_epoch_metadata(log, Epoch(epoch), kind)
            model.epoch_metadata.pop((log, Epoch(epoch), kind), None)
        for copy in copies:
            by_recovery, wave = copy.rank
            batch.put_entry(copy.log, copy.lsn, by_recovery=by_recovery, wave=wave, image=copy.image(copy.flags))
            model.put(copy)
        for log, kind, value in kept:
            batch.put_log_metadata(log, kind, value)
            model.log_metadata[log, kind] = value
        for log, epoch, kind, value in epochs:
            batch.put_epoch_metadata(log, Epoch(epoch), kind, value)
            model.epoch_metadata[log, Epoch(epoch), kind] = value
        self.write(batch)
        self.states.append(model)

    @rule(copy=model_copies(), copyset=st.sampled_from([(768, 1), (768, 1, 2, 3)]))
    def give_another_header(self, copy: ModelCopy, copyset: tuple[int, ...]) -> None:
        assume(not copy.flags & AMEND)
        batch, model = WriteBatch(), self.model.clone()
        by_recovery, wave = copy.rank
        header = copy.moved(copyset).image(copy.flags)
        batch.put_header(copy.log, copy.lsn, by_recovery=by_recovery, wave=wave, header=header[: header_size(header)])
        held = model.copies.get((copy.log, copy.lsn), {}).get(copy.rank)
        if held is not None and (held.body, held.flags) == (copy.body, copy.flags):
            model.put(held.moved(copyset))
        self.write(batch)
        self.states.append(model)

    @rule(log=LOGS, lsn=POSITIONS)
    def consolidate(self, log: LogId, lsn: Lsn) -> None:
        batch, model = WriteBatch(), self.model.clone()
        batch.consolidate(log, lsn)
        model.consolidate(log, lsn)
        self.write(batch)
        self.states.append(model)

    @rule()
    def sync(self) -> None:
        assert self.store.sync() is Status.OK
        self.states = [self.model]

    # Reading

    @rule(
        log=LOGS,
        span=RANGES,
        bytes_max=st.sampled_from([1, 200, 1 << 20]),
        entries_max=st.integers(1, 4),
        wanted=st.sampled_from([None, None, no_body, wants_even]),
    )
    def read(self, log: LogId, span: list[Lsn], bytes_max: int, entries_max: int, wanted: Wants | None) -> None:
        first, last = span
        result: ReadResult = self.store.read(
            ReadShard(1, SHARD, log, first, last, bytes_max, entries_max, wants=wanted)
        )
        assert result.status is Status.OK
        assert result.corrupt == []
        reach = Lsn(min(result.through, last))
        found = {lsn: self.model.entry(log, lsn) for lsn in self.model.lsns(log, first, reach)}
        expected = [(lsn, each[1]) for lsn, each in found.items() if each is not None]
        assert result.entries == [(lsn, part_of(image, wanted)) for lsn, image in expected]
        assert result.bodiless == [lsn for lsn, each in found.items() if each is None]
        assert len(result.entries) <= entries_max
        assert len(result.entries) <= 1 or sum(len(image) for _, image in result.entries) <= bytes_max
        assert result.through >= last or result.entries

    @rule(log=LOGS, span=RANGES, skip_holes=st.booleans(), wanted=st.sampled_from([None, no_body]))
    def read_last(self, log: LogId, span: list[Lsn], skip_holes: bool, wanted: Wants | None) -> None:
        first, last = span
        result: ReadResult = self.store.read_last(ReadLast(1, SHARD, log, first, last, skip_holes, wanted))
        expected = []
        for lsn in reversed(self.model.lsns(log, first, last)):
            found = self.model.entry(log, lsn)
            if found is not None and not (skip_holes and found[0].flags & HOLE):
                expected = [(lsn, part_of(found[1], wanted))]
                break
        assert result.entries == expected

    @rule(log=LOGS, span=RANGES, timestamp=st.sampled_from(TIMESTAMPS))
    def find_time(self, log: LogId, span: list[Lsn], timestamp: int) -> None:
        first, last = span
        result = find_time(self.store, log, timestamp, first, last)
        lsns = [
            lsn
            for lsn in self.model.lsns(log, first, last)
            if (entry := self.model.entry(log, lsn)) is not None and not entry[0].flags & HOLE
        ]
        reached = [lsn for lsn in lsns if timestamp_of(lsn) >= timestamp]
        assert result.status is Status.OK
        assert result.reached == (reached[0] if reached else last + 1)
        assert result.before < result.reached
        assert all(lsn <= result.before for lsn in lsns if timestamp_of(lsn) < timestamp)

    # Partitions

    @rule(log=LOGS, last=POSITIONS, more=POSITIONS, passed=st.sampled_from([1, 4 * AGE, 4 * AGE]))
    def trim_and_go_on(self, log: LogId, last: Lsn, more: Lsn, passed: int) -> None:
        """What happens to a log all the time: its oldest part is trimmed, and something comes after it, perhaps in the next partition."""
        self.time_passes(passed)
        batch, model = WriteBatch(), self.model.clone()
        batch.delete_entries(log, Lsn(0), last)
        model.delete(log, Lsn(0), last)
        copy = ModelCopy(log, more, b"more", 1, 0)
        batch.put_entry(log, more, by_recovery=False, wave=1, image=copy.image(0))
        model.put(copy)
        self.write(batch)
        self.states.append(model)

    @rule(passed=st.sampled_from([1, AGE, 4 * AGE]))
    def time_passes(self, passed: int) -> None:
        self.now += passed
        self.store.maintain(Timestamp(self.now))
        assert self.store.partitions
        assert self.store.partitions == sorted(self.store.partitions)

    @rule()
    def partitions_tell_what_is_old(self) -> None:
        logs = {log for log, _ in self.model.copies if is_partitioned(log)}
        ends = self.store.partitions
        for end in ends:
            result = self.store.read_directory(ReadDirectory(1, SHARD, [(log, end) for log in logs]))
            assert [number for number, _ in result.partitions] == ends[:-1]
            youngest = dict(result.partitions).get(end)
            for log, highest in result.highest:
                for lsn in self.model.lsns(log, Lsn(0), highest):
                    assert youngest is None or timestamp_of(lsn) <= max(dict(result.partitions).values())
        everything = {log: max(lsn for each, lsn in self.model.copies if each == log) for log in logs}
        assert all(highest >= everything[log] for log, highest in result.highest)

    # Ends of runs

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.open()

    def teardown(self) -> None:
        if getattr(self, "store", None) is not None:
            self.store.close()


class MemoryStoreMachine(LogStoreMachine):
    """The store of the simulator, whose disk can lose what was not synced."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()

    def make(self) -> MemoryLogStore:
        return MemoryLogStore(self.disk, SETTINGS)

    def boot(self) -> str:
        return self.disk.boot

    @rule()
    def process_dies(self) -> None:
        self.open()

    @precondition(lambda self: len(self.states) > 1)
    @rule(data=st.data())
    def power_cut(self, data: st.DataObject) -> None:
        assert self.disk.unsynced == len(self.states) - 1
        surviving = data.draw(st.integers(0, self.disk.unsynced))
        self.disk.crash(surviving)
        self.states = [self.states[surviving]]
        self.open()


class RefusingDatabase:
    """RocksDB while it delays writes."""

    def write(self, *_: object) -> None:
        raise Exception("Result incomplete: Write stall")


class RocksStoreMachine(LogStoreMachine):
    """The store of production. What was written outlives the process, synced or not."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="log-store-"))

    def make(self) -> RocksLogStore:
        return RocksLogStore(str(self.directory / "shard"), SETTINGS)

    @rule()
    def process_dies(self) -> None:
        self.store.abandon()
        self.open()

    @rule()
    def sync_and_drop(self) -> None:
        self.sync()
        self.store._upkeep._drop_again_at = 0.0
        self.store.maintain(Timestamp(self.now))
        chore = self.store.next_chore()
        if chore is not None:
            chore()

    @rule(copies=st.lists(model_copies(), max_size=4), deletes=st.lists(st.tuples(LOGS, RANGES), max_size=2))
    def a_refused_batch_has_no_effect(self, copies: Any, deletes: Any) -> None:
        batch = WriteBatch()
        for log, (first, last) in deletes:
            batch.delete_entries(log, first, last)
        for copy in copies:
            by_recovery, wave = copy.rank
            batch.put_entry(copy.log, copy.lsn, by_recovery=by_recovery, wave=wave, image=copy.image(copy.flags))
        database = self.store._families.database
        self.store._families.database = RefusingDatabase()
        assert self.store.write([batch]) == [Status.OVERLOADED]
        self.store._families.database = database

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.directory)


TestMemoryStore = MemoryStoreMachine.TestCase
TestMemoryStore.settings = settings(max_examples=60, stateful_step_count=40)
TestRocksStore = RocksStoreMachine.TestCase
TestRocksStore.settings = settings(max_examples=15, stateful_step_count=30)
