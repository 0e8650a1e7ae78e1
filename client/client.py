"""The client of a cluster, on asyncio: runs a `ClientSession` over connections, and watches the cluster file."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from client.append.many import ManyRecords
from client.arguments import (
    atomic_argument,
    check_reader_options,
    flag_argument,
    key_argument,
    keys_argument,
    log_argument,
    payload_argument,
    payloads_argument,
    timeout_argument,
    writer_options,
)
from client.buffered_writer import BufferedWriter
from client.cluster_file import CLUSTER_VARIABLE, cluster_file, default_cluster_file
from client.connectivity import Connectivity
from client.encryption import EncryptionKeys, Sealer
from client.guard_arguments import batch_keys, guard_argument, guards_argument, number_argument, transaction_key
from client.guards import AppendGuard, Position
from client.identity import ClientIdentity
from client.links import Links
from client.location import client_location
from client.log_tree.client_log_tree import ClientLogTree
from client.log_tree.operations import LogTreeOperations
from client.log_tree.view import LogTreeView
from client.merged_reader import MergedReader
from client.network import ClientMachines, MakeNetwork
from client.progress import Advance, Progress, shown_bytes
from client.public_names import PublicNames
from client.questions import LogQuestions
from client.read.metrics import ReadMetrics
from client.read.settings import ReadSettings
from client.reader import READER_OPTIONS, Reader
from client.receipt import Receipt, Receipts
from client.session import ClientSession
from client.settings import ClientSettings, WriterSettings, split_section
from client.sockets import SocketNetwork
from client.write.frame_reader import StreamFrameReader
from client.write.write_streams import WriteStreams
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Location
from logdevice_py.config.logs import is_pattern
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.security import with_files_of
from logdevice_py.core.declare import settings_from
from logdevice_py.core.ids import USER_LOG_ID_MAX, LogId, NodeId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.machine import TimerQueue
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import GuardFlags

log_ = logging.getLogger("logdevice.client")
"""Seconds between two looks whether a node is connected."""
_LOG_NAMES: Final = frozenset({int, str})
_ID_BITS: Final = 62
"""Random bits of the id of a guarded append."""
_IDS_DRAWN: Final = 64
"""So many ids are made at a time."""


def read_cluster_file(path: str | Path) -> ClusterConfig:
    """The cluster that a file describes.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"cannot read {path}: no text in UTF-8: {error}") from None
    try:
        return load_cluster(text)
    except LogDeviceError as error:
        raise LogDeviceError(error.status, f"{path}: {error.detail}") from None


