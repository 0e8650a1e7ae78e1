"""What a store holds, found from its objects alone, without the cluster that made them; and what becomes of it: checked, appended again, swept."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Final

from client.client import Client
from client.read.batch import RecordBatch
from client.read.items import Gap, GapKind, Record
from client.read.proof import Proof
from client.receipt import Receipts
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import Status
from streams.cold.cold_reader import ColdReader, load_file
from streams.cold.copies import ColdCopy, cluster_name, log_prefix, total_proof
from streams.cold.coverage import cover
from streams.cold.errors import ColdCopyError
from streams.cold.store import ColdStore, is_manifest
from streams.cold.sweeping import plan_sweep

_READ_AT_ONCE: Final = 5000


@dataclass(slots=True)
class CopiedLog:
    """What a store holds of one log."""

    cluster: str
    """UUID."""
    log: LogId
    stream: str
    """Its name in the newest copy."""
    copies: list[ColdCopy] = field(default_factory=list)
    """By first LSN."""

    @property
    def first(self) -> LSN:
        """The first LSN that is copied."""
        return min(copy.first for copy in self.copies)

    @property
    def last(self) -> LSN:
        """The last LSN that is copied."""
        return max(copy.last for copy in self.copies)

    def missing(self) -> list[tuple[LSN, LSN]]:
        """Ranges between copies that no copy holds: either nobody copied them, or the store lost a manifest."""
        return [(each.first, each.last) for each in cover(self.copies, self.first, self.last) if each.copy is None]


@dataclass(slots=True)
class ColdCatalogue:
    """What a store holds."""

    logs: list[CopiedLog]
    """By cluster and log."""
    unreadable: dict[str, str]
    """Why a manifest, by its name, cannot be read: it is damaged, or of a later version."""

    def unreadable_of(self, log: CopiedLog) -> list[str]:
        """Why manifests of a log cannot be read: what they name may be a part of it that no other copy holds."""
        prefix = f"{log_prefix(log.cluster, log.log)}/"
        return [text for name, text in self.unreadable.items() if name.startswith(prefix)]

    def unreadable_of_others(self) -> list[str]:
        """Why manifests cannot be read of logs of which nothing else is here."""
        known = tuple(f"{log_prefix(log.cluster, log.log)}/" for log in self.logs)
        return [text for name, text in self.unreadable.items() if not name.startswith(known)]

    def log(self, name: str) -> CopiedLog:
        """A log by its id or the name of its stream.

        Raises:
            ColdCopyError: NOTFOUND; INVALID_PARAM: there are several.
        """
        found = [each for each in self.logs if name in (each.stream, str(each.log), f"{each.cluster}/{each.log}")]
        if not found:
            known = ", ".join(each.stream or str(each.log) for each in self.logs) or "nothing"
            raise ColdCopyError(Status.NOTFOUND, f"the store does not hold {name!r}; it holds {known}")
        if len(found) > 1:
            these = ", ".join(f"{each.cluster}/{each.log}" for each in found)
            raise ColdCopyError(Status.INVALID_PARAM, f"{name!r} may be any of {these}: name one like this")
        return found[0]


def read_catalogue(store: ColdStore) -> ColdCatalogue:
    """List a store and read its manifests. Blocking.

    A manifest is written when its files were verified, never changes, and says what a part of a log held, which never changes either. So the union of
    all that a listing shows is true, whatever runs meanwhile. What a listing might miss shows up as a missing range, unless it is the end.

    Raises:
        ColdCopyError: CONNFAILED: retriable.
    """
    logs: dict[tuple[str, LogId], CopiedLog] = {}
    newest: dict[tuple[str, LogId], LSN] = {}
    unreadable: dict[str, str] = {}
    for each in store.objects():
        if not is_manifest(each.name):
            continue
        try:
            manifest = store.manifest_named(each.name)
        except ColdCopyError as error:
            if error.status is Status.CONNFAILED:
                raise
            unreadable[each.name] = error.detail
            continue
        copy, key = manifest.copy(), (manifest.cluster, manifest.log)
        log = logs.setdefault(key, CopiedLog(*key, manifest.stream))
        log.copies.append(copy)
        if copy.last >= newest.get(key, 0):
            newest[key], log.stream = copy.last, manifest.stream
    for log in logs.values():
        log.copies.sort(key=lambda copy: (copy.first, copy.last, copy.manifest))
    return ColdCatalogue([logs[key] for key in sorted(logs)], unreadable)


def verify_copy(store: ColdStore, copy: ColdCopy) -> Proof:
    """Read a whole copy, compare every value with its checksum and the proof with the descriptor's. Blocking.

    Raises:
        ColdCopyError: NOTFOUND, CONNFAILED (retriable), BADPAYLOAD, VERSION_MISMATCH.
    """
    manifest = store.manifest(copy)
    for file in manifest.files:
        for _ in load_file(store, copy, file).items(strict=True):
            pass
    return total_proof(file.proof for file in manifest.files)


def file_urls(store: ColdStore, copies: Iterable[ColdCopy]) -> list[str]:
    """URLs of the files of copies, for programs that read Parquet: a folder may hold leftovers besides. Blocking.

    Raises:
        ColdCopyError: NOTFOUND, CONNFAILED, BADPAYLOAD, VERSION_MISMATCH.
    """
    return [
        store.where(f"{copy.folder}/{file.name}")
        for copy in sorted(copies, key=lambda copy: copy.first)
        for file in store.manifest(copy).files
    ]


def sweep(
    store: ColdStore,
    cluster: bytes | str,
    log: int,
    committed: Iterable[ColdCopy],
    live: Iterable[str] = (),
    *,
    over: Container[str] | None = None,
    dry_run: bool = False,
) -> list[str]:
    """Delete what no committed copy and no live attempt needs: leftovers of copiers that died, and copies that are not committed any more. Blocking.

    No clock is needed when a copier commits its attempt's token before it begins, the commit of its copy asks for that token, and the token's end is
    committed before this is called without it. Then whoever calls must be the only one who commits until this has returned, or give `over`: what is listed
    here late may belong to a copy that somebody else committed meanwhile.

    Args:
        store: where the copies are.
        cluster: the cluster's UUID.
        log: the log.
        committed: all copies of the log that count.
        live: tokens of attempts that may still be committed.
        over: tokens of attempts of which only what is in `committed` counts, now and for ever: nothing of others is deleted. None: all that are not live.
        dry_run: delete nothing.

    Returns:
        The names of what was deleted.

    Raises:
        ColdCopyError: CONNFAILED: retriable; some may be deleted.
    """
    prefix = log_prefix(cluster_name(cluster), log)
    kept: dict[str, set[str]] = {}
    untouched = set(live)
    for copy in committed:
        if (copy.cluster, copy.log) != (cluster_name(cluster), log):
            raise ColdCopyError(Status.INVALID_PARAM, f"a copy of log {copy.log} is not one of log {log}")
        names = kept.setdefault(copy.token, set())
        names.add(copy.manifest_name.rpartition("/")[2])
        try:
            names.update(file.name for file in store.manifest(copy).files)
        except ColdCopyError:
            untouched.add(copy.token)  # which files it needs is not known
    found = [each.name.removeprefix(prefix + "/") for each in store.objects(prefix)]
    leftovers = plan_sweep(found, kept, untouched, over)
    if not dry_run:
        for name in leftovers:
            store.delete(f"{prefix}/{name}")
        for token in sorted({name.partition("/")[0] for name in leftovers}):
            store.remove_empty_folder(f"{prefix}/{token}")
    return [f"{prefix}/{name}" for name in leftovers]


@dataclass(slots=True)
class AppendedAgain:
    """What came of appending copied records to another log. They have new positions and timestamps there."""

    records: int = 0
    damaged: int = 0
    """Records that were appended damaged to the first log: left out."""
    lost: list[Gap] = field(default_factory=list)
    """Where the first log had lost records."""
    first: LSN | None = None
    """Of the new records."""
    last: LSN | None = None

    def readable(self, batch: RecordBatch) -> list[Record]:
        """What of a batch of copies can be appended; what cannot is noted."""
        self.lost += [gap for gap in batch.gaps if gap.kind is GapKind.DATALOSS]
        self.damaged += batch.payloads.count(None)
        return list(batch.records())

    def count(self, receipts: Receipts) -> None:
        """Records were acknowledged."""
        self.records += len(receipts)
        self.first = self.first or receipts[0].lsn
        self.last = receipts[-1].lsn


async def append_again(reader: ColdReader, client: Client, log: int | str) -> AppendedAgain:
    """Append all records of cold copies to an empty log, in order, with their keys. They get new positions and timestamps: whoever keeps old ones
    reads the copies in place with a `ColdReader`.

    Raises:
        ColdCopyError: NOTEMPTY: something is in the log; what a `ColdReader` raises.
        LogDeviceError: as appends. Then the log holds a part: take another one for the next try.
    """
    if (await client.head(log)).lsn is not None:
        raise ColdCopyError(Status.NOTEMPTY, f"log {log} holds records: append into an empty one", maybe_applied=False)
    done = AppendedAgain()
    async with client.buffered_writer() as writer:
        while batch := await reader.read(_READ_AT_ONCE):
            records = done.readable(batch)
            if not records:
                continue
            keys = [record.key for record in records]
            receipts = await writer.append_many(
                log,
                [record.payload for record in records],
                keys=None if keys.count(None) == len(keys) else keys,
            )
            done.count(receipts)
    return done


async def verify_copies(store: ColdStore, copies: Iterable[ColdCopy]) -> list[str]:
    """What is wrong with copies, a text each; nothing when all are sound."""
    wrong = []
    for copy in copies:
        try:
            await asyncio.to_thread(verify_copy, store, copy)
        except ColdCopyError as error:
            wrong.append(error.detail)
    return wrong
