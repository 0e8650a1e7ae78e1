"""What an epoch store answers when it fails by a bug of ours: the operation fails, and all others go on."""

from __future__ import annotations

import logging

from epoch_store.cells import is_read, key_of
from epoch_store.interface import Operation, Result
from logdevice_py.core.status import Status

log = logging.getLogger("logdevice.epoch_store")


def own_failure(operation: Operation, error: BaseException, *, was_written: bool) -> Result:
    """The answer to an operation that raised an exception, which is logged.

    Args:
        was_written: its write may have been made.
    """
    key = key_of(operation)
    log.error("the epoch store failed at %s by a bug", key, exc_info=error)
    detail = f"the epoch store failed at {key}: {type(error).__name__}: {error}"
    return Result(Status.FAILED, detail=detail, maybe_applied=was_written and not is_read(operation))
