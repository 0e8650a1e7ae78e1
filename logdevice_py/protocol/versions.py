"""Which version of the protocol two processes speak with each other, and what they do not say then.

1. HELLO offers a range of versions; ACK names the greatest that both speak, or refuses with PROTO and both ranges.
2. HELLO and ACK look the same in all versions but for fields at the end, so that any two processes understand the refusal.
3. A field of a message or a place of a row that is added at the end, with a default, needs no version: who does not know it ignores it, who does
   not hear of it takes the default. So do a status, which is read as INTERNAL, and a flag that may be ignored.
4. A new message names the version it came with. It is not sent to a peer with which an earlier one was agreed: who sends it hears nothing, as
   when it is lost, and does without.
5. Everything else is a new version, and the one before is spoken with who knows no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from logdevice_py.protocol.declare import CODECS
from logdevice_py.protocol.messages import PROTOCOL_VERSION_MAX, PROTOCOL_VERSION_MIN


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that a process speaks, all from one to another."""

    least: int = PROTOCOL_VERSION_MIN
    greatest: int = PROTOCOL_VERSION_MAX

    def agree(self, offered: Versions) -> int | None:
        """The greatest version that both speak; None: there is none."""
        greatest = min(self.greatest, offered.greatest)
        return greatest if greatest >= max(self.least, offered.least) else None

    def __str__(self) -> str:
        return str(self.least) if self.least == self.greatest else f"{self.least} to {self.greatest}"


@lru_cache
def later_messages(version: int) -> frozenset[int]:
    """The numbers of the messages that came after a version: a peer that speaks it takes them for damage."""
    return frozenset(codec.number for codec in CODECS.values() if codec.since > version)
