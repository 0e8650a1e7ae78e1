"""What goes wrong with cold copies."""

from __future__ import annotations

from logdevice_py.core.status import LogDeviceError, Status


class ColdCopyError(LogDeviceError):
    """A cold copy cannot be made or read; `status` says why: BADPAYLOAD: an object of the store is not what was stored there,
    VERSION_MISMATCH: a later version wrote it, NOTFOUND: it is not there, CONNFAILED: the store does not answer or refuses, EMPTY: no copy
    covers a range, DATALOSS: the range lost records in the cluster."""


def damaged(what: str, why: str) -> ColdCopyError:
    """An object whose content is wrong."""
    return ColdCopyError(
        Status.BADPAYLOAD, f"{what} is damaged: {why}. Nothing of it was delivered from there on", retriable=False
    )
