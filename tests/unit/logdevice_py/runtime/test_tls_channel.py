"""The channel of a TLS connection: what one end writes the other reads, however it comes."""

from __future__ import annotations

import random

import pytest

from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError
from logdevice_py.runtime.certificates import CertificateAuthority
from logdevice_py.runtime.tls import TlsChannel, TlsContexts, TlsFiles

UUID = bytes(range(16))
Ends = tuple[TlsChannel, TlsChannel]


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> TlsContexts:
    directory = tmp_path_factory.mktemp("identity")
    authority = CertificateAuthority(directory, UUID)
    authority.make()
    authority.certify_node(NodeId(0))
    return TlsContexts(TlsFiles(directory / "ca.pem", directory / "N0.pem"), UUID)


@pytest.fixture
def ends(contexts: TlsContexts) -> Ends:
    """Who writes and who reads."""
    dialling, accepting = contexts.dial(), contexts.accept()
    dialling.shake_hands()
    accepting.feed(dialling.take())
    accepting.shake_hands()
    dialling.feed(accepting.take())
    dialling.shake_hands()
    accepting.feed(dialling.take())
    assert accepting.shake_hands()
    return dialling, accepting


def record_sizes(encrypted: bytes) -> list[int]:
    """Bytes of each record."""
    found, at = [], 0
    while at < len(encrypted):
        found.append(int.from_bytes(encrypted[at + 3 : at + 5], "big"))
        at += 5 + found[-1]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_what_is_written_is_read_in_whatever_pieces_it_comes(ends: Ends, seed: int) -> None:
    writing, reading = ends
    rng = random.Random(seed)
    sent, received = bytearray(), bytearray()
    lent = bytearray(1 << 19)
    for _ in range(25):
        pieces = [rng.randbytes(rng.choice((1, 100, 5000, 16 << 10, 70_000))) for _ in range(rng.randrange(1, 12))]
        sent += b"".join(pieces)
        encrypted = writing.write(pieces)
        while encrypted:
            size = rng.randrange(1, len(lent))
            part, encrypted = encrypted[:size], encrypted[size:]
            lent[: len(part)] = part
            reading.lend(memoryview(lent)[: len(part)])
            room = memoryview(bytearray(rng.choice((10, 3000, 40_000, 1 << 19))))
            for _ in range(rng.randrange(4)):
                received += room[: reading.read_into(room)]
            reading.keep()
            lent[: len(part)] = bytes(len(part))
    room = memoryview(bytearray(1 << 19))
    while size := reading.read_into(room):
        received += room[:size]
        reading.keep()
    assert received == sent


def test_small_pieces_share_a_record_and_large_ones_are_as_they_are(ends: Ends) -> None:
    writing, _ = ends
    sizes = record_sizes(writing.write([b"x" * 100, b"y" * 100, bytes(64 << 10), b"z" * 100, b"z" * 100]))
    assert [size - min(sizes) for size in sizes] == [0, *[(16 << 10) - 200] * 4, 0]


def test_what_is_lent_is_taken_a_few_records_at_a_time(ends: Ends) -> None:
    writing, reading = ends
    encrypted = writing.write([bytes(400_000)])
    reading.lend(memoryview(encrypted))
    assert reading.read_into(memoryview(bytearray(1000))) == 1000
    assert len(encrypted) - (64 << 10) < reading.waiting_bytes < len(encrypted)
    reading.keep()
    assert len(encrypted) - (64 << 10) < reading.waiting_bytes < len(encrypted)
    assert reading.read_into(memoryview(bytearray(1 << 20))) == 399_000


def test_what_came_before_damage_is_read_first(ends: Ends) -> None:
    writing, reading = ends
    sound, damaged = writing.write([b"sound" * 10_000]), bytearray(writing.write([b"damaged"]))
    damaged[10] ^= 1
    reading.lend(memoryview(sound + bytes(damaged)))
    room = memoryview(bytearray(1 << 20))
    assert reading.read_into(room) == 50_000
    with pytest.raises(LogDeviceError):
        reading.read_into(room)
