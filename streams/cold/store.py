"""Where cold copies are: a directory or an object store, by `pyarrow.fs`. Blocking; what is stored is durable when `put` returns.

Objects never change: their names are the hashes of their contents, in a folder for each attempt to copy (`CLUSTER/LOG/TOKEN/HASH.parquet`). A
directory gets them under a temporary name first, and syncs; an object store makes an object visible when its upload is complete. A name that
holds something else than its content was cut off while it was uploaded, and is written again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from logdevice_py.core.status import Status
from streams.cold.arrow_package import arrow
from streams.cold.copies import (
    FILE_SIZE_MAX,
    MANIFEST_SIZE_MAX,
    MANIFEST_SUFFIX,
    ColdCopy,
    ColdFile,
    ColdManifest,
    content_hash,
    decode_manifest,
)
from streams.cold.errors import ColdCopyError, damaged
from streams.cold.store_url import shown_store_url, store_url

PART_SUFFIX: Final = ".part"
"""Of what is being written in a directory."""
_PIECE: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a store."""

    name: str
    """Its path below the store's URL."""
    size: int


class ColdStore:
    """Objects below a URL: ``file:///directory`` or ``s3://bucket/folder``, with Arrow's options behind a question mark
    (``?region=eu-west-1&endpoint_override=localhost:9000&scheme=http``). Keys of an object store come from where its own tools take them.
    ``memory://name`` is for tests: this process keeps the objects, and forgets them when it ends."""

    def __init__(self, url: str, *, on_step: Callable[[str], None] = lambda step: None) -> None:
        """
        Args:
            url: of the store.
            on_step: called with what was just done, for tests that stop there.

        Raises:
            ColdCopyError: INVALID_PARAM: not such a URL.
            ImportError: pyarrow is not installed.
        """
        if ":" not in url:
            text = f"{url!r} is no store for cold copies: write file://{os.path.abspath(url)}"
            raise ColdCopyError(Status.INVALID_PARAM, text)
        parts = store_url(url)
        self.shown_url = shown_store_url(parts)
        """Without keys."""
        self.on_step = on_step
        filesystem = arrow("fs")
        if parts.scheme == "memory":
            self._files = _in_memory(parts.hostname or "")
            self._root, self._local, self._in_memory = "store", False, True
            return
        try:
            self._files, root = filesystem.FileSystem.from_uri(url)
        except (arrow().ArrowException, OSError) as error:
            raise ColdCopyError(Status.INVALID_PARAM, f"{self.shown_url} cannot be used: {error}") from None
        self._root = root.rstrip("/")
        self._local = parts.scheme == "file"
        self._in_memory = False

    def __repr__(self) -> str:
        return f"<ColdStore {self.shown_url}>"

    def where(self, name: str) -> str:
        """An object's URL, without keys, for people and for programs that read Parquet."""
        return f"{self.shown_url.rstrip('/')}/{name}"

    def _failed(self, doing: str, name: str, error: Exception) -> ColdCopyError:
        if isinstance(error, FileNotFoundError) and doing == "read":  # of what is written, a directory or a bucket is
            return ColdCopyError(Status.NOTFOUND, f"{self.where(name)} is not there", retriable=False)
        text = f"{self.where(name)} cannot be {doing}: {error}"
        return ColdCopyError(Status.CONNFAILED, text, maybe_applied=False)

    # Writing

    def put(self, name: str, data: Any) -> None:
        """Store an object, unless it is there already with this content.

        Args:
            name: its path; its last part begins with the hash of the data.
            data: bytes or an Arrow buffer.

        Raises:
            ColdCopyError: CONNFAILED: retriable; nothing is left, or what `sweep` removes.
        """
        try:
            if self._local:
                self._put_in_directory(name, data)
            else:
                if self._in_memory:
                    self._files.create_dir(os.path.dirname(f"{self._root}/{name}"))
                with self._files.open_output_stream(f"{self._root}/{name}") as out:
                    out.write(data)
        except (arrow().ArrowException, OSError) as error:
            raise self._failed("written", name, error) from error
        self.on_step(f"stored {name}")

    def _put_in_directory(self, name: str, data: Any) -> None:
        path = f"{self._root}/{name}"
        folder = os.path.dirname(path)
        _make_durable_folders(folder)
        part = f"{path}.{secrets.token_hex(8)}{PART_SUFFIX}"
        with open(part, "wb") as out:
            out.write(data)
            out.flush()
            self.on_step(f"written {name}")
            os.fsync(out.fileno())
        os.replace(part, path)
        self.on_step(f"renamed {name}")
        _sync_folder(folder)

    def delete(self, name: str) -> None:
        """Delete an object. Harmless when it is not there.

        Raises:
            ColdCopyError: CONNFAILED: retriable.
        """
        try:
            with contextlib.suppress(FileNotFoundError):
                self._files.delete_file(f"{self._root}/{name}")
        except (arrow().ArrowException, OSError) as error:
            raise self._failed("deleted", name, error) from error
        self.on_step(f"deleted {name}")

    def remove_empty_folder(self, name: str) -> None:
        """Remove a folder of a directory when nothing is in it; object stores have none."""
        if self._local:
            with contextlib.suppress(OSError):  # something is in it, or it is not there
                os.rmdir(f"{self._root}/{name}")

    # Reading

    def get(self, name: str, size_max: int) -> Any:
        """The content of an object as an Arrow buffer; it is not checked.

        Raises:
            ColdCopyError: NOTFOUND; CONNFAILED: retriable; BADPAYLOAD: it is larger than `size_max`.
        """
        try:
            with self._files.open_input_file(f"{self._root}/{name}") as file:
                size = file.size()
                if size > size_max:
                    raise damaged(self.where(name), f"it has {size:,} bytes, {size_max:,} are expected")
                return file.read_buffer(size)
        except (arrow().ArrowException, OSError) as error:
            raise self._failed("read", name, error) from error

    def get_file(self, copy: ColdCopy, file: ColdFile) -> Any:
        """The content of a file of a copy; it is not checked.

        Raises:
            ColdCopyError: as `get`.
        """
        if file.size > FILE_SIZE_MAX:
            raise damaged(self.where(f"{copy.folder}/{file.name}"), f"a file of {file.size:,} bytes is over the limit")
        return self.get(f"{copy.folder}/{file.name}", file.size)

    def manifest(self, copy: ColdCopy) -> ColdManifest:
        """The manifest that a descriptor names, compared with it.

        Raises:
            ColdCopyError: NOTFOUND, CONNFAILED, BADPAYLOAD, VERSION_MISMATCH.
        """
        manifest = decode_manifest(copy.manifest_name, self._manifest_bytes(copy.manifest_name))
        if manifest.copy() != copy:
            raise damaged(self.where(copy.manifest_name), "it is not what the descriptor says")
        return manifest

    def manifest_named(self, name: str) -> ColdManifest:
        """The manifest with this path.

        Raises:
            ColdCopyError: as `manifest`.
        """
        return decode_manifest(name, self._manifest_bytes(name))

    def _manifest_bytes(self, name: str) -> bytes:
        data: bytes = self.get(name, MANIFEST_SIZE_MAX).to_pybytes()
        return data

    def objects(self, folder: str = "") -> list[StoredObject]:
        """All objects below a folder, by name.

        Raises:
            ColdCopyError: CONNFAILED: retriable.
        """
        base = f"{self._root}/{folder}".rstrip("/")
        try:
            selector = arrow("fs").FileSelector(base, recursive=True, allow_not_found=True)
            infos = self._files.get_file_info(selector)
        except (arrow().ArrowException, OSError) as error:
            raise self._failed("listed", folder, error) from error
        strip = len(self._root) + 1
        return sorted(
            (StoredObject(info.path[strip:], info.size) for info in infos if info.is_file), key=lambda each: each.name
        )

    def holds(self, name: str, data: Any) -> bool:
        """Whether an object is there with this content."""
        try:
            found = self.get(name, len(data))
        except ColdCopyError as error:
            if error.status is Status.CONNFAILED:
                raise
            return False
        return content_hash(found) == content_hash(data)


_MEMORY: Final[dict[str, Any]] = {}
"""Stores that this process keeps, by name."""


def _in_memory(name: str) -> Any:
    if name not in _MEMORY:
        _MEMORY[name] = arrow("fs")._MockFileSystem()
    return _MEMORY[name]


def forget_memory_store(name: str) -> None:
    """Drop all objects of the store ``memory://name``."""
    _MEMORY.pop(name, None)


def is_manifest(name: str) -> bool:
    """Whether an object is a manifest, by its name."""
    return name.endswith(MANIFEST_SUFFIX)


def _make_durable_folders(folder: str) -> None:
    """Make a folder and those above it; they survive a power cut."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    _make_durable_folders(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    _sync_folder(above)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
