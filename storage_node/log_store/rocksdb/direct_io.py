"""Whether files can be written past the page cache."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

_PROBE: Final = "direct-io-probe"


def takes_direct_io(directory: str) -> bool:
    """Whether the file system of a directory, which must exist, takes direct writes. Not all do: overlays, file systems in memory, some across a network.

    A directory in which nothing can be created takes none.
    """
    probe = os.path.join(directory, _PROBE)
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600))
    except OSError:
        return False
    finally:
        # an open that is refused leaves the file that it made
        with suppress(OSError):
            os.unlink(probe)
    return True
