"""Stores that a later version of this program wrote."""

from __future__ import annotations

from logdevice_py.core.status import LogDeviceError, Status


class LaterFormatError(LogDeviceError):
    """A store has a format that came after this program. It is not damaged: nothing is changed, and nobody may accept its loss.

    Args:
        what: has that format.
        version: of the format.
        known: the last one that this program knows.
    """

    def __init__(self, what: str, version: int, known: int) -> None:
        super().__init__(
            Status.FAILED,
            f"{what} has version {version}, this program knows {known}: a later version wrote it. Start that one, or put back a copy of the files from before",
        )
