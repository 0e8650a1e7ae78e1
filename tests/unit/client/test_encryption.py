"""Encryption by the client: keys, files of keys, sealed batches, and what readers are told that have other keys."""

from __future__ import annotations

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
from logdevice_py.core.ids import Generation, LogId, NodeId, shard_id
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.core.sealed_batch import PLACED_OVERHEAD, SEALED_OVERHEAD, decode_sealed, is_sealed
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros, Timestamp
from tests.unit.client.fakes import LOG, FakePromise, cluster
from tests.unit.client.write.test_write_streams import WritingClient

KEY, OTHER = bytes(range(32)), bytes(32)
KEYS = EncryptionKeys({"k1": OTHER, "k2": KEY}, write_with="k2")
RECORDS = [b"secret one", b"", b"secret three"]


def sealed(log: int = 7, records: list[bytes] | None = None, keys: EncryptionKeys = KEYS) -> bytes:
    own = RECORDS if records is None else records
    return keys.writing()(LogId(log))(encode_batch(own), len(own))


def entry(payload: bytes, records: int, log: int = 7, esn: int = 1) -> tuple[EntryHeader, bytes]:
    body = encode_body([Constituent(payload, records, crc32c(payload), int(ConstituentFlags.BATCH))])
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
