"""A configuration as nodes send it to clients: the text of a cluster file, compressed."""

from __future__ import annotations

import zlib

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster, render_cluster
from logdevice_py.config.stored import TEXT_MAX, inflated
from logdevice_py.core.status import CorruptEntryError, LogDeviceError

_TEXT_BYTES_MAX = 4 * TEXT_MAX


def pack_configuration(config: ClusterConfig) -> bytes:
    """What is sent."""
    return zlib.compress(render_cluster(config).encode())


def unpack_configuration(packed: bytes) -> ClusterConfig:
    """What was sent.

    Raises:
        CorruptEntryError: it is none, or one of a later release.
    """
    try:
        return load_cluster(inflated(packed, _TEXT_BYTES_MAX).decode())
    except (CorruptEntryError, UnicodeDecodeError, LogDeviceError) as error:
        raise CorruptEntryError(f"a configuration that cannot be read: {error}") from None
