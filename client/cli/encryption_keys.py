"""Option ``--keys`` of programs that read or write records: the file of keys that batches are encrypted by."""

from __future__ import annotations

import argparse

from client.cli.options import complete_files
from client.encryption import EncryptionKeys


def keys_option(options: argparse.ArgumentParser, use: str) -> None:
    """Add the option. use: what the keys are for."""
    text = f"{use}: a name and 64 hexadecimal digits a line"
    complete_files(options.add_argument("--keys", metavar="FILE", help=text))


def keys_of(arguments: argparse.Namespace) -> EncryptionKeys | None:
    """The keys that the option names; None: none.

    Raises:
        LogDeviceError: INVALID_CONFIG, NOTSUPPORTED.
    """
    return None if arguments.keys is None else EncryptionKeys.from_file(arguments.keys)