class Client(PublicNames, LogTreeOperations, LogQuestions):
    """A client of one cluster. Use it as ``async with Client("cluster.toml") as client``.

    One client serves a whole process: it multiplexes all logs over one connection a node. It belongs to the event loop on which it was
    entered. Logs are named by id or by path (``/team/clicks``).
    """

    INTERNAL_NAMES = frozenset(
        {
            "closed",
            "wrong_cluster",
            "future",
            "known_log",
            "known_logs",
            "may_be_made",
            "log_tree",
            "loop",
            "now",
            "read_metrics",
            "read_settings",
            "running_loop",
            "session",
            "newest_config",
            "set_config",
            "wake",
        }
    )

    def __init__(
        self,
        config: str | Path | ClusterConfig | None = None,
        *,
        name: str = "",
        location: str | Location | None = None,
        settings: ClientSettings | None = None,
        identity: ClientIdentity | None = None,
        seed: int | None = None,
        network: MakeNetwork = SocketNetwork,
    ) -> None:
        """
        Args:
            config: the cluster file, which is then watched for newer versions; or what was read from one. Of either, nodes tell newer versions. None: the file that the environment
                variable ``LOGDEVICE_CLUSTER`` names, else ``~/.config/logdevice/cluster.toml``, as the programs do.
            name: how nodes call this client in their logs.
            location: where it stands, as ``region.datacenter.cluster.row.rack`` (``us....`` is a region and no more): its readers get each record from the
                nearest shard that has it. None: what the environment variable ``LOGDEVICE_LOCATION`` says, else the file's setting.
            settings: in place of the section ``[settings.client]`` of the file.
            identity: who it is to nodes that ask for it, by certificate or token. None: what the environment variables ``LOGDEVICE_IDENTITY`` (file of a
                certificate and its key) and ``LOGDEVICE_TOKEN_FILE`` name, else the certificate beside the cluster file that has its name and the suffix .pem.
            seed: of the client's random choices.
            network: what runs the client's machines and reaches nodes; a simulated cluster gives another.

        Raises:
            LogDeviceError: INVALID_CONFIG, INVALID_PARAM.
        """
        super().__init__()
        self._path: Path | None = None
        if config is None:
            config = cluster_file()
            if config is None:
                text = f"no cluster file: name one, set {CLUSTER_VARIABLE}, or have one at {default_cluster_file()}"
                raise LogDeviceError(Status.INVALID_CONFIG, text)
        if isinstance(config, ClusterConfig):
            self._initial = config
        elif not isinstance(config, str | Path):
            kind = type(config).__name__
            raise LogDeviceError(Status.INVALID_PARAM, f"a cluster is given by the path of its file, not by {kind}")
        else:
            self._path = Path(config)
            self._initial = read_cluster_file(self._path)
        section = self._initial.settings.get("client", {})
        client_section, self._writer_section, self._read_section = split_section(section)
        try:
            self.settings = settings or settings_from(ClientSettings, client_section)
            settings_from(WriterSettings, self._writer_section)
            self.read_settings = settings_from(ReadSettings, self._read_section)
        except ValueError as error:
            where = "settings.client" if self._path is None else f"{self._path}: settings.client"
            raise LogDeviceError(Status.INVALID_CONFIG, f"{where}: {error}") from None
        places = [node.location for node in self._initial.nodes.values()]
        self.location = client_location(location, self.settings.location, places)
        """Where it stands; None: not known."""
        self.read_metrics = ReadMetrics()
        view = LogTreeView()
        if self._initial.has_log_tree:
            self._initial = replace(self._initial, run_time_logs=view)
        self.name = name
        # ids of write streams must not follow from earlier ones, which stand in records
        rng = random.SystemRandom() if seed is None else random.Random(seed)
        timers = TimerQueue()
        self._links = Links()
        self.session = ClientSession(
            self._initial,
            timers,
            rng,
            settings=self.settings,
            read_settings=self.read_settings,
            links=self._links,
            location=self.location,
        )
        """The machines of this client."""
        self.log_tree = ClientLogTree(self.session, view, self.read_settings) if self._initial.has_log_tree else None
        self._network = network(
            ClientMachines(
                session=self.session,
                links=self._links,
                timers=timers,
                rng=rng,
                config=self._initial,
                name=name,
                on_crash=self._on_crash,
                on_config_version=self._on_config_version,
                identity=identity,
                cluster_file=self._path,
            )
        )
        self._finder = StreamFrameReader(self.session, self.read_settings, self.read_metrics)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.running_loop = asyncio._get_running_loop
        """Tells which loop the caller runs on; None: none."""
        self._named = self.session.appends.named
        self._new_ids: list[int] = []
        self._closed = False
        self._watcher: asyncio.Task[None] | None = None
        self._newer = asyncio.Event()
        self._told_version = 0
        """The greatest version of the configuration that a node said to have, if it was greater than the one in use."""
        self._file_seen: tuple[int, int] | None = None
        self.session.on_newer_config = self._on_config_version
        self._crashed: BaseException | None = None
        self._progress: dict[WriteStreams, Progress] = {}
        """Of the writers that show theirs."""
        self._asked: dict[asyncio.Future[Any], None] = {}
        """Outcomes that nobody delivers once the machines are idle, in the order of the questions."""

    def __repr__(self) -> str:
        where = "" if self._path is None else f" ({self._path})"
        state = "not open" if self._crashed is None else "closed"
        if self.is_open:
            state = self._reach()
        return f"<Client of cluster {self.config.name}{where}: {state}>"

    def _reach(self) -> str:
        """How many nodes it is connected to, in words. Before the first question it has not tried any."""
        reached = self.connectivity()
        of_all = f"{len(reached.nodes)} nodes"
        if reached.connected:
            return f"connected to {len(reached.connected)} of {of_all}"
        return f"no node answers of {of_all}" if reached.troubles else f"open, not connected to any of {of_all} yet"

    # Life

    async def __aenter__(self) -> Client:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Bind to the running loop. Connections are made when they are needed.

        Raises:
            LogDeviceError: SHUTDOWN when the client was closed: it cannot be opened again.
        """
        if self._crashed is not None:
            self._refuse()
        if self._loop is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._create_future = self._loop.create_future
        self._network.start()
        self.session.view.add_listener(self._look_for_strangers)
        if self._path is not None:
            self._watcher = self._loop.create_task(self._watch(self._path), name="watch the cluster file")
        if self.log_tree is not None:
            self.log_tree.start(self.now())
            await self._wait_for_log_tree(self.log_tree)

    async def _wait_for_log_tree(self, tree: ClientLogTree) -> None:
        """A little: who asks for logs of the tree should not have to wait for it himself, and who does not should not wait for long."""
        future = self.future()
        tree.when_known(future, self.now(), self.settings.log_tree_wait_us)
        try:
            await self._answer(future)
        except LogDeviceError as error:
            log_.info("the client begins without the log tree: %s", error)

    async def close(self) -> None:
        """Fail what is under way and disconnect. BufferedWriters should be closed before."""
        if self._loop is None or self._closed:
            return
        self._closed = True
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
            self._watcher = None
        for progress in self._progress.values():
            progress.close()
        self._progress.clear()
        if self.log_tree is not None:
            self.log_tree.stop()
        self.session.close()
        self._network.stop()
        self._crashed = self._crashed or _shutdown("the client was closed")
        self._fail_asked()
        await self._network.close()

    def _on_crash(self, error: BaseException) -> None:
        log_.critical("the client broke one of its own rules and stops", exc_info=error)
        self._crashed = error
        self.session.close()
        self._fail_asked()

    def _fail_asked(self) -> None:
        for future in self._asked:
            if not future.done():
                future.set_exception(_shutdown("the client was closed before the answer came"))

    def _look_for_strangers(self, now: Micros) -> None:
        """Where only another cluster answers, nothing that is under way can succeed: it fails now, not at its deadline."""
        if self._closed or (error := self.wrong_cluster()) is None:
            return
        for future in self._asked:
            if not future.done():
                future.set_exception(error)
        self.session.refuse(error)

    def wrong_cluster(self) -> LogDeviceError | None:
        """Why waiting is of no use: see `Connectivity.wrong_cluster`."""
        return self.connectivity().wrong_cluster()

    async def _outcome(self, future: asyncio.Future[Any]) -> Any:
        """Wait for the answer to a request. An error that may pass says whom the client reaches."""
        self._asked[future] = None
        try:
            return await future
        except LogDeviceError as error:
            if self._closed or not error.retriable:
                raise
            connectivity = self.connectivity()
            raise connectivity.wrong_cluster() or LogDeviceError(
                error.status,
                connectivity.explain(error),
                retriable=error.retriable,
                maybe_applied=error.maybe_applied,
            ) from None
        finally:
            self._asked.pop(future, None)

    # The configuration: the cluster file, then what nodes use

    def _on_config_version(self, version: int) -> None:
        if version <= self.session.config.version:
            return
        self._told_version = version
        if self._path is not None:
            self._newer.set()
        elif self._loop is not None and not self._closed and (self._watcher is None or self._watcher.done()):
            self._watcher = self._loop.create_task(self._catch_up(), name="ask for the configuration")

    async def _catch_up(self) -> None:
        """Where there is no file: take what a node said to have from a node."""
        while self._told_version > self.session.config.version:
            await self._ask_for_config()
            if self._told_version > self.session.config.version:
                await asyncio.sleep(self.settings.config_poll_us / 1e6)

    async def _watch(self, path: Path) -> None:
        """Look at the file now and then. When a node says that there is a newer version, look at once, and ask the node for it if the file does not have it."""
        while True:
            try:
                async with asyncio.timeout(self.settings.config_poll_us / 1e6):
                    await self._newer.wait()
                await asyncio.sleep(0.1)  # the file may arrive a moment after the nodes' own
            except TimeoutError:
                pass
            self._newer.clear()
            await self._look_at_file(path)
            if self._told_version > self.session.config.version:
                await self._ask_for_config()

    async def _look_at_file(self, path: Path) -> None:
        in_use = self.session.config.version
        try:
            stat = await asyncio.to_thread(path.stat)
            if (stat.st_mtime_ns, stat.st_size) == self._file_seen:
                return
            self._file_seen = (stat.st_mtime_ns, stat.st_size)
            config = await asyncio.to_thread(read_cluster_file, path)
        except OSError as error:
            log_.warning("%s: %s; the client goes on with version %d", path, error.strerror or error, in_use)
        except LogDeviceError as error:
            log_.warning("%s; the client goes on with version %d", error, in_use)
        else:
            self.set_config(config)

    async def _ask_for_config(self) -> None:
        """Take the configuration that a connected node uses."""
        assert self._loop is not None
        asked = self._loop.create_future()
        self._network.event(partial(self.session.configurations.ask, asked))
        try:
            self._take_from_node(await asked)
        except LogDeviceError as error:
            log_.info("configuration version %d is not known here yet: %s", self._told_version, error)

    async def newest_config(self, timeout: float = 1.0) -> ClusterConfig:
        """The configuration that nodes use, which may be newer than the file of this client: asks some that can be reached within so many seconds, and takes
        the first answer."""
        asked = self.future()

        def search(now: Micros) -> None:
            nodes = list(self.config.nodes)
            self.session.configurations.search(nodes, asked, now, now + round(timeout * 1e6))

        self._network.event(search)
        try:
            self._take_from_node(await self._answer(asked))
        except LogDeviceError as error:
            log_.info("the newest configuration is not known here: %s", error)
        return self.config

    def _take_from_node(self, config: ClusterConfig) -> None:
        """Use what a node uses. Where there is no file, beside which names of others begin, they stay as they were given."""
        if self._path is None:
            config = replace(config, settings=with_files_of(config.settings, self._initial.settings))
        self.set_config(config)

    def set_config(self, config: ClusterConfig) -> None:
        """Use a newer version of the cluster file; an older one, or one of another cluster, is ignored."""
        current = self.session.config
        if config.version <= current.version or config.uuid != current.uuid:
            return
        log_.info("configuration version %d is in use", config.version)
        self.session.set_config(config, self.now())
        self._network.set_config_version(config.version)
        self.wake()

    @property
    def config(self) -> ClusterConfig:
        """The cluster file in use."""
        return self.session.config

    def connectivity(self) -> Connectivity:
        """Which nodes this client reaches at this moment. Nodes are dialled when something is asked of them."""
        return Connectivity(
            file=self._initial.name if self._path is None else str(self._path),
            nodes=tuple(sorted(self.config.nodes)),
            connected=tuple(map(NodeId, self._links.connected())),
            troubles={node: error for node, error in self._network.troubles().items() if node in self.config.nodes},
        )

    # What writers and readers of this client use

    def future(self) -> asyncio.Future[Any]:
        """A future of the client's loop.

        Raises:
            LogDeviceError: the client is not open, or the caller runs on another loop or in another thread; nothing was taken.
        """
        if self._loop is None or self._crashed is not None:
            self._refuse()
        assert self._loop is not None
        if self.running_loop() is not self._loop:
            raise LogDeviceError(
                Status.INVALID_PARAM,
                "this client belongs to the event loop on which it was opened, and is used from another loop or thread: open one client a loop, "
                "or use SyncClient from threads",
            )
        return self._loop.create_future()

    def _refuse(self) -> None:
        if isinstance(self._crashed, LogDeviceError):
            raise self._crashed
        if self._crashed is not None:
            raise LogDeviceError(Status.INTERNAL, f"the client stopped: {self._crashed!r}") from self._crashed
        raise _shutdown('the client is not open: use "async with Client(...) as client", or "await client.start()"')

    @property
    def is_open(self) -> bool:
        """It was opened, and neither closed nor broken."""
        return self._loop is not None and self._crashed is None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop on which the client was opened."""
        assert self._loop is not None, "the client is not open"
        return self._loop

    def now(self) -> Micros:
        """The monotonic clock of this client."""
        return self._network.now()

    def wake(self) -> None:
        """Run the end of a turn soon."""
        self._network.event(_nothing)

    def log_id(self, log: int | str) -> LogId:
        """The id of a log named by id or path.

        Raises:
            LogDeviceError: NOTFOUND, INVALID_PARAM; AGAIN: it may be in the log tree, of which this client does not know enough yet. One that was made a
                moment ago may be NOTFOUND: `get_log_group` asks anew.
        """
        name, config = log_argument(log), self.session.config
        if isinstance(name, int) and name > USER_LOG_ID_MAX and config.log(LogId(name)) is not None:
            return LogId(name)  # one that the cluster keeps for itself
        return config.find_log(name)

    def log_ids(self, *names: int | str) -> list[LogId]:
        """The logs of ids, paths and patterns like ``/team/*``: in that order, each once.

        Raises:
            LogDeviceError: NOTFOUND, INVALID_PARAM.
        """
        found: dict[LogId, None] = {}
        for name in names:
            logs = self.session.config.matching_logs(str(name)) if is_pattern(name) else [self.log_id(name)]
            found.update(dict.fromkeys(logs))
        return list(found)

    def _logs_to_read(self, names: Iterable[int | str]) -> list[int | str]:
        """As `log_ids`; of what this client does not know the name, which the reader looks up when it begins."""
        found: dict[int | str, None] = {}
        for name in names:
            try:
                found.update(dict.fromkeys(self.log_ids(name)))
            except LogDeviceError as error:
                if is_pattern(name) or not self.may_be_made(name, error):
                    raise
                found[name] = None
        return list(found)

    def closed(self, streams: WriteStreams) -> None:
        """A writer is closed."""
        progress = self._progress.pop(streams, None)
        if progress is not None:
            progress.close()
        self.session.writers.remove(streams)

    # Operations

    def append(
        self,
        log: int | str,
        payload: bytes | bytearray | memoryview,
        *,
        key: bytes | None = None,
        timeout: float | None = None,
        synced: bool = False,
        txid: int | None = None,
        expect: Position | None = None,
        fence: int | None = None,
        encryption: EncryptionKeys | None = None,
    ) -> Awaitable[Receipt]:
        """Append one record; awaitable for its receipt.

        Appends to one log leave in call order. Those under way at the same time get positions in that order unless one of them has to be
        tried again; await one before the next, or use `buffered_writer`, where order matters.

        Args:
            log: id or path.
            payload: the record; a bytearray or memoryview is copied at once.
            key: is kept with the record; `find_key` looks for it, in logs whose keys never get smaller.
            timeout: seconds, in place of the client's append timeout.
            synced: it is acknowledged only when every copy is synced to disk, also where the log is ``async``; so are records that share
                its entry. The receipt's `durability` says so. It promises no more than the log does where that is not known: when recovery
                completed the append, or a sequencer took it that is too old to be asked.
            txid: transaction id, not below any that the log holds; it is the record's key, so `find_key` finds it.
            expect: position of the record that must be the last of the log, such as ``receipt.position``; `START`: there must be none. Such
                an append is repeated until its outcome is known.
            fence: the caller's fence token, which must not be below the log's: see `raise_fence`.
            encryption: the record is encrypted, by the key that these are written with; its key and transaction id are not. Readers need the same keys.

        Raises:
            GuardError: CONFLICT, FENCED, ENDED, TRANSACTION_ID_TOO_LOW: the end of the log is not as the append asks; DATALOSS: that cannot be
                known any more. It says what is there.
            LogDeviceError: NOTFOUND, TOOBIG, INVALID_PARAM at once; others when awaited. `maybe_applied` tells whether the record may be
                in the log although no receipt came.
        """
        if (
            timeout is None
            and key is None
            and txid is None
            and expect is None
            and fence is None
            and encryption is None
            and synced is False
            and type(payload) is bytes
            and type(log) in _LOG_NAMES
        ):
            # all but the first of a turn: nothing is done for each that has been done for the first
            taken = self._named.get(log)
            if taken is not None and len(payload) <= taken.payload_max and self.running_loop() is self._loop:
                future = self._create_future()
                taken.payloads.append(payload)
                taken.promises.append(future)
                return future
        guard = None
        if txid is not None or expect is not None or fence is not None:
            guard = guard_argument(txid, expect, fence, self._new_id())
        sealer = None if encryption is None else encryption.writing()
        return self._append(log, payload, timeout, key, synced, guard, sealer)

    def append_many(
        self,
        log: int | str,
        payloads: Iterable[bytes | bytearray | memoryview],
        *,
        keys: Iterable[bytes | None] | None = None,
        timeout: float | None = None,
        synced: bool = False,
        txids: Iterable[int] | None = None,
        expect: Position | None = None,
        fence: int | None = None,
        atomic: bool = False,
        encryption: EncryptionKeys | None = None,
    ) -> Awaitable[Receipts]:
        """Append records; awaitable for the receipts of all of them.

        Without `atomic` each is appended by itself, as by `append`: some may be stored, and others not. `buffered_writer` is faster and repeats what
        failed. An atomic batch is one entry, with one LSN: readers see all of its records or none, whatever fails on the way. A reader hands them out
        together when its `max_records` are not fewer.

        Args:
            log: id or path.
            payloads: the records.
            keys: their keys, one each, None for one without; None: no record has one.
            timeout, synced, fence, encryption: as in `append`.
            txids: their transaction ids, one each, none below the one before; instead of keys.
            expect: with `atomic`: position of the record that must be the last of the log. The batch is then repeated until its outcome is known.
            atomic: one entry holds all of them. It takes 65,536 records and the log's `max_payload_bytes` at most, 6 bytes a record included; what is
                larger is refused, never split.

        Raises:
            GuardError: when awaited, as with `append`, of an atomic batch; otherwise a LogDeviceError of that status.
            LogDeviceError: as `append`; TOOBIG of an atomic batch at once. Without `atomic` the error says how many failed, and `maybe_applied`
                also when others are stored.
        """
        atomic = atomic_argument(atomic, expect)
        records = payloads_argument(payloads)
        guards = guards_argument(txids, fence, len(records), expect, self._new_id())
        many = ManyRecords(records, batch_keys(guards, keys_argument(keys, len(records))), guards, atomic=atomic)
        sealer = None if encryption is None else encryption.writing()
        return self._append_many(log, many, timeout, flag_argument("synced", synced), sealer)

    def _append_many(
        self, log: int | str, many: ManyRecords, timeout: float | None, synced: bool, sealer: Sealer | None
    ) -> Awaitable[Receipts]:
        future, timeout_us = self.future(), timeout_argument(timeout)
        try:
            log_id = self.log_id(log)
        except LogDeviceError as error:
            if not self.may_be_made(log, error):
                raise
            return self.loop.create_task(self._append_many_when_known(log, many, timeout, synced, sealer))
        self._named.clear()  # nothing may be put before these records any more
        seal = None if sealer is None else sealer(log_id)
        many.append(self.session, log_id, future, timeout_us, synced=synced, seal=seal)
        self.wake()
        return future

    async def _append_many_when_known(
        self, log: int | str, many: ManyRecords, timeout: float | None, synced: bool, sealer: Sealer | None
    ) -> Receipts:
        return await self._append_many(await self.known_log(log, timeout), many, timeout, synced, sealer)

    def raise_fence(
        self,
        log: int | str,
        token: int,
        *,
        expect: Position | None = None,
        accept_loss: bool = False,
        timeout: float | None = None,
    ) -> Awaitable[Receipt]:
        """From here on the log takes only appends with a fence token that is not below this one, and none without: whoever wrote before is shut
        out, whatever they have under way.

        Args:
            log: id or path.
            token: above the log's fence.
            expect: as in `append`.
            accept_loss: also when entries at the end of the log were lost, so that nobody knows its last fence and transaction id.
            timeout: as in `append`.

        Raises:
            GuardError, LogDeviceError: as `append`; FENCED: the fence is as high, or higher.
        """
        flags = GuardFlags.RAISE
        if flag_argument("accept_loss", accept_loss):
            flags |= GuardFlags.ACCEPT_LOSS
        guard = guard_argument(None, expect, number_argument("token", token), self._new_id(), flags, control=True)
        return self._append(log, b"", timeout, None, False, guard)

    def mark_end(
        self, log: int | str, *, expect: Position | None = None, fence: int | None = None, timeout: float | None = None
    ) -> Awaitable[Receipt]:
        """End the log: nothing follows, from nobody, for ever. What it holds stays readable.

        Args:
            log, expect, fence, timeout: as in `append`.

        Raises:
            GuardError, LogDeviceError: as `append`; ENDED: it was ended before.
        """
        guard = guard_argument(None, expect, fence, self._new_id(), GuardFlags.END, control=True)
        return self._append(log, b"", timeout, None, False, guard)

    def _new_id(self) -> int:
        if not self._new_ids:
            # many at a time: the system is asked for them
            drawn = self.session.rng.getrandbits(_ID_BITS * _IDS_DRAWN)
            self._new_ids = [(drawn >> _ID_BITS * at & (1 << _ID_BITS) - 1) + 1 for at in range(_IDS_DRAWN)]
        return self._new_ids.pop()

    def _append(
        self,
        log: int | str,
        payload: bytes | bytearray | memoryview,
        timeout: float | None,
        key: bytes | None,
        synced: bool,
        guard: AppendGuard | None = None,
        sealer: Sealer | None = None,
    ) -> Awaitable[Receipt]:
        future = self.future()
        if type(payload) is not bytes:
            payload = payload_argument(payload)
        if key is not None:
            key = key_argument(key)
        timeout_us = timeout_argument(timeout)
        synced = flag_argument("synced", synced)
        try:
            log_id = self.log_id(log)
        except LogDeviceError as error:
            if not self.may_be_made(log, error):
                raise
            return self.loop.create_task(self._append_when_known(log, payload, timeout, key, synced, guard, sealer))
        if guard is not None or sealer is not None:
            self._named.clear()  # nothing may be put before this record any more
        if guard is not None:
            key = transaction_key(guard, key)
        seal = None if sealer is None else sealer(log_id)
        taken = self.session.append(log_id, payload, future, timeout_us, key, synced=synced, guard=guard, seal=seal)
        if timeout_us is None and guard is None and seal is None and type(log) in _LOG_NAMES:
            self._named[log] = taken
        self.wake()
        return future

    async def _append_when_known(
        self,
        log: int | str,
        payload: bytes,
        timeout: float | None,
        key: bytes | None,
        synced: bool,
        guard: AppendGuard | None,
        sealer: Sealer | None,
    ) -> Receipt:
        return await self._append(await self.known_log(log, timeout), payload, timeout, key, synced, guard, sealer)

    def buffered_writer(
        self, *, progress: bool = False, encryption: EncryptionKeys | None = None, **options: Any
    ) -> BufferedWriter:
        """A writer of batches: the fast way to append, without duplicates and in order.

        Args:
            progress: show how much is acknowledged, until the writer is closed; needs tqdm.
            encryption: records are encrypted, by the key that these are written with; keys of records are not. Readers need the same keys.
            options: those of `WriterSettings`, as in the cluster file: ``compression="zstd"``, ``time_trigger="10ms"`` (or `time_trigger_us`),
                ``size_trigger="64KiB"``, ``memory="64MiB"``, ``timeout="2min"``.

        Raises:
            LogDeviceError: INVALID_PARAM.
            ImportError: tqdm is not installed.
        """
        progress = flag_argument("progress", progress)
        chosen = writer_options(self._writer_section, options)
        self.future().cancel()
        sealer = None if encryption is None else encryption.writing_streams()
        streams = self.session.writer(chosen, self._finder, sealer)
        if progress:
            self._progress[streams] = Progress("written", partial(_written, streams))
        return BufferedWriter(self, streams)

    def reader(
        self, log: int | str, start: int = LSN.OLDEST, until: int | str | datetime = LSN.MAX, **options: Any
    ) -> Reader:
        """A reader of [start, until]; `until` is an LSN, "tail" or a time: see `client.reader.Reader`."""
        check_reader_options(options, READER_OPTIONS)
        return Reader(self, log, start, until, **options)

    def merged_reader(
        self,
        *logs: int | str,
        start: int = LSN.OLDEST,
        until: int | str | datetime = LSN.MAX,
        by_time: bool = False,
        **options: Any,
    ) -> MergedReader:
        """A reader of [start, until] of several logs, which patterns like ``/team/*`` may name; with until="tail" or a time, each log ends at its own
        place. See `client.merged_reader.MergedReader`."""
        check_reader_options(options, (*READER_OPTIONS, "by_time"))
        return MergedReader(
            [Reader(self, log, start, until, **options) for log in self._logs_to_read(logs)],
            by_time=by_time,
            tail_lsn=self.tail_lsn,
        )


def _written(streams: WriteStreams) -> Advance:
    metrics = streams.metrics
    details = f"{shown_bytes(metrics.bytes_before_compression)}, {shown_bytes(metrics.bytes_buffered)} not acknowledged"
    return Advance(metrics.records_acknowledged, details)


def _nothing(now: Micros) -> None:
    """An event that only ends in a turn."""


def _shutdown(text: str) -> LogDeviceError:
    """The client is not open: calling it again is of no use."""
    return LogDeviceError(Status.SHUTDOWN, text, retriable=False)
