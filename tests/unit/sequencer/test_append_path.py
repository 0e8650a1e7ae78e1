"""APPEND from arrival to entry: checks, batching, waiting, redirected appends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google_crc32c import value as crc32c

from logdevice_py.config.attributes import Durability
from logdevice_py.core.batch import encode_batch
from logdevice_py.core.compression import Compression
from logdevice_py.core.entry import ConstituentFlags, EntryFlags, check_body, encode_body, parse_header
from logdevice_py.core.ids import EVENT_LOG_DELTAS, LOG_ID_MAX, LogId, NodeId, PeerId, metadata_log_of
from logdevice_py.core.lsn import LSN_MAX, Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.machine import Outbox, Send
from logdevice_py.core.record_keys import encode_keys
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol.framing import encode_frame
from logdevice_py.protocol.messages import Appended, AppendedFlags, AppendFlags, Store, StoreFlags
from sequencer import append_path
from sequencer.batching import compression_of, is_batched, split
from sequencer.frames import Answers, Frame, SplitAppend
from sequencer.metrics import SequencerMetrics
from sequencer.recovery.result import EpochContents
from sequencer.settings import SequencerSettings
from tests.unit.sequencer.fakes import LOG, World, active, make_config

BATCH = int(AppendFlags.BATCH)
SYNC = int(AppendFlags.SYNC)
KEYS = int(AppendFlags.KEYS)


class TestChecks:
    @pytest.mark.parametrize(
        ("case", "status"),
        [
            ({"records": 0}, Status.INVALID_PARAM),
            ({"records": 65_537, "flags": BATCH}, Status.INVALID_PARAM),
            ({"records": 2}, Status.BADPAYLOAD),
            ({"crc": 1}, Status.BADPAYLOAD),
            ({"payload": b"x" * 1001}, Status.TOOBIG),
            ({"flags": int(AppendFlags.WRITE_STREAM)}, Status.INVALID_PARAM),
            ({"log": LogId(5000)}, Status.NOTFOUND),
            ({"log": metadata_log_of(LOG)}, Status.NOTFOUND),
            ({"log": LogId(0)}, Status.NOTFOUND),
        ],
    )
    def test_a_bad_frame_is_refused_and_not_applied(self, case: dict[str, object], status: Status) -> None:
        world = active(config=make_config(max_payload_bytes=1000))
        request = world.append(**case)  # type: ignore[arg-type]
        world.run()
        assert world.answer_to(request).status is status
        assert world.answer_to(request).flags & AppendedFlags.NOT_REPLICATED
        assert not world.stores


class TestBatchingOfATurn:
    def test_all_appends_of_a_turn_share_an_lsn(self) -> None:
        world = active()
        requests = [world.append(payload) for payload in (b"a", b"b", b"c")]
        world.run()
        answers = [world.answer_to(request) for request in requests]
        assert {answer.lsn for answer in answers} == {compose_lsn(1, 2)}
        assert [answer.batch_offset for answer in answers] == [0, 1, 2]
        header, parts = world.entries()[compose_lsn(1, 2)]
        assert header.records == 3
        assert [part.payload for part in parts] == [b"a", b"b", b"c"]

    @pytest.mark.parametrize("flags", [(KEYS, 0), (0, KEYS), (KEYS, KEYS), (0, 0)])
    def test_an_entry_has_keys_where_any_of_its_frames_has(self, flags: tuple[int, int]) -> None:
        world = active()
        for each in flags:
            world.append(encode_keys([b"key"]) + b"x" if each else b"x", flags=each)
        world.run()
        header, parts = world.entries()[compose_lsn(1, 2)]
        assert bool(header.flags & EntryFlags.KEYED) is any(flags)
        assert [bool(part.flags & ConstituentFlags.KEYS) for part in parts] == list(map(bool, flags))

    def test_offsets_count_declared_records_without_opening_payloads(self) -> None:
        world = active()
        junk = world.append(b"no batch at all", flags=BATCH, records=5)
        after = world.append(b"z")
        world.run()
        assert world.answer_to(junk).batch_offset == 0
        assert world.answer_to(after).batch_offset == 5

    def test_two_turns_make_two_entries(self) -> None:
        world = active()
        first = world.append()
        world.run()
        second = world.append()
        world.run()
        assert world.answer_to(second).lsn == world.answer_to(first).lsn + 1

    def test_a_large_frame_is_an_entry_of_its_own_after_the_open_batch(self) -> None:
        world = active()
        before = world.append(b"small")
        large = world.append(b"x" * 4096)
        after = world.append(b"small")
        world.run()
        lsns = [world.answer_to(request).lsn for request in (before, large, after)]
        assert lsns == [compose_lsn(1, 2), compose_lsn(1, 3), compose_lsn(1, 4)]

    def test_an_entry_is_cut_before_the_largest_payload(self) -> None:
        world = active(config=make_config(max_payload_bytes=5000))
        requests = [world.append(b"x" * 2000) for _ in range(3)]
        world.run()
        assert [world.answer_to(request).lsn & 0xFF for request in requests] == [2, 2, 3]

    def test_an_entry_is_cut_before_65536_records(self) -> None:
        world = active()
        payload = encode_batch([b""] * 40_000, Compression.ZSTD)
        requests = [world.append(payload, flags=BATCH, records=40_000) for _ in range(2)]
        world.run()
        assert [world.answer_to(request).batch_offset for request in requests] == [0, 0]
        assert world.answer_to(requests[1]).lsn == world.answer_to(requests[0]).lsn + 1

    def test_an_entry_is_synced_as_a_whole_when_one_of_its_frames_asks_for_it(self) -> None:
        world = active(config=make_config(durability=Durability.ASYNC))
        requests = [world.append(b"a"), world.append(b"b", flags=SYNC), world.append(b"c")]
        world.run()
        later = world.append(b"d")
        world.run()
        answers = [world.answer_to(request) for request in requests]
        assert len({answer.lsn for answer in answers}) == 1
        assert {answer.durability for answer in answers} == {Durability.SYNC}
        assert {store.flags for store in world.stores if store.lsn == answers[0].lsn} == {StoreFlags.SYNC}
        assert world.answer_to(later).durability == Durability.ASYNC
        _, parts = world.entries()[answers[0].lsn]
        assert {part.flags for part in parts} == {0}  # it is nothing that is stored

    def test_a_large_frame_that_asks_for_a_sync_does_not_ask_for_the_others(self) -> None:
        world = active(config=make_config(durability=Durability.ASYNC))
        before, large = world.append(b"small"), world.append(b"x" * 4096, flags=SYNC)
        world.run()
        assert world.answer_to(before).durability == Durability.ASYNC
        assert world.answer_to(large).durability == Durability.SYNC

    def test_flags_that_are_not_known_are_ignored(self) -> None:
        world = active()
        request = world.append(flags=1 << 31)
        world.run()
        assert world.answer_to(request).status is Status.OK

    def test_internal_logs_are_never_batched(self) -> None:
        attributes = make_config().log(LOG)
        assert attributes is not None
        assert is_batched(LOG, attributes)
        assert not is_batched(LOG_ID_MAX, attributes)

    @pytest.mark.parametrize(("records", "status"), [(1000, Status.OK), (1001, Status.TOOBIG)])
    def test_a_frame_to_an_internal_log_does_not_become_any_number_of_entries(
        self, records: int, status: Status
    ) -> None:
        """65,536 would have the node do nothing else for seconds."""
        world = World(replace(make_config(), settings={"rebuilding": {"enabled": True}}))
        request = world.append(encode_batch([b"x"] * records), flags=BATCH, records=records, log=EVENT_LOG_DELTAS)
        world.run(1_000_000)
        assert world.answer_to(request).status is status


class TestPacking:
    def test_entries_are_packed_with_the_checksums_of_clients_inside(self) -> None:
        world = active(config=make_config(batching_compression=Compression.ZSTD))
        payload = b"what compresses well, " * 50
        requests = [world.append(payload) for _ in range(3)]
        world.run()
        lsn = world.answer_to(requests[0]).lsn
        header, parts = world.entries()[lsn]
        assert [(part.payload, part.crc) for part in parts] == [(payload, crc32c(payload))] * 3
        assert header.body_length < len(payload)
        check_body(next(store.image for store in world.stores if store.lsn == lsn), header)
        assert [world.answer_to(request).batch_offset for request in requests] == [0, 1, 2]

    def test_nothing_is_packed_that_clients_packed_or_by_default(self) -> None:
        packed = encode_batch([b"x" * 500] * 10, Compression.LZ4)
        for compression, payload in ((Compression.ZSTD, packed), (Compression.NONE, encode_batch([b"x" * 500] * 10))):
            world = active(config=make_config(batching_compression=compression))
            request = world.append(payload, flags=BATCH, records=10)
            world.run()
            header, parts = world.entries()[world.answer_to(request).lsn]
            assert header.body_length == len(encode_body(parts)), compression

    def test_internal_logs_are_never_packed(self) -> None:
        attributes = make_config(batching_compression=Compression.ZSTD).log(LOG)
        assert attributes is not None
        assert compression_of(LOG, attributes) is Compression.ZSTD
        assert compression_of(LOG_ID_MAX, attributes) is Compression.NONE


class TestTimedBatching:
    def test_a_batch_stays_open_for_its_time(self) -> None:
        world = active(config=make_config(batching_time_us=10_000))
        first = world.append(b"a")
        world.run(5_000)
        second = world.append(b"b")
        world.run(4_000)
        assert not world.is_answered(first)
        world.run(2_000)
        assert world.answer_to(first).lsn == world.answer_to(second).lsn

    def test_its_size_closes_it_early(self) -> None:
        world = active(config=make_config(batching_time_us=10_000_000, batching_size_bytes=100))
        request = world.append(b"x" * 60)
        world.run()
        assert not world.is_answered(request)
        world.append(b"x" * 60)
        world.run()
        assert world.answer_to(request).status is Status.OK


class TestWithoutBatching:
    @pytest.mark.parametrize("batching", [True, False])
    def test_an_atomic_batch_is_one_entry(self, batching: bool) -> None:
        world = active(config=make_config(sequencer_batching=batching))
        payload = encode_batch([b"a", b"b", b"c"])
        request = world.append(payload, records=3, flags=BATCH | int(AppendFlags.ATOMIC))
        world.run()
        answer = world.answer_to(request)
        assert (answer.status, answer.split) == (Status.OK, [])
        assert [header.records for header, _ in world.entries().values()] == [3]

    def test_each_append_has_its_own_lsn(self) -> None:
        world = active(config=make_config(sequencer_batching=False))
        requests = [world.append(), world.append()]
        world.run()
        assert len({world.answer_to(request).lsn for request in requests}) == 2

    @pytest.mark.parametrize("records", [1, 2])
    def test_what_is_open_when_batching_ends_goes_first(self, records: int) -> None:
        world = active(config=make_config(batching_time_us=1_000_000))
        first = world.append(b"open")
        world.run()
        world.node.on_config(make_config(version=2, sequencer_batching=False), world.now)
        second = world.append(encode_batch([b"x"] * records), records=records, flags=BATCH)
        world.run(2_000_000)
        assert world.answer_to(first).lsn == compose_lsn(1, 2)
        assert world.answer_to(second).lsn == compose_lsn(1, 3)

    def test_each_record_of_a_batch_has_its_own_lsn_and_the_first_is_told(self) -> None:
        world = active(config=make_config(sequencer_batching=False))
        request = world.append(encode_batch([b"a", b"b", b"c"]), flags=BATCH, records=3)
        world.run()
        assert world.answer_to(request).lsn == compose_lsn(1, 2)
        entries = world.entries()
        assert [entries[compose_lsn(1, esn)][1][0].payload for esn in (2, 3, 4)] == [b"a", b"b", b"c"]

    def test_each_record_of_a_batch_that_asks_for_a_sync_is_synced(self) -> None:
        world = active(config=make_config(sequencer_batching=False, durability=Durability.ASYNC))
        request = world.append(encode_batch([b"a", b"b"]), flags=BATCH | SYNC, records=2)
        plain = world.append(b"c")
        world.run()
        assert [run[2] for run in world.answer_to(request).split] == [Durability.SYNC]
        assert {store.lsn & 0xFF for store in world.stores if store.flags & StoreFlags.SYNC} == {2, 3}
        assert world.answer_to(plain).durability == Durability.ASYNC

    def test_the_answer_to_a_batch_tells_where_each_record_is(self) -> None:
        world = active(config=make_config(sequencer_batching=False, sticky_copysets=False))

        def answer(store: Store) -> Status:
            """The second record needs a second wave, and is stored last."""
            refused = store.lsn == compose_lsn(1, 3) and store.wave == 1
            return Status.NOSPC if refused and store.shard == parse_header(store.image).copyset[0] else Status.OK

        world.answer = answer
        request = world.append(encode_batch([b"a", b"b", b"c"]), flags=BATCH, records=3)
        world.run(30_000)
        appended = world.answer_to(request)
        told = [
            (run.timestamp, run.durability, tuple(run.copyset)) for run in appended.split for _ in range(run.records)
        ]
        entries = world.entries()
        headers = [entries[compose_lsn(1, esn)][0] for esn in (2, 3, 4)]
        parts = [entries[compose_lsn(1, esn)][1] for esn in (2, 3, 4)]
        assert [[(part.records, part.payload) for part in each] for each in parts] == [
            [(1, b"a")],
            [(1, b"b")],
            [(1, b"c")],
        ]
        assert [each[2] for each in told] == [header.copyset for header in headers]
        assert told[0][2] != told[1][2]
        assert [each[0] for each in told] == [header.timestamp for header in headers]
        assert (appended.timestamp, tuple(appended.copyset)) == (told[0][0], told[0][2])

    def test_a_batch_of_which_the_last_record_is_stored_after_one_failed_may_be_applied(self) -> None:
        outbox = Outbox()
        answers = Answers(outbox, SequencerMetrics())
        payload = encode_batch([b"a", b"b"])
        first, last = split(Frame(payload, 2, crc32c(payload), 0, peer=PeerId(-1), request_id=9))
        assert first.split is not None
        first.split.lsn = compose_lsn(1, 2)
        answers.fail(first, LOG, Status.PREEMPTED, lsn=compose_lsn(1, 2), not_replicated=True)
        assert not outbox.take()
        answers.acknowledge(last, LOG, compose_lsn(1, 3), Timestamp(5), int(Durability.SYNC), [0, 256])
        (answer,) = (effect.message for effect in outbox.take() if isinstance(effect, Send))
        assert (answer.request_id, answer.status, answer.lsn) == (9, Status.ABORTED, compose_lsn(1, 2))
        assert not answer.flags & AppendedFlags.NOT_REPLICATED

    def test_records_with_the_same_copyset_are_told_together(self) -> None:
        world = active(config=make_config(sequencer_batching=False, max_writes_in_flight=100))
        world.answer = lambda store: Status.OK
        request = world.append(encode_batch([b"r"] * 50), flags=BATCH, records=50)
        world.run()
        ((count, _, _, copyset),) = world.answer_to(request).split
        assert (count, copyset) == (50, world.answer_to(request).copyset)

    def test_a_batch_for_which_the_window_has_no_room_is_not_taken_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = active(config=make_config(sequencer_batching=False, max_writes_in_flight=10))
        world.answer = lambda store: None
        world.append(b"first")
        world.run()
        monkeypatch.setattr(append_path, "split", lambda frame: pytest.fail("it is taken apart"))
        request = world.append(encode_batch([b"r"] * 50), flags=BATCH, records=50)
        world.run()
        assert world.answer_to(request).status is Status.SEQNOBUFS

    def test_a_batch_with_batching_shares_one_lsn(self) -> None:
        world = active()
        request = world.append(encode_batch([b"a", b"b"]), flags=BATCH, records=2)
        world.run()
        assert world.answer_to(request).split == []

    def test_an_answer_about_thousands_of_entries_fits_a_frame_and_counts_all(self) -> None:
        group = SplitAppend(5000)
        group.lsn = compose_lsn(1, 2)
        for index in range(5000):
            lsn = Lsn(group.lsn + index)
            group.stored(lsn, Timestamp(2**62), 1, [(2**23 - 1) - index, 2**23 - 1, 2**23 - 2])
        runs = group.runs()
        assert sum(run[0] for run in runs) == 5000
        assert runs[-1][1:] == (0, int(Durability.ASYNC), [])
        _, _, _, copyset = runs[0]
        encode_frame(
            Appended(
                request_id=2**64 - 1,
                log=LogId(2**63 - 1),
                status=Status.OK,
                flags=0,
                lsn=LSN_MAX,
                batch_offset=0,
                timestamp=Timestamp(2**62),
                redirect=NodeId(-1),
                durability=1,
                copyset=copyset,
                split=runs,
            )
        )

    def test_a_batch_is_answered_after_its_last_record(self) -> None:
        world = active(config=make_config(sequencer_batching=False))
        world.answer = lambda store: None
        request = world.append(encode_batch([b"a", b"b"]), flags=BATCH, records=2)
        world.run()
        held, world.held_stores = world.held_stores, []
        for store in held:
            if store.lsn == compose_lsn(1, 2):
                world.reply(store)
        world.run()
        assert not world.is_answered(request)
        for store in held:
            if store.lsn == compose_lsn(1, 3):
                world.reply(store)
        world.run()
        assert world.answer_to(request).status is Status.OK

    def test_a_batch_that_cannot_be_opened_is_refused(self) -> None:
        world = active(config=make_config(sequencer_batching=False))
        request = world.append(b"junk", flags=BATCH, records=2)
        world.run()
        assert world.answer_to(request).status is Status.BADPAYLOAD

    def test_a_batch_larger_than_the_window_goes_alone(self) -> None:
        world = active(config=make_config(sequencer_batching=False, max_writes_in_flight=2))
        request = world.append(encode_batch([b"r"] * 5), flags=BATCH, records=5)
        world.run()
        assert world.answer_to(request).status is Status.OK

    def test_a_batch_of_which_only_a_part_was_stored_is_not_taken_for_its_first_record(self) -> None:
        world = active(config=make_config(sequencer_batching=False))
        world.answer = lambda store: Status.OK if store.lsn == compose_lsn(1, 2) else Status.PREEMPTED
        world.seal_epoch, world.seal_node = 1, 2
        request = world.append(encode_batch([b"a", b"b"]), flags=BATCH, records=2)
        world.run()
        answer = world.answer_to(request)
        # Whoever recovers the epoch would find the first record and answer for both.
        assert answer.status is Status.ABORTED
        assert not answer.flags & AppendedFlags.NOT_REPLICATED

    def test_a_batch_that_does_not_fit_any_more_is_refused_whole(self) -> None:
        world = active(config=make_config(sequencer_batching=False, max_writes_in_flight=4))
        world.answer = lambda store: None
        world.append()
        request = world.append(encode_batch([b"r"] * 4), flags=BATCH, records=4)
        world.run()
        assert world.answer_to(request).status is Status.SEQNOBUFS
        assert world.answer_to(request).flags & AppendedFlags.NOT_REPLICATED
        assert len({store.lsn for store in world.stores}) == 1


class TestTimestamps:
    def test_a_clock_that_is_set_back_does_not_make_timestamps_go_back(self) -> None:
        world = active()
        before = world.wall
        world.wall -= 1_000_000_000
        request = world.append()
        world.run()
        assert world.answer_to(request).timestamp == before


class TestStaleSequencer:
    def test_a_client_that_saw_a_later_epoch_makes_it_reactivate(self) -> None:
        world = active()
        world.store.take_over(LOG, NodeId(0))
        request = world.append(seen_epoch=2)
        world.run()
        assert world.answer_to(request).lsn == compose_lsn(3, 1)

    def test_an_epoch_that_was_never_given_is_refused_after_one_activation(self) -> None:
        world = active()
        request = world.append(seen_epoch=1000)
        world.run(1_000_000)
        answer = world.answer_to(request)
        assert (answer.status, answer.lsn) == (Status.STALE, compose_lsn(2, 0))
        assert world.sequencer.epoch == 2

    def test_appends_behind_a_waiting_one_wait_too(self) -> None:
        world = active()
        world.store.silent = True
        first = world.append(b"1", seen_epoch=2)
        second = world.append(b"2")
        world.run()
        assert not world.is_answered(second)
        world.store.silent = False
        assert world.store.held
        for held in world.store.held:
            result = world.store.run(held.operation)
            assert result is not None
            world.node.on_epoch_store(held.token, result, world.now)
        world.run()
        assert world.answer_to(first).status is Status.STALE or world.answer_to(first).status is Status.OK
        assert world.answer_to(second).lsn >> 32 == 2

    def test_appends_of_others_do_not_wait_behind_one_that_says_it_saw_a_later_epoch(self) -> None:
        world = active()
        world.store.silent = True
        claims = world.append(b"1", seen_epoch=1000, peer=PeerId(-66))
        other = world.append(b"2")
        world.run()
        assert not world.is_answered(claims)
        assert world.answer_to(other).lsn >> 32 == 1


class TestBuffers:
    def test_the_buffer_of_a_log_without_an_epoch_is_bounded(self) -> None:
        world = World(settings=SequencerSettings(append_buffer_frames=2))
        world.store.silent = True
        requests = [world.append() for _ in range(3)]
        world.run()
        assert world.answer_to(requests[2]).status is Status.SEQNOBUFS
        assert not world.is_answered(requests[0])

    def test_so_are_the_bytes_of_all_buffers(self) -> None:
        world = World(settings=SequencerSettings(append_buffer_bytes=100))
        world.store.silent = True
        world.append(b"x" * 60)
        refused = world.append(b"x" * 60, log=LogId(2))
        world.run(20_000_000)
        assert world.answer_to(refused).status is Status.SEQNOBUFS
        assert world.node.metrics.bytes_buffered == 0


class TestAppendsThatMayHaveAnLsn:
    def recovering(self) -> World:
        world = active()
        world.recoveries.held = True
        world.sequencer.activate(world.now)
        world.run()
        return world

    def finish(self, world: World, *, authoritative: bool = True, lost: frozenset[Esn] = frozenset()) -> None:
        epoch = EpochContents(Epoch(1), Esn(3), (Esn(5),), lost, Esn(5), authoritative)
        world.recoveries.finish(LOG, world.now, epochs=(epoch,))
        world.run()

    def test_it_is_held_until_recovery_is_done(self) -> None:
        world = self.recovering()
        request = world.append(previous_lsn=compose_lsn(1, 5))
        world.run(1_000_000)
        assert not world.is_answered(request)
        self.finish(world)
        assert world.is_answered(request)

    @pytest.mark.parametrize("flags", [0, SYNC])
    def test_an_answer_for_an_earlier_position_promises_no_sync_that_the_log_does_not_ask_for(self, flags: int) -> None:
        world = active(config=make_config(durability=Durability.ASYNC))
        request = world.append(previous_lsn=compose_lsn(1, 1), flags=flags)
        world.run()
        assert (world.answer_to(request).status, world.answer_to(request).durability) == (Status.OK, Durability.ASYNC)

    def test_a_position_of_the_next_epoch_has_the_log_go_on_behind_it(self) -> None:
        world = active()
        request = world.append(previous_lsn=compose_lsn(2, 1))
        world.run(1_000_000)
        assert world.sequencer.epoch == 2
        assert world.is_answered(request)

    @pytest.mark.parametrize("esn", [2, 3, 5])
    def test_an_entry_that_was_recovered_is_answered_with_its_lsn(self, esn: int) -> None:
        world = self.recovering()
        request = world.append(previous_lsn=compose_lsn(1, esn))
        self.finish(world)
        assert (world.answer_to(request).status, world.answer_to(request).lsn) == (Status.OK, compose_lsn(1, esn))
        assert not world.stores

    @pytest.mark.parametrize("esn", [4, 6, 100])
    def test_a_hole_means_that_it_is_appended(self, esn: int) -> None:
        world = self.recovering()
        request = world.append(previous_lsn=compose_lsn(1, esn))
        self.finish(world)
        assert (world.answer_to(request).status, world.answer_to(request).lsn) == (Status.OK, compose_lsn(2, 1))

    def test_what_is_appended_again_is_synced_if_it_asks_for_it(self) -> None:
        world = active(config=make_config(durability=Durability.ASYNC))
        world.recoveries.held = True
        world.sequencer.activate(world.now)
        world.run()
        request = world.append(previous_lsn=compose_lsn(1, 4), flags=SYNC)
        self.finish(world)
        assert world.answer_to(request).durability == Durability.SYNC
        assert {store.flags for store in world.stores} == {StoreFlags.SYNC}

    def test_without_authority_nothing_is_certain(self) -> None:
        world = self.recovering()
        request = world.append(previous_lsn=compose_lsn(1, 4))
        self.finish(world, authoritative=False)
        answer = world.answer_to(request)
        assert answer.status is Status.ABORTED
        assert not answer.flags & AppendedFlags.NOT_REPLICATED

    def test_neither_is_it_for_an_epoch_that_was_recovered_long_ago(self) -> None:
        world = active()
        for _ in range(2):
            world.sequencer.activate(world.now)
            world.run(2_000_000)
        request = world.append(previous_lsn=compose_lsn(1, 4))
        world.run()
        assert world.answer_to(request).status is Status.ABORTED

    def test_a_full_hold_buffer_refuses_it(self) -> None:
        world = active(settings=SequencerSettings(append_buffer_frames=1))
        world.recoveries.held = True
        world.sequencer.activate(world.now)
        world.run()
        world.append(previous_lsn=compose_lsn(1, 5))
        request = world.append(previous_lsn=compose_lsn(1, 5))
        world.run()
        assert world.answer_to(request).status is Status.SEQNOBUFS
        assert not world.stores

    def test_it_shares_its_lsn_with_nobody(self) -> None:
        world = self.recovering()
        self.finish(world)
        plain = world.append(b"plain")
        redirected = world.append(b"again", previous_lsn=compose_lsn(1, 4))
        another = world.append(b"plain")
        world.run()
        lsns = [world.answer_to(request).lsn for request in (plain, redirected, another)]
        assert len(set(lsns)) == 3

    def test_held_and_waiting_frames_need_one_epoch_between_them(self) -> None:
        world = self.recovering()
        held = world.append(previous_lsn=compose_lsn(1, 5))
        waiting = world.append(seen_epoch=3)
        world.run()
        assert world.sequencer.epoch == 3, "the frame that was held must not ask for yet another epoch"
        assert world.answer_to(waiting).lsn == compose_lsn(3, 1)
        self.finish(world)
        assert world.answer_to(held).lsn == compose_lsn(1, 5)

    def test_held_frames_are_resolved_in_a_later_epoch_if_there_is_one_before_recovery_ends(self) -> None:
        world = self.recovering()
        request = world.append(previous_lsn=compose_lsn(1, 5))
        world.sequencer.activate(world.now)
        world.run()
        assert not world.is_answered(request)
        self.finish(world)
        assert world.answer_to(request).status is Status.OK


class TestWriteStreams:
    def test_frames_in_sequence_are_taken(self) -> None:
        world = active()
        requests = [world.stream_append(1, resume=True), world.stream_append(2), world.stream_append(3)]
        world.run()
        assert [world.answer_to(request).batch_offset for request in requests] == [0, 1, 2]
        header, parts = world.entries()[compose_lsn(1, 2)]
        assert header.flags & EntryFlags.WRITE_STREAM
        assert [(part.writer, part.sequence) for part in parts] == [(b"w" * 16, number) for number in (1, 2, 3)]

    def test_a_frame_may_ask_for_a_sync_and_its_repetition_is_answered_like_it(self) -> None:
        world = active(config=make_config(durability=Durability.ASYNC))
        asking = world.stream_append(1, resume=True, synced=True)
        world.run()
        plain = world.stream_append(2)
        world.run()
        again = [world.stream_append(1, synced=True), world.stream_append(2, synced=True)]
        world.run()
        told = [world.answer_to(request).durability for request in (asking, plain, *again)]
        assert told == [Durability.SYNC, Durability.ASYNC] * 2

    @pytest.mark.parametrize(("epoch", "status"), [(0, Status.STALE), (2, Status.STALE), (1, Status.OK)])
    def test_only_frames_for_this_very_epoch_are_taken(self, epoch: int, status: Status) -> None:
        world = active()
        request = world.stream_append(1, epoch=epoch, resume=True)
        world.run()
        assert world.answer_to(request).status is status
        if status is Status.STALE:
            assert world.answer_to(request).lsn == compose_lsn(1, 0)

    def test_an_unknown_writer_must_resume(self) -> None:
        world = active()
        refused = world.stream_append(7)
        taken = world.stream_append(7, resume=True)
        world.run()
        assert world.answer_to(refused).status is Status.WRITE_STREAM_UNKNOWN
        assert world.answer_to(taken).status is Status.OK

    def test_a_gap_breaks_the_stream(self) -> None:
        world = active()
        world.stream_append(1, resume=True)
        request = world.stream_append(3)
        resumed = world.stream_append(5, resume=True)
        world.run()
        assert world.answer_to(request).status is Status.WRITE_STREAM_BROKEN
        assert world.answer_to(resumed).status is Status.WRITE_STREAM_BROKEN

    def test_an_exclusive_stream_is_resumed_by_one_process_in_an_epoch(self) -> None:
        world = active()
        first = world.stream_append(100, exclusive=True)
        for other in (100, 101, 900):
            refused = world.stream_append(other, exclusive=True)
            world.run()
            assert world.answer_to(refused).status is Status.WRITE_STREAM_BROKEN
            assert world.answer_to(refused).lsn == compose_lsn(1, 0)
        goes_on = world.stream_append(101)
        world.run()
        assert world.answer_to(first).status is world.answer_to(goes_on).status is Status.OK
        assert sum(len(parts) for _, parts in world.entries().values()) == 2

    def test_an_epoch_that_forgot_writers_lets_nobody_have_a_stream_alone(self) -> None:
        world = active(settings=SequencerSettings(write_streams_per_log=2))
        for number in range(3):
            world.stream_append(1, resume=True, writer=bytes([number]) * 16)
        unsure = world.stream_append(1, exclusive=True, writer=b"\0" * 16)
        shared = world.stream_append(1, resume=True, writer=b"v" * 16)
        world.run()
        assert world.answer_to(unsure).status is Status.WRITE_STREAM_UNKNOWN
        assert world.answer_to(shared).status is Status.OK

    def test_a_repeated_number_gets_its_first_position_and_is_stored_once(self) -> None:
        world = active()
        first = world.stream_append(1, resume=True)
        world.run()
        again = world.stream_append(1)
        world.run()
        assert world.answer_to(again).lsn == world.answer_to(first).lsn
        assert len({store.lsn for store in world.stores}) == 1

    def test_a_number_repeated_in_flight_is_answered_with_the_first(self) -> None:
        world = active()
        world.answer = lambda store: None
        first = world.stream_append(1, resume=True)
        world.run()
        again = world.stream_append(1, resume=True)
        world.run()
        assert not world.is_answered(again)
        world.reply_to_held()
        assert world.answer_to(again).lsn == world.answer_to(first).lsn

    def test_one_connection_is_answered_its_last_repetition_of_a_frame_in_flight_however_many_it_sends(self) -> None:
        world = active()
        world.answer = lambda store: None
        first = world.stream_append(1, resume=True)
        world.run()
        again = [world.stream_append(1) for _ in range(100)]
        world.run()
        world.reply_to_held()
        assert {answer.request_id for answer in world.answered} == {first, again[-1]}

    def test_stream_frames_share_an_entry_only_with_their_kind(self) -> None:
        world = active()
        plain = world.append(b"p")
        stream = world.stream_append(1, resume=True)
        other = world.stream_append(1, resume=True, writer=b"v" * 16)
        more = world.append(b"q")
        world.run()
        lsns = [world.answer_to(request).lsn & 0xFF for request in (plain, stream, other, more)]
        assert lsns == [2, 3, 3, 4]

    def test_frames_are_acknowledged_in_order_of_lsn(self) -> None:
        world = active()
        world.answer = lambda store: None
        first = world.stream_append(1, resume=True)
        world.run()
        held, world.held_stores = world.held_stores, []
        world.answer = lambda store: Status.OK
        second = world.stream_append(2)
        world.run()
        assert not world.is_answered(second)
        for store in held:
            world.reply(store)
        world.run()
        assert world.answer_to(first).status is Status.OK
        assert world.answer_to(second).status is Status.OK

    def test_nothing_after_a_failed_entry_is_acknowledged(self) -> None:
        world = active()
        world.answer = lambda store: None
        plain = world.append(b"doomed")
        world.run()
        held, world.held_stores = world.held_stores, []
        world.answer = lambda store: Status.OK
        frame = world.stream_append(1, resume=True)
        world.run()
        world.seal_epoch, world.seal_node = 1, 2
        for store in held:
            world.reply(store, Status.PREEMPTED)
        world.run()
        assert world.answer_to(plain).status is Status.PREEMPTED
        assert world.answer_to(frame).status is Status.PREEMPTED
        assert not world.answer_to(frame).flags & AppendedFlags.NOT_REPLICATED

    def test_a_frame_that_got_no_lsn_can_come_again(self) -> None:
        world = active(config=make_config(max_writes_in_flight=2))
        world.answer = lambda store: None
        for _ in range(2):
            world.append()
            world.run()
        refused = [world.stream_append(1, resume=True), world.stream_append(2)]
        world.run()
        assert [world.answer_to(request).status for request in refused] == [Status.SEQNOBUFS] * 2
        world.answer = lambda store: Status.OK
        world.reply_to_held()
        late = world.stream_append(2)
        again = world.stream_append(1, resume=True)
        world.run()
        assert world.answer_to(late).status is Status.WRITE_STREAM_UNKNOWN
        assert world.answer_to(again).status is Status.OK

    def test_a_frame_behind_a_batch_that_gets_no_lsn_is_refused_with_it(self) -> None:
        world = active(config=make_config(max_writes_in_flight=2))
        world.answer = lambda store: None
        for _ in range(2):
            world.append()
            world.run()
        batched = world.stream_append(1, resume=True)
        alone = world.stream_append(2, payload=b"s" * 4096)
        world.run()
        assert world.answer_to(batched).status is Status.SEQNOBUFS
        assert world.answer_to(alone).status is Status.WRITE_STREAM_UNKNOWN

    def test_the_longest_silent_writers_are_forgotten_when_there_are_too_many(self) -> None:
        world = active(settings=SequencerSettings(write_streams_per_log=10))
        writers = [bytes([number]) * 16 for number in range(11)]
        for writer in writers:
            world.stream_append(1, resume=True, writer=writer)
            world.run()
        known, forgotten = world.stream_append(2, writer=writers[1]), world.stream_append(2, writer=writers[0])
        world.run()
        assert world.answer_to(known).status is Status.OK
        assert world.answer_to(forgotten).status is Status.WRITE_STREAM_UNKNOWN

    def test_a_number_older_than_what_is_remembered_is_not_taken_again(self) -> None:
        world = active(settings=SequencerSettings(write_stream_positions=2))
        for number in range(1, 6):
            world.stream_append(number, resume=number == 1)
        world.run()
        request = world.stream_append(1)
        world.run()
        assert world.answer_to(request).status is Status.WRITE_STREAM_BROKEN
