"""Copies a closed range of a log into a store: reads it, writes files, reads them back, compares proofs, and describes what is there."""

from __future__ import annotations

import asyncio
from typing import Protocol

from client.client import Client
from client.read.items import Gap
from client.read.proof import Proof
from logdevice_py.core.entry import EntryHeader
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from streams.cold.copies import (
    ColdCopy,
    ColdFile,
    ColdManifest,
    check_token,
    cluster_name,
    log_prefix,
    total_proof,
)
from streams.cold.cutting import CutLimits, RowGroupCutter
from streams.cold.entries import UnpackedItem, unpack_entry
from streams.cold.errors import ColdCopyError, damaged
from streams.cold.file_format import FileBuilder, FileContent, FileIdentity, lost_ranges
from streams.cold.store import ColdStore

_ENTRIES_AT_ONCE = 1000


class EntrySource(Protocol):
    """A reader of a closed range, as the copier sees it."""

    async def read_entries(self, max_entries: int) -> list[tuple[EntryHeader, bytes] | Gap]:
        """The next entries and gaps; none at the end."""

    def proof(self) -> Proof:
        """Of what was read so far."""


async def copy_range(
    client: Client,
    store: ColdStore,
    log: int | str,
    first: int,
    last: int,
    *,
    token: str,
    stream: str = "",
    transaction_ids: bool = False,
    accept_loss: bool = False,
    limits: CutLimits | None = None,
) -> ColdCopy:
    """Copy [first, last] of a log. The copy counts once the caller has committed what this returns; until then it is a leftover that `sweep` removes.

    All files were read back from the store, each record compared with its checksum, and the proof compared with that of the reader.
    Copying a range again is harmless.

    Args:
        client: an open client.
        store: where to.
        log: id or path of the log.
        first: the first LSN.
        last: the last LSN, inclusive; below or at the tail (`client.tail_lsn`).
        token: of this attempt, known to whoever sweeps: while it is live nothing of the attempt is removed. The same range with a token that was used
            before gives the same copy.
        stream: the stream's name; by default the path of the log's group.
        transaction_ids: keys of 8 bytes are transaction ids.
        accept_loss: copy also a range of which records may be lost. Trimming it then makes that loss final.
        limits: how large files become.

    Raises:
        ColdCopyError: INVALID_PARAM (also: `last` is behind the tail), DATALOSS, CONNFAILED (retriable), BADPAYLOAD: what was read back is not what was stored,
            NOTSUPPORTED: writers have encrypted records of the range.
        LogDeviceError: as the client's reader.
        ImportError: pyarrow is not installed.
    """
    if first > last:
        raise ColdCopyError(Status.INVALID_PARAM, f"[{LSN(first)}, {LSN(last)}] is no range")
    check_token(token)
    number = await client.known_log(log)
    tail = await client.tail_lsn(number)
    if last > tail:
        text = f"log {number}: [{LSN(first)}, {LSN(last)}] ends behind the tail, {tail}: copy what can be read"
        raise ColdCopyError(Status.INVALID_PARAM, text)
    group = client.config.group(number)
    identity = FileIdentity(
        cluster_name(client.config.uuid), number, stream or ("" if group is None else group.path), transaction_ids
    )
    async with client.reader(number, first, last) as reader:
        return await Copier(store, identity, token, limits=limits or CutLimits()).copy(
            reader, first, accept_loss=accept_loss
        )


def _unpacked(header: EntryHeader, image: bytes) -> UnpackedItem:
    """An entry as a file keeps it: in clear."""
    try:
        return unpack_entry(header, image)
    except LogDeviceError as error:
        if error.status is not Status.NOKEY:
            raise
        text = f"log {header.log}: {LSN(header.lsn)} is encrypted by its writer; a cold copy would hold it in clear, so none is made: keep the range in the cluster"
        raise ColdCopyError(Status.NOTSUPPORTED, text, retriable=False) from None


class Copier:
    """One attempt to copy a range."""

    def __init__(self, store: ColdStore, identity: FileIdentity, token: str, *, limits: CutLimits) -> None:
        self._store = store
        self._identity = identity
        self._token = check_token(token)
        self._limits = limits
        self._folder = f"{log_prefix(identity.cluster, identity.log)}/{token}"
        self._builder: FileBuilder | None = None
        self._files: list[ColdFile] = []

    async def copy(self, source: EntrySource, first: int, *, accept_loss: bool = False) -> ColdCopy:
        """Copy all that a source gives, which begins at `first`.

        Raises:
            ColdCopyError: as `copy_range`.
        """
        cutter = RowGroupCutter(self._limits)
        next_lsn = first
        while taken := await source.read_entries(_ENTRIES_AT_ONCE):
            for each in taken:
                item: UnpackedItem = each if isinstance(each, Gap) else _unpacked(*each)
                for group in cutter.add(item):
                    next_lsn = await self._add_row_group(group, next_lsn)
            lost = lost_ranges(source.proof())
            if lost and not accept_loss:
                text = f"log {self._identity.log} lost what was in {lost[0].lo} to {lost[0].hi}: it is copied only with accept_loss"
                raise ColdCopyError(Status.DATALOSS, text)
        if rest := cutter.rest():
            await self._add_row_group(rest, next_lsn)
        await self._end_file()
        proof = source.proof()
        manifest = ColdManifest(
            self._identity.cluster, self._identity.log, self._token, self._identity.stream, tuple(self._files)
        )
        copy = manifest.copy()
        found = total_proof(file.proof for file in self._files)
        if found != proof:
            raise damaged(
                self._store.where(self._folder), f"its proof is {found.as_json()}, the reader's {proof.as_json()}"
            )
        await asyncio.to_thread(self._put_manifest, copy, manifest)
        return copy

    async def _add_row_group(self, items: list[UnpackedItem], first: int) -> int:
        """Write a row group; the LSN that follows it."""
        if self._builder is None:
            self._builder = await asyncio.to_thread(FileBuilder, self._identity, first)
        builder = self._builder
        await asyncio.to_thread(builder.add_row_group, items)
        self._store.on_step("encoded a row group")
        next_lsn = builder.last + 1
        if builder.size >= self._limits.file_bytes:
            await self._end_file()
        return next_lsn

    async def _end_file(self) -> None:
        builder, self._builder = self._builder, None
        if builder is not None:
            self._files.append(await asyncio.to_thread(self._put_file, builder))

    def _put_file(self, builder: FileBuilder) -> ColdFile:
        """Store a file, read it back, and check every value of it."""
        finished = builder.finish()
        name = f"{self._folder}/{finished.described.name}"
        if not self._store.holds(name, finished.data):
            self._store.put(name, finished.data)
        data = self._store.get(name, finished.described.size)
        content = FileContent(finished.described, data, where=self._store.where(name))
        content.check_identity(self._identity.cluster, self._identity.log)
        for _ in content.items(strict=True):
            pass
        self._store.on_step(f"verified {name}")
        return finished.described

    def _put_manifest(self, copy: ColdCopy, manifest: ColdManifest) -> None:
        encoded = manifest.encode()
        if not self._store.holds(copy.manifest_name, encoded):
            self._store.put(copy.manifest_name, encoded)
        if self._store.manifest(copy) != manifest:
            raise damaged(self._store.where(copy.manifest_name), "it reads back as another one")
        self._store.on_step("verified the manifest")
