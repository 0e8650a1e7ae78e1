"""How a read stream stands, for people who look at it."""

from __future__ import annotations

from dataclasses import dataclass

from client.read.sender_state import Sender
from logdevice_py.core.lsn import Lsn


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLook:
    """Of one stream at one moment."""

    next: Lsn
    """The first LSN not delivered."""
    released: Lsn
    """Everything up to here is released, as far as any shard said."""
    window_high: Lsn
    """The last LSN that shards may send."""
    single_copy: bool
    """Each entry comes from one shard."""
    ready_bytes: int
    """Delivered and not taken."""
    waiting_entries: int
    """Received before their turn."""
    senders: tuple[Sender, ...]
    """The shards of the present interval, in order of their ids."""
    order: tuple[tuple[int, int], ...]
    """Shards and their tiers, by which entries are to be sent; empty: by the places in the copysets."""
    hedges: str
    """Who is asked in place of whom at this moment, for people; empty: nobody."""
    waiting_for: str
    """Why nothing is delivered, for people."""
