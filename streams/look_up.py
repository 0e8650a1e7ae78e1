"""Where things are in the log of a stream."""

from __future__ import annotations

from client.client import Client
from client.encryption import EncryptionKeys
from client.read.items import GapKind
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import ESN_MAX, LSN, compose_lsn


async def end_of_epoch(
    client: Client, log: LogId, epoch: int, timeout: float | None, encryption: EncryptionKeys | None = None
) -> LSN:
    """The last entry of an epoch that is over, by halving: what is behind it is explained by its bridge. ESN 0: it has none."""
    low, high = 0, int(ESN_MAX)
    while low < high:
        middle = (low + high + 1) // 2
        at = compose_lsn(epoch, middle)
        async with client.reader(log, at, at, encryption=encryption) as reader:
            batch = await reader.read(timeout=timeout)
        if any(gap.kind is GapKind.BRIDGE for gap in batch.gaps):
            high = middle - 1
        else:
            low = middle
    return LSN(compose_lsn(epoch, low))
