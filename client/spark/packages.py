"""The packages that reading and writing take, which may be missing on machines where Spark's workers run."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

NEEDED: Final = {
    "msgpack": "msgpack",
    "google_crc32c": "google-crc32c",
    "lz4": "lz4",
    "zstandard": "zstandard",
    "pyarrow": "pyarrow",
}
"""Packages by the name under which they are imported."""


def check_packages() -> None:
    """That this process can import what reading and writing take.

    Raises:
        ImportError: names every package that is missing, and the Python that misses it.
    """
    missing = [package for name, package in NEEDED.items() if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"the logdevice source needs {', '.join(missing)} in {sys.executable}, the Python of Spark's workers on this machine: "
            "install it there, or ship an environment that has it with --archives"
        )
