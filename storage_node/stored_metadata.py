"""What a shard keeps of its logs beside entries: the values behind the metadata keys of its store.

Each value begins with a version byte. All are plain overwrites: the machines hold the truth in memory and write maxima.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.epoch_summary import SUMMARY_SIZE
from logdevice_py.core.ids import NodeId
from logdevice_py.core.lsn import EPOCH_INVALID, Epoch, Esn, Lsn
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp
from storage_node.lsn_ranges import Range

_VERSION: Final = 1
_SEAL: Final = struct.Struct(">BIi")
_SOFT_SEAL: Final = struct.Struct(">BIiBII")
_EPOCH: Final = struct.Struct(">BI")
_LSN: Final = struct.Struct(">BQ")
_LNG: Final = struct.Struct(">BI")
_RECOVERY: Final = struct.Struct(">BIIIQqB")
RECOVERED_EPOCH_SIZE: Final = _RECOVERY.size
"""Bytes of an encoded `RecoveredEpoch` without a summary."""
_WITH_SUMMARY: Final = 2
"""Version of a `RecoveredEpoch` that a summary follows."""


def encode_micros(micros: int) -> bytes:
    """A span of time in the store."""
    return _LSN.pack(_VERSION, micros)


def decode_micros(value: bytes) -> int:
    """From its bytes in the store; CorruptEntryError when they are none."""
    (micros,) = _unpack(_LSN, value)
    return micros


def _unpack(layout: struct.Struct, value: bytes) -> tuple[int, ...]:
    if len(value) != layout.size or value[0] != _VERSION:
        raise CorruptEntryError(f"metadata of {len(value)} bytes is not of a known version")
    return layout.unpack(value)[1:]


@dataclass(slots=True)
class SoftSealValue:
    """A soft seal, and whether a crash may take what was answered since.

    The two belong together: because the soft seal is durable before the first STORE of a later epoch is answered, a shard that lost
    unsynced writes knows that no epoch beyond the one after its soft seal is concerned.
    """

    epoch: Epoch
    node: NodeId
    answered_unsynced: bool
    """STOREs of the log may have been answered before a sync since then."""
    lossy_first: Epoch = EPOCH_INVALID
    lossy_last: Epoch = EPOCH_INVALID
    """Dirty epochs (inclusive), as stores say that were written when whole epochs were marked; 0 to 0: none."""

    def encode(self) -> bytes:
        """Its bytes in the store."""
        return _SOFT_SEAL.pack(
            _VERSION, self.epoch, self.node, self.answered_unsynced, self.lossy_first, self.lossy_last
        )

    @classmethod
    def decode(cls, value: bytes) -> SoftSealValue:
        """From its bytes in the store; CorruptEntryError when they are none."""
        epoch, node, unsynced, first, last = _unpack(_SOFT_SEAL, value)
        return cls(Epoch(epoch), NodeId(node), bool(unsynced), Epoch(first), Epoch(last))


@dataclass(slots=True)
class RecoveredEpoch:
    """How the recovery of an epoch ended (its epoch recovery metadata)."""

    seal_epoch: Epoch
    lng: Esn
    """What recovery found fully replicated: it changed nothing up to here."""
    last_digest_esn: Esn
    """The bridge, or the last ESN that recovery looked at."""
    tail_lsn: Lsn
    tail_timestamp: Timestamp
    authoritative: bool
    summary: bytes = b""
    """An encoded `EpochSummary`; empty: the entries of the epoch are not counted."""

    def encode(self) -> bytes:
        """Its bytes in the store."""
        fields = _RECOVERY.pack(
            _WITH_SUMMARY if self.summary else _VERSION,
            self.seal_epoch,
            self.lng,
            self.last_digest_esn,
            self.tail_lsn,
            self.tail_timestamp,
            self.authoritative,
        )
        return fields + self.summary

    @classmethod
    def decode(cls, value: bytes) -> RecoveredEpoch:
        """From its bytes in the store; CorruptEntryError when they are none."""
        whole = RECOVERED_EPOCH_SIZE + (SUMMARY_SIZE if value[:1] == bytes((_WITH_SUMMARY,)) else 0)
        if len(value) != whole or value[0] not in (_VERSION, _WITH_SUMMARY):
            raise CorruptEntryError(f"metadata of {len(value)} bytes is not of a known version")
        _, seal, lng, last, tail, timestamp, authoritative = _RECOVERY.unpack_from(value)
        return cls(
            Epoch(seal),
            Esn(lng),
            Esn(last),
            Lsn(tail),
            Timestamp(timestamp),
            bool(authoritative),
            value[RECOVERED_EPOCH_SIZE:],
        )


_RANGE: Final = struct.Struct(">QQ")


def encode_ranges(ranges: Sequence[Range]) -> bytes:
    """Ranges of LSNs of which a crash may have taken entries."""
    return bytes((_VERSION,)) + b"".join([_RANGE.pack(first, last) for first, last in ranges])


def decode_ranges(value: bytes) -> list[Range]:
    """From their bytes in the store; CorruptEntryError when they are none."""
    if len(value) % _RANGE.size != 1 or value[0] != _VERSION:
        raise CorruptEntryError(f"metadata of {len(value)} bytes is not of a known version")
    return [(Lsn(first), Lsn(last)) for first, last in _RANGE.iter_unpack(value[1:])]


def encode_seal(epoch: Epoch, node: NodeId) -> bytes:
    """A normal seal."""
    return _SEAL.pack(_VERSION, epoch, node)


def decode_seal(value: bytes) -> tuple[Epoch, NodeId]:
    """(epoch, who sealed)."""
    epoch, node = _unpack(_SEAL, value)
    return Epoch(epoch), NodeId(node)


def encode_epoch(epoch: Epoch) -> bytes:
    """The last clean epoch."""
    return _EPOCH.pack(_VERSION, epoch)


def decode_epoch(value: bytes) -> Epoch:
    """The last clean epoch."""
    return Epoch(_unpack(_EPOCH, value)[0])


def encode_lsn(lsn: Lsn) -> bytes:
    """A release pointer or trim point."""
    return _LSN.pack(_VERSION, lsn)


def decode_lsn(value: bytes) -> Lsn:
    """A release pointer or trim point."""
    return Lsn(_unpack(_LSN, value)[0])


def encode_lng(lng: Esn) -> bytes:
    """What changes of an epoch while it is written: its LNG. Its presence says that the epoch has something stored."""
    return _LNG.pack(_VERSION, lng)


def decode_lng(value: bytes) -> Esn:
    """The LNG of an epoch."""
    return Esn(_unpack(_LNG, value)[0])
