"""What a node does with encrypted batches is noticed exactly if a batch of some stream comes behind itself, or behind a later one."""

from __future__ import annotations

from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from client.encryption import EncryptionKeys
from client.read.decoding import entry_records
from logdevice_py.core.batch import encode_batch
from logdevice_py.core.entry import Constituent, ConstituentFlags, EntryHeader, encode_body, encode_entry
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.core.sealed_batch import OpenSealed
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp

STREAMS, NUMBERS, LOG = 3, 6, LogId(7)
KEYS = EncryptionKeys({"k": bytes(32)}, write_with="k")
_FLAGS = int(ConstituentFlags.BATCH)
FRAMES = [
    [(stream, number, seal(encode_batch([b"%d %d" % (stream, number)]), 1)) for number in range(NUMBERS)]
    for stream, seal in enumerate(KEYS.writing_streams()(LOG) for _ in range(STREAMS))
]
"""By stream and number."""
BATCHES = st.tuples(st.integers(0, STREAMS - 1), st.integers(0, NUMBERS - 1))
LOGS = st.lists(st.lists(BATCHES, min_size=1, max_size=4), max_size=12)
"""Whatever a node may make of what it was sent: batches by entry."""
HONEST = st.lists(st.integers(0, STREAMS - 1), max_size=STREAMS * NUMBERS).map(
    lambda order: [
        (stream, order[:at].count(stream)) for at, stream in enumerate(order) if order[:at].count(stream) < NUMBERS
    ]
)
"""Batches in the order in which their writers sent them."""


def read(open_sealed: OpenSealed, esn: int, batches: list[tuple[int, int]]) -> list[bytes | None] | None:
    """The records of an entry; None: it is refused."""
    payloads = [FRAMES[stream][number][2] for stream, number in batches]
    parts = [Constituent(payload, 1, crc32c(payload), _FLAGS) for payload in payloads]
    body = encode_body(parts)
    header = EntryHeader(LOG, compose_lsn(1, esn), Timestamp(1), 1, (0,), 0, len(parts), 0, len(body), crc32c(body))
    try:
        return entry_records(header, encode_entry(header, body), open_sealed)
    except LogDeviceError as error:
        if error.status is not Status.MISPLACED:
            raise
        return None


@given(LOGS)
def test_a_batch_that_is_repeated_or_comes_behind_a_later_one_is_refused_and_no_other(
    log: list[list[tuple[int, int]]],
) -> None:
    open_sealed, last = KEYS.reading(), dict.fromkeys(range(STREAMS), -1)
    for esn, batches in enumerate(log, 1):
        rises, after = True, dict(last)
        for stream, number in batches:
            rises = rises and number > after[stream]
            after[stream] = number
        records = [b"%d %d" % batch for batch in batches]
        for _ in range(2):  # a reader stays where it cannot go on, and may be asked again
            assert read(open_sealed, esn, batches) == (records if rises else None)
        if not rises:
            break
        last = after


@given(HONEST, st.data())
def test_what_writers_sent_in_order_is_read_also_without_some_of_it(
    order: list[tuple[int, int]], data: st.DataObject
) -> None:
    kept = [batch for batch in order if data.draw(st.booleans())]
    open_sealed, esn = KEYS.reading(), 0
    while kept:
        size, esn = data.draw(st.integers(1, len(kept))), esn + data.draw(st.integers(1, 3))
        entry, kept = kept[:size], kept[size:]
        assert read(open_sealed, esn, entry) == [b"%d %d" % batch for batch in entry]
