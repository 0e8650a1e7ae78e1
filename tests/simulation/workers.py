"""Processes that run seeds for this one: they end when it ends, however that comes about."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from server.die_with_parent import die_with_parent

_YOUNG_OBJECTS = 100_000
"""A run makes many objects that live as long as itself: looking at them often frees little."""


@contextmanager
def worker_pool(count: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes. What they are at is waited for, unless the context is left by an exception."""
    pool = ProcessPoolExecutor(
        count, mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)
    )
    try:
        yield pool
    except BaseException:
        kill_workers()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def kill_workers() -> None:
    """Whatever they are at is lost: its futures fail."""
    for process in multiprocessing.active_children():
        process.kill()


def _begin(parent: int) -> None:
    """Modules and declarations are there for good: the garbage collector need not look at them after each seed."""
    # Ctrl-C reaches all processes; the parent decides what becomes of this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)
