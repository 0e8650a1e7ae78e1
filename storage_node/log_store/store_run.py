"""One run of a store, from `adopt` to `close`; the same for all stores."""

from __future__ import annotations

from collections.abc import Callable

from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.contents import decode_losses, encode_durable, encode_losses
from storage_node.log_store.identity import PreviousEnd, ShardMarker, judge_stop
from storage_node.log_store.interface import Contents


class StoreRun:
    """Whose store it is, how the run before this one ended, and which writes may be missing since."""

    __slots__ = ("began_at", "losses", "marker", "stop")

    def __init__(self) -> None:
        self.marker: ShardMarker | None = None
        """None before `begin`."""
        self.stop = PreviousEnd.CLEAN
        self.losses: list[tuple[Timestamp, Timestamp]] = []
        self.began_at = Timestamp(0)

    def begin(
        self,
        marker: ShardMarker,
        *,
        found: ShardMarker | None,
        rows: Callable[[bytes], bytes | None],
        boot: str,
        failed: bool,
        now: Timestamp,
    ) -> dict[bytes, bytes]:
        """Begin; returns the rows of the store that say so, which must be durable before anything else is written.

        Args:
            found: the marker that the last run left; None without one that can be read.
            rows: looks up a row of the store.
            boot: boot id of the operating system; empty: unknown.
            failed: whether the last run noted that its disk failed.
            now: the node's wall clock.
        """
        stop = judge_stop(found, boot=boot, failed=failed)
        self.losses = decode_losses(rows(keys.LOSSES_KEY), rows(keys.DURABLE_KEY), stop, now)
        # a run in between that ended before anything was marked changes nothing
        self.stop = stop if rows(keys.UNMARKED_KEY) is None else PreviousEnd.MACHINE_DIED
        self.marker = marker.opened(boot, found)
        self.began_at = now
        begun = {
            keys.MARKER_KEY: self.marker.encode(),
            keys.LOSSES_KEY: encode_losses(self.losses),
            keys.DURABLE_KEY: encode_durable(now),
        }
        if self.stop is PreviousEnd.MACHINE_DIED:
            begun[keys.UNMARKED_KEY] = b""
        return begun

    def contents(self) -> Contents:
        """What the store holds, as far as the run says: the rest is to be filled in."""
        assert self.marker is not None, "load before adopt"
        return Contents(self.marker, self.stop, self.losses)
