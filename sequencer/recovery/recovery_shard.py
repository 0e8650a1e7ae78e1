"""One shard as the recovery of an epoch sees it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from logdevice_py.core.ids import Generation, ShardId
from logdevice_py.core.lsn import LSN_INVALID, Epoch, Esn, Lsn
from logdevice_py.core.machine import Timer
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp


class ShardState(enum.IntEnum):
    """How far a shard is. It falls back to SEALING whenever it may have lost what it was told."""

    SEALING = 0  # no good answer to SEAL yet
    SEALED = 1  # takes no more entries of the epoch from sequencers
    DIGESTING = 2  # tells what it holds
    DIGESTED = 3  # told everything; takes no part in what follows, or its part is not yet decided
    MUTATABLE = 4  # member of the mutation set: is brought to what was decided
    CLEANING = 5  # holds what was decided; is told that this is final
    CLEAN = 6  # has it on disk that its part of the epoch is final


@dataclass(slots=True)
class SealedEpoch:
    """What a shard said of an epoch when it was sealed."""

    epoch: Epoch
    status: Status
    lng: Esn
    last: Esn
    last_timestamp: Timestamp
    tail_lsn: Lsn
    tail_timestamp: Timestamp


@dataclass(slots=True)
class RecoveryShard:
    """A shard of the epoch's nodeset."""

    shard: ShardId
    generation: Generation
    state: ShardState = ShardState.SEALING
    digest_next: Lsn = LSN_INVALID
    """DIGESTING: the LSN to ask for."""
    delay: int = 0
    """How long the answer is waited for, in microseconds."""
    timer: Timer | None = None
    """Repeats the request of the state."""

    def cancel_timer(self) -> None:
        """Nothing is to be repeated."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def fall_back(self, state: ShardState) -> None:
        """Go back to an earlier state."""
        self.cancel_timer()
        self.state = state
        self.delay = 0
