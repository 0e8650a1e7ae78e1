"""Errors of the operating system, for people."""

from __future__ import annotations

import os


def explain(error: OSError) -> str:
    """What is wrong, with the path if there is one and without the number."""
    what = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    return what if error.filename is None else f"{os.fspath(error.filename)}: {what}"
