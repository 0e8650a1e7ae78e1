"""What the sequencer side asks its shell to do besides sending messages.

All `EpochStoreRequest`s of one turn may be submitted to the epoch store together; each is answered by ``on_epoch_store(token, result, now)``.
One that gets no answer costs its log a retry, nothing else.
"""

from __future__ import annotations

from epoch_store.interface import EpochStoreRequest

__all__ = ["EpochStoreRequest"]
