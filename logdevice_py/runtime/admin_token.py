"""The token of the admin API: where nodes and programs find it, and who else may know it.

A program sends its token to the addresses in the cluster file. So the cluster file does not say which file holds it: a stranger's would
name a secret of the user, to be sent to the stranger. The token stands beside the cluster file and has its name: `cluster.token` beside
`cluster.toml`; or the user names a file.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from logdevice_py.core.status import LogDeviceError, Status

SUFFIX: Final = ".token"
LENGTH_MIN: Final = 16
_BYTES_MAX: Final = 4096


def token_beside(cluster_file: Path) -> Path:
    """Where the token of a cluster file stands."""
    return cluster_file.with_suffix(SUFFIX)


def node_token(cluster_file: Path, token_file: str) -> str | None:
    """The token that a node asks for; None: there is none.

    Args:
        token_file: as the cluster file has it, beside which it is looked for when it is no absolute path; empty: where programs look.

    Raises:
        LogDeviceError: INVALID_CONFIG: it cannot be read, is too short, or other users may read it.
    """
    if token_file:
        return _read(cluster_file.parent / token_file, found=False)
    try:
        return _read(token_beside(cluster_file), found=True)
    except FileNotFoundError:
        return None


def program_token(cluster_file: Path | None, token_file: str | Path | None) -> str | None:
    """The token that a program sends; None: it has none.

    Args:
        cluster_file: that the user named; None where there is none.
        token_file: that the user named.

    Raises:
        LogDeviceError: INVALID_CONFIG: as `node_token`.
    """
    if token_file is not None:
        return _read(Path(token_file), found=False)
    if cluster_file is None:
        return None
    try:
        return _read(token_beside(cluster_file), found=True)
    except (FileNotFoundError, PermissionError):
        return None


def make_token(cluster_file: Path) -> str:
    """The token beside a cluster file, which is made when there is none.

    Raises:
        LogDeviceError: INVALID_CONFIG: as `node_token`.
        OSError: it cannot be made.
    """
    path, token = token_beside(cluster_file), secrets.token_hex(16)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _read(path, found=True)
    with open(descriptor, "w") as file:
        file.write(f"{token}\n")
    return token


def _read(path: Path, *, found: bool) -> str:
    """The token in a file.

    Args:
        found: nobody named the file. Whoever gave the user the directory may have put a link to another secret there.

    Raises:
        FileNotFoundError, PermissionError: if `found`.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_NOFOLLOW | os.O_NONBLOCK if found else 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            about = os.fstat(file.fileno())
            if found and (not stat.S_ISREG(about.st_mode) or about.st_nlink != 1):
                raise _refused(path, "it is no file of its own, or has several names: name it with --token-file")
            if about.st_mode & (0o027 if about.st_uid == 0 else 0o077):
                raise _refused(path, f"other users may read or change it: chmod 600 {path}")
            text = file.read(_BYTES_MAX)
    except (FileNotFoundError, PermissionError) as error:
        if found:
            raise
        raise _refused(path, os.strerror(error.errno or 0)) from None
    except OSError as error:
        if error.errno == errno.ELOOP and found:
            raise _refused(path, "it is a link: name the file that holds the token with --token-file") from None
        raise _refused(path, os.strerror(error.errno or 0)) from None
    token = text.strip().decode("ascii", "replace")
    if not token.isascii() or not token.isprintable():
        raise _refused(path, "a token is one line of ASCII characters")
    if len(token) < LENGTH_MIN:
        raise _refused(path, f"a token has at least {LENGTH_MIN} characters")
    return token


def _refused(path: Path, reason: str) -> LogDeviceError:
    return LogDeviceError(Status.INVALID_CONFIG, f"token file {path}: {reason}")
