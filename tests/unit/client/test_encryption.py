"""Encryption by the client: keys, files of keys, sealed batches, and what readers are told that have other keys."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google_crc32c import value as crc32c

from client.cli import cat, tail, write
from client.cli.encryption_keys import keys_of
from client.encryption import EncryptionKeys, environment_keys
from client.read.decoding import entry_records
from client.read.metrics import ReadMetrics
from client.read.read_buffer import Buffered
from client.read.ready_queue import ReadyQueue
from client.read.sender_state import Sender
from client.settings import WriterSettings
from client.write.batching import OpenBatch
from logdevice_py.core.batch import encode_batch
from logdevice_py.core.entry import Constituent, ConstituentFlags, EntryHeader, encode_body, encode_entry
from logdevice_py.core.ids import Generation, LogId, NodeId, WriterId, shard_id
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.core.sealed_batch import (
    KEY_NAME_MAX,
    NONCE_SIZE,
    PLACED_OVERHEAD,
    PROOF_SIZE,
    SEALED,
    SEALED_OVERHEAD,
    BatchPlace,
    decode_sealed,
    encode_sealed,
    is_sealed,
)
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.messages import AppendedFlags
from tests.unit.client.fakes import LOG, FakePromise, cluster
from tests.unit.client.write.test_write_streams import WritingClient

KEY, OTHER = bytes(range(32)), bytes(32)
KEYS = EncryptionKeys({"k1": OTHER, "k2": KEY}, write_with="k2")
RECORDS = [b"secret one", b"", b"secret three"]


def sealed(log: int = 7, records: list[bytes] | None = None, keys: EncryptionKeys = KEYS) -> bytes:
    own = RECORDS if records is None else records
    return keys.writing()(LogId(log))(encode_batch(own), len(own))


def entry(payload: bytes, records: int, log: int = 7, esn: int = 1) -> tuple[EntryHeader, bytes]:
    return entry_of([Constituent(payload, records, crc32c(payload), int(ConstituentFlags.BATCH))], log, esn)


def entry_of(parts: list[Constituent], log: int = 7, esn: int = 1) -> tuple[EntryHeader, bytes]:
    body, records = encode_body(parts), sum(part.records for part in parts)
    header = EntryHeader(LogId(log), compose_lsn(1, esn), Timestamp(1), 1, (0,), 0, records, 0, len(body), crc32c(body))
    return header, encode_entry(header, body)


class TestBatches:
    def test_what_was_sealed_is_opened_and_is_nowhere_in_clear(self) -> None:
        payload = sealed()
        assert is_sealed(payload)
        assert b"secret" not in payload
        assert len(payload) <= len(encode_batch(RECORDS)) + SEALED_OVERHEAD
        assert entry_records(*entry(payload, 3), KEYS.reading()) == RECORDS

    def test_equal_records_are_sealed_differently(self) -> None:
        assert sealed() != sealed()

    def test_a_reader_without_keys_is_told_which_one_it_lacks(self) -> None:
        with pytest.raises(LogDeviceError, match="encrypted by key 'k2': give the reader its keys") as caught:
            entry_records(*entry(sealed(), 3))
        assert caught.value.status is Status.NOKEY
        assert not caught.value.retriable

    def test_a_reader_with_other_keys_is_told_which_one_it_lacks(self) -> None:
        with pytest.raises(LogDeviceError, match="by key 'k2', which is not among those given") as caught:
            entry_records(*entry(sealed(), 3), EncryptionKeys({"k1": KEY}).reading())
        assert caught.value.status is Status.NOKEY

    @pytest.mark.parametrize("what", ["wrong key", "other log", "other count", "changed"])
    def test_what_is_not_as_it_was_written_is_not_opened(self, what: str) -> None:
        payload, log, count, keys = sealed(), 7, 3, KEYS
        if what == "wrong key":
            keys = EncryptionKeys({"k2": OTHER})
        elif what == "other log":
            log = 8
        elif what == "other count":
            count = 2
        else:
            payload = payload[:-1] + bytes([payload[-1] ^ 1])
        with pytest.raises(LogDeviceError, match="the key 'k2' does not open") as caught:
            entry_records(*entry(payload, count, log), keys.reading())
        assert caught.value.status is Status.NOKEY

    def test_what_is_cut_off_is_damaged(self) -> None:
        for length in (1, 6, 10, 20):
            assert entry_records(*entry(sealed()[:length], 3), KEYS.reading()) == [None] * 3

    def test_records_in_clear_are_read_as_ever(self) -> None:
        assert entry_records(*entry(encode_batch(RECORDS), 3), KEYS.reading()) == RECORDS


SEALED_BY_VERSION_1 = bytes.fromhex(
    "1000000010026b31000102030405060708090a0b4702d61bce770618e22ff24fb29d0f028f7bf7844ca3a379104e1adf8f6e8614"
)
"""[one, two] of log 7, by the key 0, 1, 2 ... 31, called k1."""


def frames_of(records: list[bytes], keys: EncryptionKeys = KEYS, log: int = 7) -> list[Constituent]:
    """Frames of a write stream, one a record, numbered from 1 on."""
    seal, flags = keys.writing_streams()(LogId(log)), int(ConstituentFlags.BATCH | ConstituentFlags.WRITE_STREAM)
    payloads = [seal(encode_batch([record]), 1) for record in records]
    return [
        Constituent(payload, 1, crc32c(payload), flags, WriterId(b"w" * 16), number)
        for number, payload in enumerate(payloads, 1)
    ]


class Reading:
    """A reader of log 7 with the keys, which has read nothing yet."""

    def __init__(self, keys: EncryptionKeys = KEYS) -> None:
        self.open_sealed = keys.reading()

    def read(self, esn: int, *parts: Constituent, log: int = 7) -> list[bytes | None]:
        return entry_records(*entry_of(list(parts), log, esn), self.open_sealed)

    def is_refused(self, esn: int, *parts: Constituent, status: Status = Status.MISPLACED, log: int = 7) -> str:
        with pytest.raises(LogDeviceError) as caught:
            self.read(esn, *parts, log=log)
        assert caught.value.status is status
        assert not caught.value.retriable
        return caught.value.detail


class TestPlaces:
    def test_frames_in_order_are_read_also_when_some_failed_and_others_wrote_between_them(self) -> None:
        reading, mine, other = Reading(), frames_of([b"1", b"2", b"3", b"4"]), frames_of([b"a", b"b"])
        assert reading.read(1, mine[0], other[0]) == [b"1", b"a"]
        assert reading.read(5, mine[2]) == [b"3"]
        assert reading.read(6, other[1], mine[3]) == [b"b", b"4"]

    def test_an_entry_may_be_unpacked_again(self) -> None:
        reading, mine = Reading(), frames_of([b"1", b"2", b"3"])
        for _ in range(2):
            assert reading.read(1, *mine[:2]) == [b"1", b"2"]
        assert reading.read(2, mine[2]) == [b"3"]

    def test_two_frames_that_a_node_swapped_are_refused(self) -> None:
        reading, (first, second) = Reading(), frames_of([b"1", b"2"])
        assert reading.read(1, second) == [b"2"], (
            "the first may have failed, and this reader may have begun in the middle"
        )
        text = reading.is_refused(2, first)
        assert "log 7: the encrypted batch at e1n2 is number 1 of its writer, and number 2 is at e1n1" in text
        Reading().is_refused(1, second, first)

    def test_payloads_that_a_node_swapped_are_refused(self) -> None:
        reading, (first, second) = Reading(), frames_of([b"1", b"2"])
        for frame, payload in ((first, second.payload), (second, first.payload)):
            frame.payload, frame.crc = payload, crc32c(payload)
        assert reading.read(1, first) == [b"2"]
        reading.is_refused(2, second)

    @pytest.mark.parametrize("number", [1, 3, 9])
    def test_a_frame_that_a_node_repeated_is_refused_under_any_number(self, number: int) -> None:
        reading, (first, second) = Reading(), frames_of([b"1", b"2"])
        assert [reading.read(esn, each) for esn, each in enumerate((first, second), 1)] == [[b"1"], [b"2"]]
        repeated = Constituent(first.payload, 1, first.crc, first.flags, WriterId(b"v" * 16), number)
        for _ in range(2):
            reading.is_refused(3, repeated)
        reading.is_refused(4, second)
        Reading().is_refused(1, first, repeated)

    def test_a_reader_that_begins_behind_has_nothing_to_compare(self) -> None:
        first, _ = frames_of([b"1", b"2"])
        assert Reading().read(3, first) == [b"1"]

    def test_what_a_node_kept_of_a_frame_that_it_refused_is_refused_beside_what_came_again(self) -> None:
        w = WritingClient()
        settings = WriterSettings(time_trigger_us=0, size_trigger_bytes=1)
        w.writer = w.bench.session.writer(settings, w, KEYS.writing_streams())
        w.append(b"1"), w.append(b"2")
        one, two = w.located()
        w.answer(one, Status.TOOBIG, flags=int(AppendedFlags.NOT_REPLICATED))
        w.answer(two, Status.WRITE_STREAM_BROKEN, flags=int(AppendedFlags.NOT_REPLICATED))
        (again,) = w.frames()
        assert (two.sequence, again.sequence, again.payload) == (2, 1, two.payload), "numbers close up"
        parts = [
            Constituent(
                each.payload,
                1,
                each.crc,
                int(ConstituentFlags.BATCH | ConstituentFlags.WRITE_STREAM),
                each.writer,
                each.sequence,
            )
            for each in (again, two)
        ]
        reading = Reading()
        assert reading.read(1, parts[0], log=LOG) == [b"2"]
        reading.is_refused(2, parts[1], log=LOG)

    @pytest.mark.parametrize("what", ["stream", "number", "no place", "log", "a place"])
    def test_a_batch_with_another_place_is_not_opened(self, what: str) -> None:
        (frame,) = frames_of([b"1"])
        batch, log = decode_sealed(frame.payload), 7
        place = batch.place
        assert place is not None
        if what == "stream":
            batch = replace(batch, place=place._replace(stream=bytes(16)))
        elif what == "number":
            batch = replace(batch, place=place._replace(number=2))
        elif what == "no place":
            batch = replace(batch, place=None)
        elif what == "log":
            log = 8
        else:
            batch = replace(decode_sealed(sealed(records=[b"1"])), place=BatchPlace(bytes(16), 1))
        payload = encode_sealed(batch, 4)
        changed = Constituent(payload, 1, crc32c(payload), frame.flags, frame.writer, frame.sequence)
        text = Reading().is_refused(1, changed, status=Status.NOKEY, log=log)
        assert "the key 'k2' does not open" in text

    def test_what_is_cut_off_is_damaged(self) -> None:
        (frame,) = frames_of([b"1"])
        for length in (*range(1, 60), len(frame.payload) - len(encode_batch([b"1"])) - 1):
            assert entry_records(*entry(frame.payload[:length], 1), KEYS.reading()) == [None]

    def test_it_fits_into_what_is_left_for_it(self) -> None:
        name = "k" * KEY_NAME_MAX
        (frame,) = frames_of([b"1"], EncryptionKeys({name: KEY}, write_with=name))
        assert len(frame.payload) == len(encode_batch([b"1"])) + PLACED_OVERHEAD

    def test_streams_that_were_silent_for_longest_are_forgotten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("client.encryption._STREAMS_MAX", 2)
        reading, streams = Reading(), [frames_of([b"1", b"2"]) for _ in range(3)]
        reading.read(1, streams[0][0])
        reading.read(2, streams[1][0])
        reading.read(3, streams[0][1])
        reading.read(4, streams[2][0])
        assert reading.read(5, streams[1][0]) == [b"1"], "nothing is known of it"
        for part in (streams[2][0], streams[1][0]):
            reading.is_refused(6, part)
        # Of the first stream nothing is known either by now.
        assert reading.read(7, streams[0][0]) == [b"1"]

    def test_direct_appends_have_no_place_and_may_come_twice(self) -> None:
        payload = sealed(records=[b"1"])
        assert decode_sealed(payload).place is None
        reading = Reading()
        part = Constituent(payload, 1, crc32c(payload), int(ConstituentFlags.BATCH))
        assert [reading.read(esn, part) for esn in (1, 2)] == [[b"1"]] * 2


class TestVersions:
    def test_what_the_first_version_sealed_is_opened(self) -> None:
        keys = EncryptionKeys({"k1": bytes(range(32))})
        assert entry_records(*entry(SEALED_BY_VERSION_1, 2), keys.reading()) == [b"one", b"two"]

    def test_the_first_version_takes_the_second_one_for_the_name_of_a_key_that_it_has_not(self) -> None:
        (frame,) = frames_of([b"1"])
        codec, _, length = struct.unpack_from(">BIB", frame.payload)
        assert codec == SEALED
        assert frame.payload[6 : 6 + length].decode() == "k2 (version 2)"
        assert len(frame.payload) - 6 - length - NONCE_SIZE >= PROOF_SIZE

    def test_a_later_version_is_refused_with_its_number(self) -> None:
        payload = frames_of([b"1"])[0].payload.replace(b"(version 2)", b"(version 3)")
        part = Constituent(payload, 1, crc32c(payload), int(ConstituentFlags.BATCH))
        text = Reading().is_refused(1, part, status=Status.NOKEY)
        assert (
            "by key 'k2 (version 3)', which is not among those given: a later program sealed them, this one knows up to version 2"
            in text
        )

    def test_no_writer_uses_a_key_whose_name_looks_like_a_version(self) -> None:
        keys = EncryptionKeys({"k (version 2)": KEY}, write_with="k (version 2)")
        for writing in (keys.writing, keys.writing_streams):
            with pytest.raises(LogDeviceError, match=r"INVALID_PARAM.*use another name"):
                writing()


class TestWriting:
    def batch(self) -> OpenBatch:
        return OpenBatch(WriterSettings(compression="zstd"), 1 << 20, KEYS.writing_streams()(LogId(7)))

    def test_a_frame_holds_a_sealed_batch_also_of_one_record(self) -> None:
        batch = self.batch()
        batch.add(b"secret" * 100, FakePromise())
        frame = batch.cut(1, Micros(0))
        assert frame.flags & ConstituentFlags.BATCH
        assert is_sealed(frame.payload)
        assert len(frame.payload) < 200, "it is packed first"
        assert frame.crc == crc32c(frame.payload)
        assert entry_records(*entry(frame.payload, 1), KEYS.reading()) == [b"secret" * 100]

    def test_the_longest_record_leaves_room_for_the_seal(self) -> None:
        w = WritingClient()
        plain = w.writer.payload_max(LOG)
        encrypting = w.bench.session.writer(WriterSettings(), w, KEYS.writing_streams())
        assert encrypting.payload_max(LOG) < plain - PLACED_OVERHEAD
        with pytest.raises(LogDeviceError, match="TOOBIG"):
            encrypting.append(LOG, bytes(plain), FakePromise(), w.bench.now)

    def test_another_cluster_file_leaves_the_room_for_the_seal(self) -> None:
        w = WritingClient()
        encrypting = w.bench.session.writer(WriterSettings(time_trigger_us=0), w, KEYS.writing_streams())
        encrypting.append(LOG, b"x", FakePromise(), w.bench.now)
        w.bench.turn()
        for version, limit in ((2, 2000), (3, 1000)):
            w.bench.session.set_config(cluster(3, version, f"max_payload_bytes = '{limit}B'"), w.bench.now)
        with pytest.raises(LogDeviceError, match="TOOBIG"):
            encrypting.append(LOG, bytes(1000), FakePromise(), w.bench.now)
        for _ in range(6):
            encrypting.append(LOG, bytes(480), FakePromise(), w.bench.now)
        w.bench.turn()
        frames = list(encrypting._streams[LOG]._frames)
        assert [frame.records for frame in frames] == [1] * 7
        assert max(len(frame.payload) for frame in frames) <= 1000

    def test_a_stream_is_not_taken_over(self) -> None:
        w = WritingClient()
        encrypting = w.bench.session.writer(WriterSettings(), w, KEYS.writing_streams())
        with pytest.raises(LogDeviceError, match="cannot take a write stream over"):
            encrypting.take_over(LOG, b"w" * 16, 1)


class TestKeys:
    def test_a_callable_is_asked_once_for_each_name(self) -> None:
        asked: list[str] = []

        def find(name: str) -> bytes | None:
            asked.append(name)
            return KEY if name == "k2" else None

        keys = EncryptionKeys(find, write_with="k2")
        assert entry_records(*entry(sealed(keys=keys), 3), keys.reading()) == RECORDS
        for _ in range(2):
            with pytest.raises(LogDeviceError, match="'k1'"):
                keys.open(LogId(7), decode_sealed(sealed(keys=EncryptionKeys({"k1": KEY}, "k1"))), 3)
        assert asked == ["k2", "k1"]

    def test_a_file_has_a_key_a_line_and_the_first_is_for_writers(self, tmp_path: Path) -> None:
        path = tmp_path / "keys"
        path.write_text(f"# new\nk2 {KEY.hex()}\n\nk1 {OTHER.hex()}  # old\n")
        path.chmod(0o600)
        keys = EncryptionKeys.from_file(path)
        payload = sealed(keys=keys)
        assert decode_sealed(payload).key_name == "k2"
        assert entry_records(*entry(payload, 3), KEYS.reading()) == RECORDS

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "there is no key in it"),
            ("k1", "line 1: write a name and 64 hexadecimal digits"),
            (f"k1 {KEY.hex()}\nk2 xyz", "line 2: write a name"),
            (f"k1 {KEY.hex()[:-2]}", "line 1: a key has 64 hexadecimal digits"),
            (f"k/1 {KEY.hex()}", "line 1"),
        ],
    )
    def test_a_wrong_file_is_told(self, tmp_path: Path, text: str, words: str) -> None:
        path = tmp_path / "keys"
        path.write_text(text)
        path.chmod(0o600)
        with pytest.raises(LogDeviceError, match=words) as caught:
            EncryptionKeys.from_file(path)
        assert caught.value.status is Status.INVALID_CONFIG

    def test_a_file_that_others_can_read_is_not_taken(self, tmp_path: Path) -> None:
        path = tmp_path / "keys"
        path.write_text(f"k1 {KEY.hex()}")
        path.chmod(0o640)
        with pytest.raises(LogDeviceError, match="chmod 600"):
            EncryptionKeys.from_file(path)
        with pytest.raises(LogDeviceError, match="No such file"):
            EncryptionKeys.from_file(tmp_path / "none")

    def test_wrong_keys_are_told_when_they_are_given(self) -> None:
        with pytest.raises(LogDeviceError, match="a key has 32 bytes"):
            EncryptionKeys({"k": b"short"})
        with pytest.raises(LogDeviceError, match="there is no key 'x'"):
            EncryptionKeys({"k": KEY}, write_with="x")
        with pytest.raises(LogDeviceError, match="these keys are for readers"):
            EncryptionKeys({"k": KEY}).writing()


def test_what_comes_before_is_handed_out_and_the_reader_stays_where_it_cannot_go_on() -> None:
    queue = ReadyQueue(LogId(7), compose_lsn(1, 1), ReadMetrics())
    sender = Sender(shard_id(NodeId(0)), Generation(1))
    for esn, payload in enumerate((encode_batch(RECORDS), sealed()), 1):
        queue.put_entry(Buffered(*entry(payload, 3, esn=esn), sender))
    assert queue.take(100).payloads == RECORDS
    for _ in range(2):
        with pytest.raises(LogDeviceError, match="NOKEY"):
            queue.take(100)
    queue.open_sealed = KEYS.reading()
    assert queue.take(100).payloads == RECORDS
    assert (len(queue), queue.bytes) == (0, 0)


def test_a_reader_stays_at_a_batch_that_a_node_repeated_and_hands_out_what_comes_before() -> None:
    queue = ReadyQueue(LogId(7), compose_lsn(1, 1), ReadMetrics())
    queue.open_sealed = KEYS.reading()
    sender = Sender(shard_id(NodeId(0)), Generation(1))
    first, second = frames_of([b"1", b"2"])
    for esn, part in enumerate((first, second, first), 1):
        queue.put_entry(Buffered(*entry_of([part], esn=esn), sender))
    assert queue.take(100).payloads == [b"1", b"2"]
    for _ in range(2):
        with pytest.raises(LogDeviceError, match="MISPLACED"):
            queue.take(100)
    assert len(queue) == 1


class TestPrograms:
    def test_readers_take_the_file_that_the_environment_names(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "keys"
        path.write_text(f"k2 {KEY.hex()}")
        path.chmod(0o600)
        monkeypatch.delenv("LOGDEVICE_KEYS_FILE", raising=False)
        assert environment_keys() is None
        monkeypatch.setenv("LOGDEVICE_KEYS_FILE", str(path))
        keys = environment_keys()
        assert keys is not None
        assert entry_records(*entry(sealed(), 3), keys.reading()) == RECORDS

    @pytest.mark.parametrize("program", [cat, tail, write])
    def test_programs_take_a_file(self, tmp_path: Path, program: Any) -> None:
        path = tmp_path / "keys"
        path.write_text(f"k2 {KEY.hex()}")
        path.chmod(0o600)
        parsed = program.parser().parse_args(["-c", "x", "7", "--keys", str(path)])
        keys = keys_of(parsed)
        assert keys is not None
        assert entry_records(*entry(sealed(keys=keys), 3), KEYS.reading()) == RECORDS
        assert keys_of(program.parser().parse_args(["-c", "x", "7"])) is None
