"""Where a range that is read ends, as applications say it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from client.arguments import lsn_argument, time_argument
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp

TAIL: Final = "tail"


class LogEnds(Protocol):
    """A client, as far as it is asked where logs end."""

    async def tail_lsn(self, log: int | str, *, timeout: float | None = None) -> LSN:
        """The last LSN that can be read."""

    async def find_time(
        self, log: int | str, when: datetime | int, *, approximate: bool = False, timeout: float | None = None
    ) -> LSN:
        """The first LSN whose record is not older; one behind the tail when there is none."""


@dataclass(frozen=True, slots=True)
class RangeEnd:
    """An LSN; the tail, as it is when reading begins; or what is older than a time, as far as there is any when reading begins."""

    lsn: LSN | None = None
    """None: it depends on the log."""
    before: Timestamp | None = None

    @classmethod
    def of(cls, until: Any) -> RangeEnd:
        """From an argument.

        Raises:
            LogDeviceError: INVALID_PARAM.
        """
        if until == TAIL:
            return cls()
        if isinstance(until, datetime):
            return cls(before=time_argument(until))
        if isinstance(until, str):
            raise LogDeviceError(
                Status.INVALID_PARAM, f'until is {until!r}; it must be an LSN, "{TAIL}" or an aware datetime'
            )
        return cls(LSN(lsn_argument("until", until)))

    async def find(self, client: LogEnds, log: LogId, timeout: float | None) -> LSN:
        """The last LSN of the range.

        Raises:
            LogDeviceError: as `Client.tail_lsn` and `Client.find_time`.
        """
        if self.lsn is not None:
            return self.lsn
        tail = await client.tail_lsn(log, timeout=timeout)
        if self.before is None:
            return tail
        found = await client.find_time(log, self.before, timeout=timeout)
        return min(LSN(max(found, 1) - 1), tail)

    def __str__(self) -> str:
        if self.lsn is None:
            return "until the tail" if self.before is None else "until a time"
        return "for ever" if self.lsn == LSN.MAX else f"until {self.lsn}"
